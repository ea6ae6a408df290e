"""The op table's kernel expressions against the op table's NumPy references, op by op and dtype by dtype."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
from cpu_loop import NUMPY, run_separate_loops

from jstitch.codegen.cpu import math
from jstitch.codegen.intrinsics import INTRINSICS
from jstitch.codegen.print_expr import print_expr
from jstitch.ir.expr import Formula, Ref, calls
from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OPS, OpDef
from jstitch.ir.types import DType, TensorType

SIZE = 400
OPERANDS = [Ref(f"{{{k}}}") for k in range(3)]
PARTS = 3  # of one dtype's ops, to keep the compiled functions small
NAMES = {DType.of(dtype): name for name, dtype in NUMPY.items()}
TOLERANCE = {
    DType.F32: 4e-6,
    DType.F64: 1e-12,
    DType.F16: 2e-3,
    DType.BF16: 2e-2,
    DType.F8E4M3FN: 0.2,
    DType.F8E5M2: 0.3,
}
ATTRS: dict[str, list[dict[str, Any]]] = {
    "stablehlo.compare": [
        {"comparison_direction": direction, "compare_type": "NOTYPE"}
        for direction in ("EQ", "NE", "LT", "LE", "GT", "GE")
    ],
    "stablehlo.reduce_precision": [{"exponent_bits": 8, "mantissa_bits": 7}],
}
DTYPES = (
    DType.BOOL,
    DType.S8,
    DType.S32,
    DType.S64,
    DType.U8,
    DType.U32,
    DType.F16,
    DType.BF16,
    DType.F32,
    DType.F64,
)


def make_op(name: str, operands: list[DType], result: DType, attrs: dict[str, Any]) -> Op:
    """An op over vectors of SIZE elements."""
    values = tuple(Value(TensorType((SIZE,), dtype)) for dtype in operands)
    return Op(name, values, (Value(TensorType((SIZE,), result)),), attrs)


def scalar_text(definition: OpDef, dtype: DType) -> list[tuple[Op, str]]:
    """(op, kernel expression) for every attribute choice the table has an expression for."""
    assert definition.scalar is not None
    found = []
    for attrs in ATTRS.get(definition.name, [{}]):
        for op in candidates(definition.name, dtype, attrs):
            formula = definition.scalar(op)
            if formula is not None:
                found.append((op, print_expr(formula(*OPERANDS[: len(op.operands)]))))
    return found


def candidates(name: str, dtype: DType, attrs: dict[str, Any]) -> list[Op]:
    match name:
        case "stablehlo.convert" | "stablehlo.bitcast_convert":
            return [make_op(name, [dtype], target, attrs) for target in DTYPES]
        case "stablehlo.select":
            return [make_op(name, [DType.BOOL, dtype, dtype], dtype, attrs)]
        case "stablehlo.compare" | "stablehlo.is_finite":
            return [make_op(name, [dtype] * (2 if name.endswith("compare") else 1), DType.BOOL, attrs)]
    unary = make_op(name, [dtype], dtype, attrs)
    formula = OPS[name].scalar(unary) if OPS[name].scalar else None  # type: ignore[misc]
    arity = 1 if formula is None else next(n for n in (1, 2, 3) if takes(formula, n))
    return [make_op(name, [dtype] * arity, dtype, attrs)]


def takes(formula: Formula, arity: int) -> bool:
    """Whether the formula is one of so many operands."""
    try:
        made = formula(*OPERANDS[:arity])
    except TypeError:
        return False
    return all(INTRINSICS[c.function].arity == len(c.args) for c in calls(made))


def inputs(definition: OpDef, op: Op) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    arrays = []
    for value in op.operands:
        dtype = value.tensor.dtype
        if dtype is DType.BOOL:
            arrays.append(random.integers(0, 2, SIZE).astype(bool))
        elif dtype.is_integer:
            info = np.iinfo(dtype.numpy)
            low, high = max(info.min, -100), min(info.max, 100)
            arrays.append(random.integers(low, high, SIZE, endpoint=True).astype(dtype.numpy))
        else:
            arrays.append(random.uniform(*definition.domain, SIZE).astype(dtype.numpy))
    return arrays


TABLE = [
    (name, dtype)
    for name, definition in sorted(OPS.items())
    if definition.scalar is not None
    for dtype in DTYPES
    if scalar_text(definition, dtype)
]


def test_the_table_is_not_empty() -> None:
    assert len({name for name, _ in TABLE}) > 50


def test_every_function_the_table_names_exists() -> None:
    texts = [text for name, dtype in TABLE for _, text in scalar_text(OPS[name], dtype)]
    nodes = (n for text in texts for n in ast.walk(ast.parse(text.format("a", "b", "c"))))
    used = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    used |= {d.reassociated for d in OPS.values() if d.reassociated}
    assert used - set(math.functions()) == set()


EVERY_RUN = (DType.BOOL, DType.S32, DType.U32, DType.F32)
PARAMETERS = [
    pytest.param(
        dtype, part, marks=() if dtype in EVERY_RUN else pytest.mark.slow, id=f"{NAMES[dtype]}-{part}"
    )
    for dtype in DTYPES
    for part in range(PARTS)
]


@pytest.mark.parametrize(("dtype", "part"), PARAMETERS)
def test_expressions_are_the_references(dtype: DType, part: int) -> None:
    names = [name for name, of in TABLE if of is dtype][part::PARTS]
    choices = [(OPS[name], op, text) for name in names for op, text in scalar_text(OPS[name], dtype)]
    jobs = [(text, inputs(definition, op), NAMES[op.result.tensor.dtype]) for definition, op, text in choices]
    for (definition, op, _), (_, arrays, _), got in zip(choices, jobs, run_separate_loops(jobs), strict=True):
        assert definition.reference is not None
        with np.errstate(all="ignore"):
            (expected,) = definition.reference(op, *arrays)
        compare(got, np.asarray(expected), op)


def compare(got: np.ndarray, expected: np.ndarray, op: Op) -> None:
    dtype = op.result.tensor.dtype
    if not dtype.is_float:
        np.testing.assert_array_equal(got, expected, err_msg=op.name)
        return
    tolerance = max(
        TOLERANCE[v.tensor.dtype] for v in (*op.operands, op.result) if v.tensor.dtype in TOLERANCE
    )
    wide = [a.astype(np.float64) for a in (got, expected)]
    np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance, err_msg=op.name)
