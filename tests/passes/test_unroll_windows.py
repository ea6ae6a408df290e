"""Reductions over small windows become slices with the same results; others stay; pooling is in kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import MONOIDS, build, lookup
from jstitch.ir.types import DType, TensorType
from jstitch.ir.verify import check
from jstitch.passes.fuse.gate import judge
from jstitch.passes.fuse.plan_layers import plan_layers
from jstitch.passes.graph.unroll_windows import MAX_WINDOW, unroll_windows
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import PIPELINE, run
from jstitch.runtime.report import last_report, record_count
from tests.contexts import CPU, CPU_PROFILE

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
FLOATS = (DType.F32, DType.BF16, DType.F16, DType.F64)
OTHERS = (DType.S32, DType.U8, DType.BOOL)
Pool = Callable[[Any], Any]


def has_window(graph: Graph) -> bool:
    return any(op.name == "stablehlo.reduce_window" for op in graph.walk())


def imported(f: Callable[..., Any], *args: Any) -> Graph:
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


# -- random windows, against the interpreter --------------------------------------------------------------


def random_window(random: Random, monoid: str, dtype: DType) -> Graph:
    """A window of any rank, size, stride, dilation and padding (negative too) whose result is not empty."""
    while True:
        rank = random.randint(1, 3)
        shape = tuple(random.randint(1, 6) for _ in range(rank))
        attrs: dict[str, Any] = {
            "window_dimensions": tuple(random.randint(1, 3) for _ in range(rank)),
            "window_strides": tuple(random.randint(1, 3) for _ in range(rank)),
            "base_dilations": tuple(random.choice((1, 1, 2, 3)) for _ in range(rank)),
            "window_dilations": tuple(random.choice((1, 1, 2)) for _ in range(rank)),
            "padding": tuple((random.randint(-2, 3), random.randint(-2, 3)) for _ in range(rank)),
        }
        kept = {k: v for k, v in attrs.items() if k == "window_dimensions" or random.random() < 0.8}
        result = tuple(_extent(n, kept, d) for d, n in enumerate(shape))
        if min(result) > 0:
            return window(shape, result, monoid, dtype, kept)


def _extent(n: int, attrs: dict[str, Any], d: int) -> int:
    ones = (1,) * (d + 1)
    low, high = attrs.get("padding", ((0, 0),) * (d + 1))[d]
    dilated = (n - 1) * attrs.get("base_dilations", ones)[d] + 1
    reach = (attrs["window_dimensions"][d] - 1) * attrs.get("window_dilations", ones)[d] + 1
    return int((dilated + low + high - reach) // attrs.get("window_strides", ones)[d] + 1)


def window(
    shape: tuple[int, ...],
    result: tuple[int, ...],
    monoid: str,
    dtype: DType,
    attrs: dict[str, Any],
    init: float | None = None,
) -> Graph:
    """reduce_window from the monoid's identity, or from `init`."""
    scalar = TensorType((), dtype)
    identity = lookup(monoid).identity
    assert identity is not None
    x, start = Value(TensorType(shape, dtype)), build.splat(scalar, identity(dtype) if init is None else init)
    a, b = Value(scalar), Value(scalar)
    body = build.elementwise(monoid, a, b)
    op = Op(
        "stablehlo.reduce_window",
        (x, start.result),
        (Value(TensorType(result, dtype)),),
        {**attrs, "monoid": monoid},
        (Graph((a, b), (body,), body.results),),
        loc="pool.py:1",
    )
    return check(Graph((x,), (start, op), op.results))


def draw(rng: np.random.Generator, type_: TensorType) -> np.ndarray:
    values = rng.standard_normal(type_.shape) * 3
    if type_.dtype is DType.BOOL:
        return values > 0
    return values.astype(np.int32 if type_.dtype.is_integer else np.float32).astype(type_.dtype.numpy)


