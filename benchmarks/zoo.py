"""Several hundred small CPU kernels of varied kinds: what the cost models are fitted to and judged by.

    cases() == (Case("softmax 512x256", softmax, (float32[512, 256],)), ...)

Patterns of the suite's workloads, at its three sizes, and plain ones at many shapes. Each case is stitched
without a gate, and every kernel it gives is one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.workload import Shape, Size
from benchmarks.workloads import FAMILIES

F32, BF16, F16 = jnp.float32, jnp.bfloat16, jnp.float16
MOST_BYTES = 1 << 27  # of one kernel's buffers: a sample must not take seconds


@dataclass(frozen=True)
class Case:
    """A function and the shapes it is traced with."""

    name: str
    function: Callable[..., Any]
    args: tuple[jax.ShapeDtypeStruct, ...]


@dataclass(frozen=True)
class Kind:
    """A function over arrays that all have the case's shape, except for `vectors` of its last dimension."""

    name: str
    function: Callable[..., Any]
    arrays: int = 1
    vectors: int = 0
    dtype: Any = F32


def _layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gamma + beta


def _pull(function: Callable[..., Array]) -> Callable[..., Any]:
    """(upstream, *args) -> the gradients of all args."""
    return lambda upstream, *args: jax.vjp(function, *args)[1](upstream)


def _batch_norm(x: Array, gamma: Array, beta: Array) -> Array:
    return (x - jnp.mean(x, 0)) * jax.lax.rsqrt(jnp.var(x, 0) + 1e-5) * gamma + beta


def _adam(w: Array, g: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return w - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * w), m, v


def _residual(x: Array, y: Array, bias: Array, gamma: Array, beta: Array) -> Array:
    return _layer_norm(x + jax.nn.gelu(y + bias), gamma, beta)


def _quantize(x: Array) -> tuple[Array, Array]:
    scale = jnp.max(jnp.abs(x), -1, keepdims=True) / 127.0
    return jnp.round(x / scale).astype(jnp.int8), scale


def _rotate(x: Array, y: Array) -> Array:
    left, right = jnp.split(x, 2, -1)
    return x * jnp.cos(y) + jnp.concatenate([-right, left], -1) * jnp.sin(y)


def _entropy(x: Array) -> Array:
    p = jax.nn.softmax(x)
    return -jnp.sum(p * jnp.log(p + 1e-9), -1)


def _smooth(x: Array) -> Array:
    return x + 0.5 * jnp.pad(x[:, 1:], ((0, 0), (0, 1))) + 0.25 * jnp.pad(x[:, :-1], ((0, 0), (1, 0)))


KINDS = (
    Kind("add one", lambda x: x + 1.0),
    Kind("four inputs", lambda x, y, z, w: (x * y + z) * w - x, 4),
    Kind("long chain", lambda x: ((x * 0.5 + 1.0) * x + 0.25) * jnp.maximum(x * x - 1.0, 0.0) * (x + 3.0)),
    Kind("gelu tanh", jax.nn.gelu),
    Kind("gelu erf", lambda x: jax.nn.gelu(x, approximate=False)),
    Kind("silu", jax.nn.silu),
    Kind("two exponentials", lambda x: jnp.exp(x) + jnp.exp(-x * x)),
    Kind("softplus", jax.nn.softplus),
    Kind("waves", lambda x: jnp.sin(x) * jnp.cos(x)),
    Kind("power", lambda x: jnp.power(jnp.abs(x) + 0.1, 1.7)),
    Kind("quotients", lambda x, y: x / (y * y + 1.0) + jnp.sqrt(jnp.abs(x)), 2),
    Kind("select", lambda x, y: jnp.where(x > y, x * 2.0, y - x), 2),
    Kind("whole numbers", lambda x: (x.astype(jnp.int32) * 3 + 1) % 7),
    Kind("bias tanh", lambda x, b: jnp.tanh(x + b), 1, 1),
    Kind("adam", _adam, 4),
    Kind("row sum", lambda x: jnp.sum(x * x, -1)),
    Kind("row maximum", lambda x: jnp.max(x, -1)),
    Kind("row argmax", lambda x: jnp.argmax(x, -1)),
    Kind("column sum", lambda x: jnp.sum(x, 0)),
    Kind("column moments", lambda x: (jnp.mean(x, 0), jnp.mean(x * x, 0))),
    Kind("whole sum", lambda x, y: jnp.sum(x * y), 2),
    Kind("softmax", jax.nn.softmax),
    Kind("log softmax", jax.nn.log_softmax),
    Kind("entropy", _entropy),
    Kind("layer norm", _layer_norm, 1, 2),
    Kind("layer norm pullback", _pull(_layer_norm), 2, 2),
    Kind("batch norm", _batch_norm, 1, 2),
    Kind("batch norm pullback", _pull(_batch_norm), 2, 2),
    Kind("residual", _residual, 2, 3),
    Kind("softmax pullback", _pull(jax.nn.softmax), 2),
    Kind("transpose", lambda x: x.T * 2.0),
    Kind("transposed sum", lambda x: jnp.exp(x).T + jnp.sum(x, -1)),
    Kind("quantize", _quantize),
    Kind("rotate", _rotate, 2),
    Kind("smooth", _smooth),
    Kind("concatenate", lambda x, y: jnp.concatenate([x * 2.0, y + 1.0], -1), 2),
    Kind("bf16 gelu", jax.nn.gelu, dtype=BF16),
    Kind("bf16 layer norm", _layer_norm, 1, 2, BF16),
    Kind("bf16 softmax", jax.nn.softmax, dtype=BF16),
    Kind("f16 scale", lambda x, y: x * y + x, 2, dtype=F16),
)
SHAPES: tuple[Shape, ...] = (
    *((16, 64), (128, 768), (2048, 32), (24, 9000), (1024, 512), (700, 3002)),
    *((65536, 24), (3072, 1024), (96, 65536), (6144, 2048)),
)
SLOW, LARGE = {"recurrent", "vae", "transformer"}, {"optimizers"}
PER_KIND = 6  # shapes of each kind: every kind meets small and large, no two kinds the same ones


