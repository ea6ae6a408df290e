"""Every elementwise op of the table: the NumPy reference equals XLA, for each dtype that XLA takes."""

from __future__ import annotations

import numpy as np
import pytest

from jstitch.ir.expr import Ref, refs
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import OPS
from jstitch.ir.types import DType, TensorType
from jstitch.ir.verify import check
from tests.ir import programs
from tests.ir.running import run_with_xla

SHAPE = (7, 11)
TOLERANCE = {
    DType.F8E4M3FN: 0.13,
    DType.F8E5M2: 0.26,
    DType.BF16: 1.6e-2,
    DType.F16: 2e-3,
    DType.F32: 2e-5,
    DType.F64: 1e-12,
    DType.C64: 1e-4,
    DType.C128: 1e-11,
}


def merge(graphs: list[Graph]) -> Graph:
    """One graph that computes all of them: one compilation."""
    return Graph(
        tuple(v for g in graphs for v in g.inputs),
        tuple(op for g in graphs for op in g.ops),
        tuple(v for g in graphs for v in g.outputs),
    )


def assert_same(actual: np.ndarray, expected: np.ndarray, dtype: DType, what: str) -> None:
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    tolerance = TOLERANCE.get(dtype)
    if tolerance is None:
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    wide = np.complex128 if dtype.is_complex else np.float64
    np.testing.assert_allclose(
        actual.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance / 8, err_msg=what
    )


@pytest.mark.parametrize("name", programs.elementwise_names())
def test_reference_equals_xla(name: str) -> None:
    rng = np.random.default_rng(len(name))
    dtypes = programs.DTYPES.get(name, programs.FLOATS)
    graphs = [programs.elementwise_graph(name, dtype, SHAPE) for dtype in dtypes]
    graph = check(merge(graphs))
    args = [programs.draw(rng, OPS[name], v.tensor) for v in graph.inputs]
    actual, expected = interpret(graph, args), run_with_xla(graph, args)
    for dtype, mine, xla in zip(dtypes, actual, expected, strict=True):
        assert_same(mine, xla, DType.of(mine.dtype), f"{name} {dtype.value}")


@pytest.mark.parametrize(
    "name", ["maximum", "minimum", "abs", "sign", "negate", "round_nearest_even", "ceil"]
)
def test_signed_zeros(name: str) -> None:
    graph = programs.elementwise_graph(f"stablehlo.{name}", DType.F32, (4,))
    zeros = np.array([0.0, 0.0, -0.0, -0.0], np.float32)
    args = [zeros, np.array([0.0, -0.0, 0.0, -0.0], np.float32)][: len(graph.inputs)]
    (mine,), (xla,) = interpret(graph, args), run_with_xla(graph, args)
    np.testing.assert_array_equal(np.signbit(mine), np.signbit(xla))


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("kind", ["FLOAT", "TOTALORDER"])
def test_compare(direction: str, kind: str) -> None:
    values = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32)
    types = [TensorType((8, 8), DType.F32)] * 2
    attrs = {"comparison_direction": direction, "compare_type": kind}
    graph = programs.build("stablehlo.compare", types, TensorType((8, 8), DType.BOOL), **attrs)
    args = [np.repeat(values[:, None], 8, 1), np.repeat(values[None], 8, 0)]
    np.testing.assert_array_equal(interpret(graph, args)[0], run_with_xla(graph, args)[0])


CONVERTIBLE = [d for d in DType if d not in (DType.S4, DType.U4)]


@pytest.mark.parametrize("source", CONVERTIBLE, ids=lambda d: str(d.value))
def test_convert(source: DType) -> None:
    rng = np.random.default_rng(1)
    targets = [d for d in CONVERTIBLE if d.is_complex or not source.is_complex]
    graphs = [
        programs.build("stablehlo.convert", [TensorType(SHAPE, source)], TensorType(SHAPE, target))
        for target in targets
    ]
    graph = check(merge(graphs))
    value = programs.draw(rng, OPS["stablehlo.convert"], TensorType(SHAPE, source))
    if source in (DType.F32, DType.F64):
        value[-1] *= np.array([1e3, 1e5, 1e6, 1e10, 1e12, 1e19, 1e20, 1e30, 1.0, 1.0, 1.0], value.dtype)
    args = [value] * len(targets)
    actual, expected = interpret(graph, args), run_with_xla(graph, args)
    for target, mine, xla in zip(targets, actual, expected, strict=True):
        assert_same(mine, xla, target, f"{source.value} to {target.value}")