@pytest.mark.parametrize("monoid", MONOIDS)
def test_random_windows(monoid: str) -> None:
    logical = monoid in ("stablehlo.and", "stablehlo.or", "stablehlo.xor")
    for seed in range(60):
        random, rng = Random(seed), np.random.default_rng(seed)
        dtype = random.choice(OTHERS if logical else (*FLOATS, *OTHERS[:2]))
        before = random_window(random, monoid, dtype)
        after = check(unroll_windows(before))
        assert not has_window(after)
        (x,) = args = [draw(rng, v.tensor) for v in before.inputs]
        (a,), (b,) = interpret(before, args), interpret(after, args)
        if dtype.is_float and monoid in ("stablehlo.add", "stablehlo.multiply"):
            step = {DType.BF16: 2**-8, DType.F16: 2**-11}.get(dtype, 0.0)  # one rounding
            np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=2e-6 + step, atol=1e-5)
        else:
            np.testing.assert_array_equal(a, b, err_msg=str((x.shape, before.ops[-1].attrs)))


def test_source_lines_stay() -> None:
    graph = unroll_windows(window((8,), (6,), "stablehlo.add", DType.F32, {"window_dimensions": (3,)}))
    assert {op.loc for op in graph.ops[1:]} == {"pool.py:1"}


def test_narrow_sums_are_rounded_once() -> None:
    """256 + 1 + 1 + ... in bf16: rounding after each addition would lose every one."""
    graph = unroll_windows(window((9,), (1,), "stablehlo.add", DType.BF16, {"window_dimensions": (9,)}))
    x = np.array([256, *[1] * 8]).astype(DType.BF16.numpy)
    assert float(interpret(graph, [x])[0][0]) == 264


# -- where it must refuse, and an initial value of its own ------------------------------------------------


def stays(graph: Graph) -> bool:
    return unroll_windows(graph) is graph


def test_an_initial_value_that_is_no_identity_counts_once() -> None:
    attrs = {"window_dimensions": (2,), "padding": ((-1, 0),)}
    before = window((5,), (3,), "stablehlo.add", DType.F32, attrs, init=10.0)
    x = np.arange(5, dtype=np.float32)
    after = unroll_windows(before)
    assert not has_window(after)
    assert interpret(after, [x])[0].tolist() == interpret(before, [x])[0].tolist() == [13.0, 15.0, 17.0]


@pytest.mark.parametrize(
    "attrs", [{"padding": ((1, 0),)}, {"base_dilations": (2,)}], ids=["padding", "dilation"]
)
def test_padding_with_a_value_that_counts_stays(attrs: dict[str, Any]) -> None:
    attrs = {"window_dimensions": (2,), **attrs}
    assert stays(window((4,), (_extent(4, attrs, 0),), "stablehlo.add", DType.F32, attrs, init=1.0))
    assert not stays(window((4,), (_extent(4, attrs, 0),), "stablehlo.add", DType.F32, attrs))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, MAX_WINDOW + 1), (1, 1), "VALID"),
        lambda x: jnp.cumsum(x, 0),
        lambda x: jnp.cumsum(x, 0)[::-1] + lax.cumsum(x, 0, reverse=True),
        lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + 2 * b, (2, 2), (2, 2), "VALID"),
        lambda x: lax.reduce_window(x + 0j, 1 + 0j, lax.mul, (2, 2), (2, 2), "VALID"),
        lambda x: lax.reduce_window(x[:0], 0.0, lax.add, (1, 2), (1, 1), "VALID"),
    ],
    ids=["large", "prefix", "suffix", "not a monoid", "complex", "empty"],
)
def test_other_windows_stay(f: Pool) -> None:
    graph = imported(f, np.ones((8, 40), np.float32))
    assert has_window(graph)
    assert has_window(run(graph, CPU))


# -- end to end --------------------------------------------------------------------------------------------


def avg_pool(x: Any) -> Any:
    ones = lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / ones


