"""The same computations in PyTorch, under `torch.compile`, for the workloads both frameworks can say.

A twin takes the JAX problem's arguments and returns a function of no arguments that runs one step and
returns tensors: the leading leaves of the JAX result, in order. torch is optional and imported on use only.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

Step = Callable[[], Any]
Arguments = tuple[Any, ...]


def why_unavailable(cuda: bool = False) -> str | None:
    """Why `torch.compile` cannot run here (or on the GPU here), or None."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    return "this torch has no GPU" if cuda and not _torch().cuda.is_available() else None


def device() -> str:
    """Where torch computes: where JAX does."""
    return "cuda" if jax.default_backend() == "gpu" else "cpu"


def finished(step: Step) -> Step:
    """The step, waited for: on a GPU a step only starts its work."""
    if device() == "cpu":
        return step

    def waited() -> Any:
        outputs = step()
        _torch().cuda.synchronize()
        return outputs

    return waited


def _torch() -> Any:
    return importlib.import_module("torch")


def _tensors(args: Arguments, grad: tuple[int, ...] = ()) -> list[Any]:
    torch = _torch()
    tensors = [torch.from_numpy(np.array(leaf)).to(device()) for leaf in args]
    for i in grad:
        tensors[i].requires_grad_()
    return tensors


def _forward(function: Callable[..., Any], args: Arguments) -> Step:
    torch = _torch()
    compiled, tensors = torch.compile(function), _tensors(args)

    def step() -> Any:
        with torch.no_grad():
            return compiled(*tensors)

    return step


def _gradient(loss: Callable[..., Any], args: Arguments, wrt: tuple[int, ...], value: bool = False) -> Step:
    torch = _torch()
    compiled, tensors = torch.compile(loss), _tensors(args, grad=wrt)

    def step() -> Any:
        result = compiled(*tensors)
        gradients = torch.autograd.grad(result, [tensors[i] for i in wrt])
        return (result.detach(), *gradients) if value else gradients

    return step


def _layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    return _torch().nn.functional.layer_norm(x, x.shape[-1:], gamma, beta, 1e-5)


def _rms_norm(x: Any, gamma: Any) -> Any:
    return x * _torch().rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * gamma


def _batch_norm(x: Any, gamma: Any, beta: Any) -> Any:
    return _torch().nn.functional.batch_norm(x, None, None, gamma, beta, True, 0.0, 1e-5)


def layer_norm(args: Arguments) -> Step:
    return _forward(_layer_norm, args)


def layer_norm_grad(args: Arguments) -> Step:
    return _gradient(lambda *a: _layer_norm(*a).pow(3).sum(), args, (0, 1, 2))


def rms_norm(args: Arguments) -> Step:
    return _forward(_rms_norm, args)


def rms_norm_grad(args: Arguments) -> Step:
    return _gradient(lambda *a: _rms_norm(*a).pow(3).sum(), args, (0, 1))


def batch_norm(args: Arguments) -> Step:
    return _forward(_batch_norm, args)


def batch_norm_grad(args: Arguments) -> Step:
    return _gradient(lambda *a: _batch_norm(*a).pow(3).sum(), args, (0, 1, 2))


def softmax(args: Arguments) -> Step:
    return _forward(lambda x: _torch().softmax(x, -1), args)


def log_softmax(args: Arguments) -> Step:
    return _forward(lambda x: _torch().log_softmax(x, -1), args)


def cross_entropy_grad(args: Arguments) -> Step:
    logits, labels = args
    loss = _torch().nn.functional.cross_entropy
    return _gradient(loss, (logits, np.asarray(labels, np.int64)), (0,), value=True)


def gelu_bias_residual_layer_norm(args: Arguments) -> Step:
    def block(x: Any, bias: Any, residual: Any, gamma: Any, beta: Any) -> Any:
        activated = _torch().nn.functional.gelu(x + bias, approximate="tanh")
        return _layer_norm(activated + residual, gamma, beta)

    return _forward(block, args)


def adamw(args: Arguments) -> Step:
    """In place over lists of tensors, as `torch.optim.AdamW(foreach=True)` compiled; the step is frozen."""
    torch = _torch()
    params, state, gradients = args
    adam = state[0]
    p, m, v, g = (_tensors(tuple(jax.tree.leaves(tree))) for tree in (params, adam.mu, adam.nu, gradients))
    count = int(adam.count) + 1

    def update(p: list[Any], m: list[Any], v: list[Any], g: list[Any]) -> None:
        torch._foreach_lerp_(m, g, 0.1)
        torch._foreach_mul_(v, 0.999)
        torch._foreach_addcmul_(v, g, g, 0.001)
        scale = torch._foreach_div(v, 1 - 0.999**count)
        torch._foreach_sqrt_(scale)
        torch._foreach_add_(scale, 1e-8)
        torch._foreach_mul_(p, 1 - 1e-3 * 1e-4)
        torch._foreach_addcdiv_(p, m, scale, -1e-3 / (1 - 0.9**count))

    compiled = torch.compile(update)

    def step() -> Any:
        with torch.no_grad():
            compiled(p, m, v, g)
        return p

    return step
