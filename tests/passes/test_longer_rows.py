"""Values that go across short rows, as in butterflies, stay in longer ones, in a program's own memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.base.plan import make_pattern
from jstitch.passes.base.profile import CPU as CPU_PROFILE
from jstitch.passes.lower.build_nest import CannotLowerError, too_many
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lengthen_rows import fewer_rows
from jstitch.passes.lower.lower_kernel import _KernelLowering, lower_kernel
from jstitch.passes.pipeline import run
from tests.contexts import CPU
from tests.passes.product_graphs import graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
Function = Callable[[Any], Any]


def hadamard(x: Any) -> Any:
    """The fast Walsh-Hadamard transform of rows."""
    n, h = x.shape[-1], 1
    while h < n:
        y = x.reshape(*x.shape[:-1], n // (2 * h), 2, h)
        a, b = y[..., 0, :], y[..., 1, :]
        x, h = jnp.stack([a + b, a - b], -2).reshape(x.shape), 2 * h
    return x / math.sqrt(n)


def sorted_by_pairs(x: Any) -> Any:
    """Bitonic sort of rows."""
    n, k = x.shape[-1], 2
    while k <= n:
        j = k // 2
        while j:
            y = x.reshape(x.shape[0], n // (2 * j), 2, j)
            low, high = jnp.minimum(y[:, :, 0], y[:, :, 1]), jnp.maximum(y[:, :, 0], y[:, :, 1])
            up = (jnp.arange(n // (2 * j)) * 2 * j // k % 2 == 0)[None, :, None]
            x = jnp.stack([jnp.where(up, low, high), jnp.where(up, high, low)], 2).reshape(x.shape)
            j //= 2
        k *= 2
    return x


def summed_by_steps(x: Any) -> Any:
    """Hillis and Steele's prefix sum of rows."""
    n, d = x.shape[-1], 1
    while d < n:
        x, d = x + jnp.pad(x, ((0, 0), (d, 0)))[:, :n], 2 * d
    return x


def shuffled(x: Any) -> Any:
    for _ in range(4):
        y = x.reshape(x.shape[0], 2, -1)
        x = jnp.stack([y[:, 0] + y[:, 1] / 8, y[:, 1]], -1).reshape(x.shape)
    return x


def rounded(x: Any) -> Any:
    y = hadamard(x)
    step = jnp.max(jnp.abs(y), -1, keepdims=True) / 127
    return jnp.round(y / step) * step


PROGRAMS: dict[str, tuple[Function, list[tuple[int, int]]]] = {
    "hadamard": (hadamard, [(4096, 8), (1024, 32), (300, 64), (33, 512), (7, 4096)]),
    "sorted": (sorted_by_pairs, [(1024, 16), (333, 32)]),
    "summed": (summed_by_steps, [(512, 64), (100, 100)]),
    "shuffled": (shuffled, [(256, 64), (99, 80)]),
}
CASES = [(name, shape) for name, (_, shapes) in PROGRAMS.items() for shape in shapes]


def kernel_of(f: Function, x: np.ndarray) -> Kernel:
    graph = run(graph_of(f, [x]), CPU)
    pattern = make_pattern(graph, graph.ops, "")
    return lower_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, CPU_PROFILE)


def drawn(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_same_as_xla(name: str, shape: tuple[int, int]) -> None:
    f, x = PROGRAMS[name][0], drawn(shape)
    found = jstitch.jit(f, options=OPTIONS)(x)
    assert jstitch.last_report()[-1].kernels == 1
    np.testing.assert_allclose(found, jax.jit(f)(x), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_of_one_phase(name: str) -> None:
    """But for what is the same in all rows: masks."""
    f, x = PROGRAMS[name][0], drawn((512, 16))
    kernel = kernel_of(f, x)
    check_kernel(kernel)
    assert len(kernel.phases) <= (2 if name == "sorted" else 1)
    small = drawn((24, 16))
    found = interpret_kernel(kernel_of(f, small), [small], Random(0))
    np.testing.assert_allclose(found[0], jax.jit(f)(small), rtol=1e-5, atol=2e-5)


def test_a_gradient_and_a_reduction_behind() -> None:
    x = drawn((512, 64))
    for f in (jax.grad(lambda x: jnp.sum(jnp.tanh(hadamard(x)))), rounded):
        np.testing.assert_allclose(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), rtol=1e-4, atol=1e-4)


def test_rows_are_enough_for_all_programs_and_not_too_long() -> None:
    graph = graph_of(hadamard, [drawn((4096, 64))])
    found = fewer_rows(graph.ops, CPU_PROFILE)
    assert found == sorted(found, reverse=True)
    assert 4096 in found
    assert min(found) >= 16
    assert not fewer_rows(graph_of(lambda x: x * 2, [drawn((1, 1 << 20))]).ops, CPU_PROFILE)


def test_what_long_rows_cannot_express_has_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _KernelLowering.run
    levels: list[int] = []

    def refusing(self: Any) -> Kernel:
        levels.append(self.formed.grouping.levels)
        if len(levels) == 1:
            raise too_many()
        return run(self)

    monkeypatch.setattr(_KernelLowering, "run", refusing)
    kernel = kernel_of(hadamard, drawn((1024, 64)))
    assert levels[0] == 1
    assert levels[1] == len(kernel.phases) > 1

    monkeypatch.setattr(_KernelLowering, "run", lambda self: (_ for _ in ()).throw(too_many()))
    with pytest.raises(CannotLowerError, match="more than"):
        kernel_of(hadamard, drawn((1024, 64)))
