"""Loops in one kernel: found where turns need nothing of other elements, right where XLA is, else refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from benchmarks.recurrences import advantages, gated_gradient, linear, linear_minor
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.print_kernel import print_kernel
from jstitch.ir.reason import Reason
from jstitch.passes.fuse.find_recurrences import Recurrences, find_recurrences
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from tests.codegen.cuda.stitched import PROFILES, WHY_NO_PTX, interpreted, record, simulated, stitch
from tests.contexts import CPU, H200, on
from tests.passes.test_own_columns import graph_of
from tests.shares import one_tuple_in

Array = Any
OPTIONS = jstitch.CompileOptions(strict=True, verify=True, tune="off")


def counted(x: Array) -> Any:
    """A loop that gives nothing but its end, one number of which all elements have in common."""

    def turn(i: Array, carry: Any) -> Any:
        value, weight = carry
        return jnp.where(i % 2 == 0, value * weight, value - i), weight * 0.9

    return lax.fori_loop(3, 40, turn, (x, jnp.float32(1)))


def unrolled(x: Array) -> Any:
    return lax.scan(lambda c, now: (c * 0.5 + now, c - now), x[0], x, unroll=4)


def both_ends(x: Array) -> Any:
    """What follows needs the last turn's before it can have any other's."""
    last, each = lax.scan(lambda c, now: (c * 0.9 + now, c), x[0], x)
    return each / (1 + last**2), each.sum()


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shapes))
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


LOOPS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "advantages": (advantages, arrays((20, 33), (20, 33), (20, 33), (33,))),
    "linear": (linear, arrays((12, 3, 50), (12, 3, 50))),
    "few": (linear, arrays((30, 2), (30, 2))),
    "one": (linear, arrays((30,), (30,))),
    "along rows": (linear_minor, arrays((12, 30), (12, 30))),
    "counted": (counted, arrays((5, 7))),
    "unrolled": (unrolled, arrays((48, 10))),
    "two ends": (both_ends, arrays((20, 33))),
    "cumsum": (lambda x: jnp.cumsum(x, 1), arrays((9, 40))),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 0, reverse=True), arrays((40, 9))),
}


def kernel_of(f: Callable[..., Any], args: list[np.ndarray]) -> tuple[Kernel, bool]:
    """The loop's kernel, and whether it is the whole program."""
    context = on(CPU.profile, tune="off")
    graph = graph_of(f, args, context)
    (pattern,) = find_recurrences(graph, context).patterns
    kernel = lower_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, CPU.profile)
    return kernel, pattern.inputs == graph.inputs and pattern.outputs == graph.outputs


