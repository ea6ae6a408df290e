"""Patterns beside ops of complex numbers, which XLA fuses and kernels do not hold."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jstitch
from jstitch import CompileOptions
from jstitch.passes.base.plan import FusionPlan, NoFuse, Reason, make_patterns
from jstitch.passes.fuse.weigh_cuts import weigh_cuts
from tests.contexts import CPU, H200
from tests.passes.product_graphs import graph_of

WHOLE = ("split_complex",)  # complex numbers are XLA's

Z = (np.arange(65536, dtype=np.float32).reshape(128, 512) % 251 - 125) / 60 * np.complex64(1 + 0.5j)


def rooted(c: Array) -> Array:
    z, count = jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)
    for _ in range(4):
        near = z.real**2 + z.imag**2 < 4
        z, count = jnp.where(near, jnp.sqrt(z) + c, z), count + near
    return count


def normed(z: Array) -> Array:
    x = jnp.log(z.real**2 + z.imag**2 + 1e-3)
    for _ in range(3):
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        x = jnp.tanh(x)
    return jax.nn.softmax(x, -1)


def kernels(f: Callable[[Array], Array], options: CompileOptions) -> int:
    np.testing.assert_allclose(jstitch.jit(f, options=options)(Z), jax.jit(f)(Z), rtol=2e-5, atol=1e-6)
    return jstitch.last_report()[-1].kernels


def test_a_kernel_of_xlas_is_not_cut() -> None:
    assert kernels(rooted, CompileOptions(without=WHOLE)) == 0
    assert kernels(rooted, CompileOptions(without=(*WHOLE, "weigh_cuts"))) > 0


def test_what_pays_for_its_cut_stays() -> None:
    assert kernels(normed, CompileOptions(without=WHOLE)) > 0


def test_off_keeps_every_pattern() -> None:
    assert kernels(rooted, CompileOptions(tune="off", without=WHOLE)) > 0


@pytest.mark.parametrize("f", [rooted, normed])
def test_what_is_cut_says_so(f: Callable[[Array], Array]) -> None:
    said = str(jstitch.jit(f, options=CompileOptions(without=WHOLE)).explain(Z))
    assert (" cut " in said) == (f is rooted)


def handed_over(x: Array) -> Array:
    """Four values of a middle part go on to the last op, element by element."""
    a = x * x + 1
    b, c, d = a * 2, a - x, a + x
    return (a * b + c * d) * x


def test_what_another_rule_left_to_xla_is_cut_too() -> None:
    frame = graph_of(handed_over, (np.linspace(0.1, 3, 40000, dtype=np.float32),))
    elementwise = [op for op in frame.ops if op.operands]
    for ops, context, stays in (
        *((elementwise[2:6], CPU, False), (elementwise, CPU, True)),
        (elementwise[2:6], H200, True),
    ):
        makers = frame.producers()
        edges = ((makers[v], op) for op in elementwise for v in op.operands if v in makers)
        refused = [NoFuse(a, b, Reason("test", "left")) for a, b in edges if not {a, b} <= {*ops}]
        plan = FusionPlan(frame, make_patterns(frame, [ops], "test"), tuple(refused))
        assert bool(weigh_cuts(plan, context).patterns) == stays