def _shapes(number: int) -> Iterator[Shape]:
    """A kind's own choice of the shapes: one is left out after another."""
    for k, shape in enumerate(SHAPES):
        if (k + number) % len(SHAPES) < PER_KIND:
            yield shape


def cases() -> tuple[Case, ...]:
    """All of them, always in the same order."""
    return (*_plain(), *_packed(), *workload_cases((Size.L2, Size.L3)))


def _plain() -> Iterator[Case]:
    for number, kind in enumerate(KINDS):
        for shape in _shapes(number):
            whole, vector = struct(shape, kind.dtype), struct(shape[-1:], kind.dtype)
            args = (whole,) * kind.arrays + (vector,) * kind.vectors
            yield Case(f"{kind.name} {shape[0]}x{shape[1]}", kind.function, args)


def _packed() -> Iterator[Case]:
    """Optimizer steps of several parameters, which share one kernel."""
    for count, sizes in ((6, (64, 4096)), (24, (256, 20000)), (12, (1000, 400000))):
        shapes = [(sizes[k % 2],) for k in range(count)]
        args = tuple(struct(shape, F32) for shape in shapes for _ in range(4))
        yield Case(f"packed adam {count} of {sizes}", _all_adam, args)


def _all_adam(*leaves: Array) -> list[tuple[Array, ...]]:
    return [_adam(*leaves[k : k + 4]) for k in range(0, len(leaves), 4)]


@cache
def workload_cases(sizes: tuple[Size, ...]) -> tuple[Case, ...]:
    """The suite's own functions, but for models of many kernels and large optimizers: these take long."""
    return tuple(_workloads(sizes))


def _workloads(sizes: tuple[Size, ...]) -> Iterator[Case]:
    for family in (name for name in FAMILIES if name not in SLOW):
        for workload in FAMILIES[family]:
            for size in sizes if family not in LARGE else sizes[:1]:
                problem = workload.problem(size)
                args = jax.tree.map(lambda leaf: struct(leaf.shape, leaf.dtype), problem.args)
                yield Case(f"{workload.name} {size.value}", problem.function, args)


def struct(shape: Shape, dtype: Any) -> jax.ShapeDtypeStruct:
    """An argument to trace with."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def random_args(types: Sequence[tuple[Shape, Any]], seed: int = 0) -> list[np.ndarray]:
    """Normal numbers, small whole ones, and coins."""
    rng = np.random.default_rng(seed)
    found = []
    for shape, dtype in types:
        kind = np.dtype(dtype)
        if kind == np.bool_:
            found.append(rng.integers(0, 2, shape).astype(np.bool_))
        elif np.issubdtype(kind, np.integer):
            found.append(rng.integers(0, 8, shape).astype(kind))
        else:
            found.append(rng.standard_normal(shape, dtype=np.float32).astype(kind))
    return found