@pytest.mark.parametrize(
    ("source", "target"),
    [(DType.F32, DType.S32), (DType.F64, DType.U64), (DType.U16, DType.BF16), (DType.S8, DType.U8)],
)
def test_bitcast_same_width(source: DType, target: DType) -> None:
    types = TensorType(SHAPE, source), TensorType(SHAPE, target)
    graph = programs.build("stablehlo.bitcast_convert", types[:1], types[1])
    value = programs.draw(np.random.default_rng(2), OPS["stablehlo.bitcast_convert"], types[0])
    (mine,), (xla,) = interpret(graph, [value]), run_with_xla(graph, [value])
    np.testing.assert_array_equal(mine.view(np.uint8), xla.view(np.uint8))


def test_bitcast_between_widths() -> None:
    wide, narrow = TensorType((3,), DType.U64), TensorType((3, 2), DType.U32)
    value = np.arange(3, dtype=np.uint64) * 0x1_0000_0003
    for types, x in (((wide, narrow), value), ((narrow, wide), value.view(np.uint32).reshape(3, 2))):
        graph = programs.build("stablehlo.bitcast_convert", types[:1], types[1])
        np.testing.assert_array_equal(interpret(graph, [x])[0], run_with_xla(graph, [x])[0])


@pytest.mark.parametrize(("exponent", "mantissa"), [(8, 7), (5, 10), (8, 23), (5, 2), (4, 3)])
def test_reduce_precision(exponent: int, mantissa: int) -> None:
    type_ = TensorType((20,), DType.F32)
    attrs = {"exponent_bits": exponent, "mantissa_bits": mantissa}
    graph = programs.build("stablehlo.reduce_precision", [type_], type_, **attrs)
    x = np.geomspace(1e-6, 1e7, 20).astype(np.float32)
    np.testing.assert_array_equal(interpret(graph, [x])[0], run_with_xla(graph, [x])[0])


def test_scalar_operands_of_select_and_clamp() -> None:
    scalar, full = TensorType((), DType.F32), TensorType(SHAPE, DType.F32)
    x = np.random.default_rng(3).normal(size=SHAPE).astype(np.float32)
    low, high, p = np.float32(-0.5), np.float32(0.5), np.array(True)
    clamp = programs.build("stablehlo.clamp", [scalar, full, scalar], full)
    select = programs.build("stablehlo.select", [TensorType((), DType.BOOL), full, full], full)
    for graph, args in ((clamp, [low, x, high]), (select, [p, x, -x])):
        check(graph)
        np.testing.assert_array_equal(interpret(graph, args)[0], run_with_xla(graph, args)[0])


def test_scalar_expressions_exist_for_kernel_dtypes() -> None:
    """The table offers kernels everything but complex, 4-bit and the named exceptions."""
    without = {
        "chlo.bessel_i1e",
        "chlo.zeta",
        "chlo.polygamma",
        "chlo.mulhi",
        "stablehlo.real",
        "stablehlo.imag",
        "stablehlo.complex",
    }
    for name in set(programs.elementwise_names()) - without:
        definition = OPS[name]
        assert definition.scalar is not None
        dtypes = programs.DTYPES.get(name, programs.FLOATS)
        kernel = [d for d in dtypes if not d.is_complex] if name != "chlo.conj" else []
        for dtype in kernel:
            (op,) = programs.elementwise_graph(name, dtype, ()).ops
            expression = definition.scalar(op)
            if name == "stablehlo.reduce_precision" and dtype is not DType.F32:
                continue
            assert expression is not None, (name, dtype)
            operands = [Ref(f"v{k}") for k in range(len(op.operands))]
            assert set(refs(expression(*operands))) == {v.name for v in operands}, (name, dtype)
        complex_op = Op(name, (Value(TensorType((), DType.C64)),), (Value(TensorType((), DType.C64)),))
        if name not in programs.ATTRS:
            assert definition.scalar(complex_op) is None
