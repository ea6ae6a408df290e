"""Programs on which `jstitch doctor` holds kernels against XLA's own, by the numerics rule.

check_program(SOFTMAX, "cpu")(name)   ->   Finding: "1 kernel, as near to float64 as XLA's"
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jstitch.api import jit
from jstitch.cli.finding import Check, Finding
from jstitch.inspection.compare import Comparison, compare
from jstitch.inspection.experiment import Experiment
from jstitch.inspection.lowered import lower_function
from jstitch.options import CompileOptions
from jstitch.runtime.report import last_report, record_count, stitch_count

Arguments = Callable[[np.random.Generator], tuple[Any, ...]]


@dataclass(frozen=True)
class Program:
    """arguments: of f, from random numbers. kernels: the least that it must get."""

    name: str
    f: Callable[..., Any]
    arguments: Arguments
    kernels: int = 1


def options_of_check(folder: str | None, target: str | None) -> CompileOptions:
    """Everything is stitched, whatever is measured or set; errors are raised."""
    return CompileOptions(
        target=target,
        planner="layers",
        tune="off",
        cache_dir=folder,
        dump_dir=None,
        reproducer_dir=None,
        plan=None,
        print_after=(),
        calibrated=False,
        async_compile=False,
        verify=True,
        strict=True,
    )


def check_program(program: Program, platform: str | None = None) -> Check:
    """Compile its kernels anew, run them, and compare. platform: JAX's name, None for its default."""

    def check(name: str) -> Finding:
        device = jax.devices(platform)[0]
        since = record_count()
        with tempfile.TemporaryDirectory(prefix="jstitch-doctor-") as folder, jax.default_device(device):
            found = _compared(program, options_of_check(folder, None))
        return _judged(name, program, found, since)

    return check


def _compared(program: Program, options: CompileOptions) -> Comparison:
    args = program.arguments(np.random.default_rng(0))
    target = "cuda" if jax.default_backend() == "gpu" else "cpu"
    module, given = lower_function(program.f, args, {}, target)
    assert given is not None, "all arguments are arrays"
    xla, ours = (
        [np.asarray(leaf) for leaf in jax.tree.leaves(run(*args))]
        for run in (jax.jit(program.f), jit(program.f, options=options))
    )
    return compare(ours, xla, Experiment(module, given, options).reference)


def _judged(name: str, program: Program, found: Comparison, since: int) -> Finding:
    kernels = stitch_count(since)
    if kernels < program.kernels:
        reasons = "; ".join(dict.fromkeys(r.reason for r in last_report(since) if r.reason))
        return Finding(
            name, "fail", f"nothing was stitched: {reasons}", "JSTITCH_STRICT=1 shows the traceback"
        )
    said = f"{kernels} kernel{'' if kernels == 1 else 's'}"
    if not found.same:
        text = f"{said}, whose results differ from XLA's: {found.complaint}"
        return Finding(name, "fail", text, "please report this, with all that doctor says")
    return Finding(name, "ok", f"{said}, as near to float64 as XLA's")


# -- programs ----------------------------------------------------------------------------------------------


def _normal(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Arguments:
    return lambda random: tuple(random.standard_normal(shape).astype(dtype) for shape in shapes)


def _layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * scale + bias


def _norm_gradient(x: Any, scale: Any, bias: Any, cotangent: Any) -> Any:
    result, pull = jax.vjp(_layer_norm, x, scale, bias)
    return result, pull(cotangent)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)
    return -chosen.mean()


def _labelled(random: np.random.Generator) -> tuple[Any, ...]:
    return random.standard_normal((33, 501)).astype(np.float32), random.integers(0, 501, 33).astype(np.int32)


def _adamw(state: Any, gradient: Any) -> Any:
    """Of parameters, first and second moments."""

    def update(p: Any, m: Any, v: Any, g: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * p), m, v

    return [update(p, m, v, g) for (p, m, v), g in zip(state, gradient, strict=True)]


def _parameters(random: np.random.Generator) -> tuple[Any, ...]:
    shapes = [(64, 48), (48,), (48, 7)]
    state = [[np.square(random.standard_normal(s)).astype(np.float32) for _ in range(3)] for s in shapes]
    return state, [random.standard_normal(s).astype(np.float32) for s in shapes]


def _dropout(x: Any, numbers: Any) -> Any:
    """Integers first: a hash of the numbers says which elements stay."""
    mixed = (numbers ^ (numbers >> 16)) * np.uint32(0x85EBCA6B)
    kept = (mixed ^ (mixed >> 13)) % 10 != 0
    return jnp.where(kept, x / 0.9, 0.0), kept.sum()


def _numbered(random: np.random.Generator) -> tuple[Any, ...]:
    x = random.standard_normal((37, 129)).astype(np.float32)
    x[3, 5], x[4, 7], x[5, 9] = np.nan, np.inf, -np.inf
    return x, random.integers(0, 1 << 32, x.shape, dtype=np.uint32)


def _distance(w: Any, x: Any) -> Any:
    return jnp.sqrt(jnp.sum(jnp.square(jnp.tanh(x * w) - w)))


SOFTMAX = Program("softmax", jax.nn.softmax, _normal((64, 96)))
PROGRAMS = (
    SOFTMAX,
    Program("softmax, bfloat16", jax.nn.softmax, _normal((17, 300), dtype=jnp.bfloat16)),
    Program("layer norm, gradient", _norm_gradient, _normal((24, 129), (129,), (129,), (24, 129))),
    Program("cross-entropy, gradient", jax.value_and_grad(_cross_entropy), _labelled),
    Program("AdamW", _adamw, _parameters),
    Program("dropout, NaN, inf", _dropout, _numbered),
    Program("vmap of grad", jax.vmap(jax.grad(_distance), (None, 0)), _normal((19,), (23, 19))),
    Program("empty array", jax.nn.softmax, _normal((0, 8)), kernels=0),
    Program("0-d array", lambda x: jnp.tanh(x) * x + 1.0, _normal(()), kernels=0),
)