def reason_of(f: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    found = find_recurrences(graph_of(f, arrays(*shapes), CPU), CPU)
    assert not found.patterns
    (why,) = found.refused.values()
    assert isinstance(why, Reason)
    return str(why)


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_one_kernel(name: str) -> None:
    """Checked, followed element by element, interpreted in any order of its programs, and compiled."""
    f, args = LOOPS[name]
    wanted = [np.asarray(x) for x in jax.tree.leaves(jax.jit(f)(*args))]
    kernel, whole = kernel_of(f, args)
    assert check_kernel(kernel) == ()
    if whole:
        for ours, theirs in zip(interpret_kernel(kernel, args, Random(3)), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, 2e-5, 2e-5)
    for ours, theirs in zip(jax.tree.leaves(jstitch.jit(f, options=OPTIONS)(*args)), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, 2e-5, 2e-5)


@pytest.mark.parametrize("options", [{}, {"without": ("recurrences",)}, {"planner": "fs2018"}])
def test_what_is_switched_off_runs_as_a_loop(options: dict[str, Any]) -> None:
    f, args = LOOPS["advantages"]
    text = jstitch.jit(f, options=jstitch.CompileOptions(**options)).lower(*args).as_text()
    assert ("stablehlo.while(" in text) == bool(options)


def test_the_gradient_of_shared_weights_is_a_loop_without_its_sums() -> None:
    """Where they stay in the turns, a row is everything, which no two programs share."""
    args = arrays((4, 20, 12), (12,))
    for without, rows in (((), 4), (("sink_sums",), 1)):
        context = on(CPU.profile, without=without, tune="off")
        graph = graph_of(gated_gradient, args, context)
        last = find_recurrences(graph, context).patterns[-1]
        kernel = lower_kernel("k", last.ops, last.inputs, last.outputs, CPU.profile)
        assert {lane.rows for phase in kernel.phases for lane in phase.lanes} >= {rows}


@pytest.mark.parametrize("turns", [1, 3])
def test_what_a_turn_leaves_of_what_nothing_changes(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one turn, which is the last one: it is written although nothing goes on from turn to turn."""

    def f(x: Array, h: Array, w: Array) -> Array:
        return lax.scan(lambda c, now: (c, (c, now @ w)[0]), h, x)[1]

    args = [np.ones((turns, 8), np.float32), np.arange(8, dtype=np.float32), np.eye(8, dtype=np.float32)]
    made, options = record(monkeypatch), OPTIONS.replace(target="h200")
    jitted = jax.jit(jstitch.stitch(f, options=options), keep_unused=True)
    jitted.trace(*args).lower(lowering_platforms=("cuda",))
    assert any("all turns" in emitted.source.text for emitted in made.recorder.emitted.values())
    (found,) = made.run(0, args, simulated)
    np.testing.assert_array_equal(found, jax.jit(f)(*args))


@pytest.mark.skipif(bool(WHY_NO_PTX), reason=str(WHY_NO_PTX))
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_on_a_gpu(name: str) -> None:
    """One launch, in the simulator and as PTX."""
    f, args = LOOPS[name]
    wanted = [np.asarray(x) for x in jax.tree.leaves(jax.jit(f)(*args))]
    made = stitch(graph_of(f, args, CPU), PROFILES["h200"])
    assert [len(source.launches) for source in made.sources][:1] == [1]
    for machine in (simulated, interpreted):
        for ours, theirs in zip(made.run(args, machine), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, 2e-5, 2e-5)


def test_code_does_not_grow_with_turns() -> None:
    short, long = (kernel_of(linear, arrays((n, 16), (n, 16)))[0] for n in (16, 4096))
    assert len(print_kernel(short).splitlines()) == len(print_kernel(long).splitlines())


# -- cumulative ops --------------------------------------------------------------------------------------

CUMULATIVE = (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp)
SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (0,),
    (3, 0),
    (1,),
    (17,),
    (40, 3),
    (3, 40),
    (2, 12, 5),
    (9, 1, 600),
)


DTYPES = ("float32", "bfloat16", "uint8", "int32")


@pytest.mark.parametrize(("op", "dtype"), one_tuple_in(3, itertools.product(CUMULATIVE, DTYPES)))
def test_cumulative_ops(op: Callable[..., Any], dtype: str) -> None:
    """Along every dimension, in both directions, of empty arrays, too."""
    if op is lax.cumlogsumexp and "float" not in dtype:
        pytest.skip("of floats only")

    def every(x: Array) -> list[Array]:
        dims = range(x.ndim)
        return [op(x, axis=d, reverse=reverse) for d in dims for reverse in (False, True)]

    for shape in SHAPES:
        x = jnp.asarray(
            np.random.default_rng(7).uniform(-1, 1, shape) * (1 if "float" in dtype else 4), dtype
        )
        exact = x.astype("float32") if dtype == "bfloat16" else x  # XLA rounds all that it adds up
        found, wanted = jstitch.jit(every, options=OPTIONS)(x), jax.jit(every)(exact)
        for ours, theirs in zip(found, wanted, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, x.dtype)
            within = {"float32": 1e-5, "bfloat16": 1e-2}.get(dtype, 0)
            a, b = (np.asarray(v).astype(np.float64) for v in (ours, theirs))
            np.testing.assert_allclose(a, b, within, within)


@pytest.mark.parametrize("op", CUMULATIVE, ids=lambda op: op.__name__)
def test_what_is_no_number_stays_where_it_is(op: Callable[..., Any]) -> None:
    x = np.array([1, 2, np.nan, 3, np.inf, -1, -np.inf, 2, 0, 5, 6, 7], np.float32)
    rolled = np.stack([np.roll(x, n) for n in range(24)])
    found, wanted = jstitch.jit(lambda x: op(x, axis=1))(rolled), jax.jit(lambda x: op(x, axis=1))(rolled)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, 1e-5)


def test_long_sums_of_floats_lose_nothing() -> None:
    """XLA adds in pairs; one after another in float32 would be off by a thousandth."""
    x = np.full(1_000_000, 0.1, np.float32)
    exact = np.cumsum(x.astype(np.float64))
    np.testing.assert_allclose(jstitch.jit(jnp.cumsum)(x), exact, 1e-7)


def test_long_sums_on_a_gpu_stay_trees() -> None:
    graph = graph_of(jnp.cumsum, arrays((1_000_000,)), H200)
    (why,) = find_recurrences(graph, H200).refused.values()
    assert "tree" in str(why)


@pytest.mark.parametrize(("turns", "dear", "made"), [(16, False, 0), (16, True, 1), (17, False, 1)])
def test_short_sums_on_a_gpu_are_kernels_behind_dear_ops(turns: int, dear: bool, made: int) -> None:
    """XLA makes them in one kernel with what is around, but not again and again what takes long."""
    f = (lambda x: jnp.cumsum(jnp.exp(x), 1) * 2) if dear else (lambda x: jnp.cumsum(x, 1) * 2)
    graph = graph_of(f, arrays((2000, turns)), H200)
    assert len(find_recurrences(graph, H200).patterns) == made


def test_other_counters_are_numbers() -> None:
    """But for those that go on otherwise while they are negative."""

    def f(x: Array) -> Any:
        def turn(i: Array, carry: Any) -> Any:
            c, down, odd = carry
            c = c * 0.9 + down.astype(jnp.float32) + odd.astype(jnp.float32)
            return c, down - 2, jnp.where(odd < 0, odd + 10, odd + 1)

        return lax.fori_loop(0, 30, turn, (x, jnp.int32(7), jnp.int32(-5)))

    x = np.linspace(-1, 1, 40, dtype=np.float32)
    for ours, theirs in zip(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5)


# -- what is refused -------------------------------------------------------------------------------------


def test_why_a_loop_is_none() -> None:
    def until(x: Array) -> Array:
        return lax.while_loop(lambda c: jnp.sum(c) < 100, lambda c: c * 1.1, x)

    def sorts(x: Array) -> Array:
        return lax.fori_loop(0, 20, lambda i, c: jnp.sort(c) * x, x)

    def looks_back(x: Array) -> Array:
        return lax.fori_loop(2, 20, lambda i, c: c.at[i].set(c[i - 1] + c[i - 2]), x)

    assert "how many turns" in reason_of(until, (9,))
    assert "sort" in reason_of(sorts, (20,))
    assert "scatter" in reason_of(looks_back, (20,))


def test_few_numbers_under_dear_functions_stay() -> None:
    def swing(x: Array) -> Array:
        return lax.fori_loop(0, 100, lambda i, c: c - 0.01 * jnp.sin(c), x)

    def few(x: Array) -> Array:
        return lax.fori_loop(0, 10, lambda i, c: c * 0.9 + i, x)

    assert "a call of a kernel takes" in reason_of(few, (3,))
    assert "XLA is quicker" in reason_of(swing, (3,))
    assert find_recurrences(graph_of(swing, arrays((3,)), CPU), on(CPU.profile, tune="off")).patterns
    assert find_recurrences(graph_of(swing, arrays((64,)), CPU), CPU).patterns


def test_loops_that_are_refused_are_explained() -> None:
    def until(x: Array) -> Array:
        return lax.while_loop(lambda c: jnp.sum(c) < 100, lambda c: c * 1.1, x)

    text = " ".join(str(jstitch.explain(until)(np.ones(9, np.float32))).split())
    assert "how many turns" in text


def test_without_recurrences() -> None:
    context = on(CPU.profile, without=("recurrences",))
    assert find_recurrences(graph_of(linear, arrays((9, 20), (9, 20)), CPU), context) == Recurrences()


def test_bits_of_another_width() -> None:
    """They change how many elements there are: a kernel that is tried around a loop has no such ops."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, (2, 40)).astype(np.float32)

    def f(bits: Array) -> Array:
        return jnp.cumsum(lax.bitcast_convert_type(bits[..., ::-1], jnp.float32), 1)

    bits = np.ascontiguousarray(x.view(np.uint8).reshape(2, 40, 4)[..., ::-1])
    np.testing.assert_allclose(jstitch.jit(f, options=OPTIONS)(bits), np.cumsum(x, 1), rtol=1e-5)