def max_pool(x: Any) -> Any:
    low = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    return lax.reduce_window(x, np.asarray(low, x.dtype), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def channels_first(x: Any) -> Any:
    return lax.reduce_window(jnp.exp(x), 0.0, lax.add, (1, 1, 3, 3), (1, 1, 1, 1), "SAME")


POOLS: dict[str, Pool] = {
    "average": avg_pool,
    "average after silu": lambda x: avg_pool(jax.nn.silu(x)),
    "maximum": max_pool,
    "channels first": channels_first,
    "gradient of the average": jax.grad(lambda x: (avg_pool(x) ** 2).sum()),
    "normalised": lambda x: max_pool(x) - max_pool(x).mean((1, 2), keepdims=True),
    "dilated": lambda x: lax.reduce_window(
        x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "VALID", window_dilation=(1, 2, 2, 1)
    ),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", POOLS)
def test_pooling_is_in_kernels(name: str, batch: int) -> None:
    x = np.random.default_rng(0).standard_normal((batch, 9, 8, 5)).astype(np.float32)
    since = record_count()
    found = jstitch.jit(lambda x: POOLS[name](x), options=OPTIONS)(x)
    np.testing.assert_allclose(found, jax.jit(POOLS[name])(x), rtol=2e-5, atol=1e-5)
    assert all(r.kernels == 1 for r in last_report(since)), last_report(since)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.int32, jnp.float16])
def test_other_dtypes(dtype: Any) -> None:
    x = (np.random.default_rng(1).standard_normal((2, 6, 6, 4)) * 5).astype(dtype)
    found = jstitch.jit(lambda x: max_pool(x * 3), options=OPTIONS)(x)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(jax.jit(lambda x: max_pool(x * 3))(x)))


def test_the_gradient_of_max_pooling() -> None:
    x = np.random.default_rng(2).standard_normal((2, 6, 6, 4)).astype(np.float32)
    gradient = jax.grad(lambda x: (max_pool(x * 2) ** 2).sum())
    found = jstitch.jit(gradient, options=OPTIONS)(x)
    np.testing.assert_allclose(found, jax.jit(gradient)(x), rtol=1e-6, atol=1e-6)
    passes = [p for p in PIPELINE if p.name != "write_selections"]
    reasons = {r.reason for r in plan_layers(run(imported(gradient, x), CPU, passes)).refusals}
    assert "stablehlo.select_and_scatter is opaque: left to XLA" in reasons


# -- what it costs -----------------------------------------------------------------------------------------


def kernel(f: Pool, x: np.ndarray) -> Kernel:
    (pattern,) = plan_layers(run(imported(f, x), CPU)).patterns
    return lower_kernel("pool", pattern.ops, pattern.inputs, pattern.outputs, CPU_PROFILE)


IMAGES = np.ones((4, 28, 28, 32), np.float32)


def average(x: Any, size: int, stride: int) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (1, size, size, 1), (1, stride, stride, 1), "VALID")


def test_what_is_dear_is_not_computed_for_each_overlapping_window() -> None:
    """Nine times, in 3 x 3 windows one element apart: once, a phase before."""
    found = kernel(lambda x: average(jax.nn.silu(x), 3, 1), IMAGES)
    assert len(found.phases) == 2
    assert [b.type.shape for b in found.scratch] == [IMAGES.shape]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: average(jax.nn.silu(x), 2, 2),
        lambda x: average(jnp.maximum(x, 0), 3, 1),
        lambda x: jnp.exp(x)[:, 1:] + jnp.exp(x)[:, :-1],
    ],
    ids=["no overlap", "cheap", "twice"],
)
def test_the_rest_is_computed_in_place(f: Pool) -> None:
    found = kernel(f, IMAGES)
    assert len(found.phases) == 1
    assert not found.scratch


@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2), (3, 1)])
def test_the_gate_knows_what_windows_cost_xla(size: int, stride: int) -> None:
    """Without the mark of the written-out window XLA's time would be that of a few additions."""
    graph = run(imported(lambda x: average(x, size, stride), IMAGES), CPU)
    (pattern,) = plan_layers(graph).patterns
    assert [op.attrs["window"] for op in pattern.ops if "window" in op.attrs] == [size * size]
    assert judge(pattern, CPU_PROFILE).pays
    plain = [replace(op, attrs={k: v for k, v in op.attrs.items() if k != "window"}) for op in pattern.ops]
    unmarked = judge(replace(pattern, ops=tuple(plain)), CPU_PROFILE)
    assert unmarked.xla_seconds < judge(pattern, CPU_PROFILE).xla_seconds
