"""A scalar function is one row of a table: with it, every machine that runs kernels knows the function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from cpu_loop import compile_loop

from jstitch.codegen.cpu.expression import Value as Written
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.intrinsics import INTRINSICS, Intrinsic, Takes, define_intrinsic
from jstitch.codegen.print_expr import print_expr
from jstitch.ir.expr import Const, Expr, Number, Ref, call, refs, replace_refs, variables
from jstitch.ir.graph import Graph, Value
from jstitch.ir.index import Dynamic, Index, Var, add, const, mul, var
from jstitch.ir.ops import OPS, build
from jstitch.ir.ops.elementwise import by_dtype
from jstitch.ir.types import DType, TensorType
from tests.codegen.cuda import stitched
from tests.codegen.cuda.stitched import PROFILES, interpreted, simulated, stitch

X = np.linspace(-3.0, 3.0, 600, dtype=np.float32)


def written(x: Written) -> Written:
    """x / (1 + |x|), in LLVM IR that both targets take."""
    return x / (x.abs() + 1.0)


def meaning(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / (np.abs(x) + np.float32(1.0)))


@pytest.fixture
def softsign(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A row for a function that nobody had; an op, tanh, is computed by it."""
    define_intrinsic(Intrinsic("softsign", 1, Takes.FLOATS, meaning, written, written, cycles=3.0))
    monkeypatch.setitem(OPS, "stablehlo.tanh", replace(OPS["stablehlo.tanh"], scalar=by_dtype("softsign")))
    yield "softsign"
    del INTRINSICS["softsign"]


def test_a_row_is_enough(softsign: str) -> None:
    x = Value(TensorType(X.shape, DType.F32))
    op = build.elementwise("stablehlo.tanh", x)
    turned = build.elementwise("stablehlo.negate", op.result)
    made = stitch(Graph((x,), (op, turned), turned.results), PROFILES["h200"])
    (kernel,) = made.kernels
    found = {
        "CPU": -compile_loop(f"{softsign}({{0}})", ("f32",), "f32")(X),
        "interpreter": interpret_kernel(kernel, [X])[0],
        "simulator": made.run([X], simulated)[0],
    }
    if stitched.WHY_NO_PTX is None:
        found["PTX"] = made.run([X], interpreted)[0]
    for machine, values in found.items():
        np.testing.assert_allclose(values, -meaning(X), rtol=1e-6, err_msg=machine)


def test_a_name_has_one_row() -> None:
    with pytest.raises(ValueError, match="'exp' is defined twice"):
        define_intrinsic(INTRINSICS["exp"])


I8, READ = Var("i", 8), Dynamic("v3", ())


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Const(True, DType.BOOL), "True"),
        (Const(-1, DType.S64), "int64(-1)"),
        (Const(-0.0, DType.F32), "float32(-0.0)"),
        (Const(float("-inf"), DType.F64), "float64(-inf)"),
        (call("neg", Ref("v0")), "-v0"),
        (call("div", Ref("v0"), Const(2.0, DType.F32)), "v0 / float32(2.0)"),
        (call("mul", call("add", Ref("a"), Ref("b")), Ref("c")), "(a + b) * c"),
        (call("exp", call("sub", Ref("a"), Ref("b"))), "exp(a - b)"),
        (call("ge", Number(add(var(I8), const(1))), Number(const(3))), "(i + 1) >= 3"),
        (call("convert_f32", Number(mul(var(READ), 4))), "convert_f32(int64(int64(v3) * 4))"),
    ],
)
def test_expressions_as_text(expression: Expr, text: str) -> None:
    assert print_expr(expression) == text


def test_what_an_expression_reads() -> None:
    e = call("select", call("lt", Number(add(var(I8), var(READ))), Number(const(2))), Ref("v1"), Ref("v2"))
    assert sorted(refs(e)) == ["v1", "v2", "v3"]
    assert list(variables(e)) == ["i"]
    renamed = replace_refs(e, lambda name: Ref(f"{name}_1"))
    assert sorted(refs(renamed)) == ["v1_1", "v2_1", "v3_1"]
    known = replace_refs(Number(var(READ)), lambda name: Const(5, DType.S32))
    assert known == Number(Index(5))


def test_constants_that_compare_equal_and_are_not() -> None:
    zero, nan = Const(0.0, DType.F32), Const(float("nan"), DType.F32)
    assert zero != Const(-0.0, DType.F32)
    assert zero != Const(0.0, DType.F64)
    assert nan == Const(float("nan"), DType.F32)
    assert len({nan, Const(float("nan"), DType.F32), zero}) == 2
