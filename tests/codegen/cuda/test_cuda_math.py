"""Every function of the CUDA vocabulary, as PTX, against what codegen/vocabulary says that it means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cuda_kernels import DTYPES, NUMPY, TARGETS, assemble, elementwise, needs_numba_cuda, ptx, run_elementwise

from jstitch.codegen.cuda import math
from jstitch.codegen.intrinsics import INTRINSICS, Takes

pytestmark = needs_numba_cuda
INTEGERS = [f"{letter}{width}" for letter in "su" for width in (8, 16, 32, 64)]
# an LLVM 7 target without bf16 instructions, the usual one, one of NVVM's newer dialect
GENERATIONS = ((7, 5), (9, 0), (12, 0))
UNARY = {
    "integer": ("ineg", "iabs", "isign", "not_", "popcnt", "clz"),
    "bool": ("not_",),
    "float": (
        *("abs_", "sign", "floor", "ceil", "round_half_even", "round_half_away", "sqrt", "rsqrt", "cbrt"),
        *("exp", "expm1", "log", "log1p", "tanh", "logistic", "sinh", "cosh", "asinh", "acosh"),
        *("atanh", "sin", "cos", "tan", "asin", "acos", "atan", "erf", "erfc", "erf_inv", "lgamma"),
        *("digamma", "is_finite"),
    ),
}
BINARY = {
    "integer": (
        *("iadd", "isub", "imul", "idiv", "irem", "and_", "or_", "xor", "shl", "shr_logical"),
        *("shr_arithmetic", "maximum", "minimum"),
    ),
    "bool": ("and_", "or_", "xor", "maximum", "minimum"),
    "float": (
        *("maximum", "minimum", "max_reassoc", "min_reassoc", "add_reassoc", "mul_reassoc", "atan2"),
        *("pow_", "remainder_", "next_after", "mul_rounded"),
    ),
}
OPERATORS = {
    **{"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "<": np.less, "<=": np.less_equal},
    **{">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal},
}
TOLERANCE = {"f32": 4e-6, "f64": 1e-12}
CROSSING = ("lgamma", "digamma")  # have zeros where both answers cancel: the error is absolute there
FLOAT_EDGES = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.5, 2.5, -2.5, 1e-3, -100.0, 127.0, 128.0, 255.0, 256.0),
    *(-129.0, 32767.0, -32769.0, 65535.0, 65536.0, 2147483648.0, -2147483649.0, 4294967296.0, 9.3e18, 1.9e19),
    *(-9.3e18, 448.0, 464.0, 465.0, 57344.0, 61440.0, 65504.0, 65520.0, 3e38, -3e38, 1e-40, 6e-8, np.inf),
    *(-np.inf, np.nan, 1 / 3, -2 / 3, 10.3, 2.0**-9, 2.0**-10, 1.5 * 2.0**-9, 1.0625, 1.00390625, 1.01171875),
)
INTEGER_EDGES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 100)


def kind(dtype: str) -> str:
    return "bool" if dtype == "bool" else "integer" if dtype in INTEGERS else "float"


def edges(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.array([False, True])
    if dtype in ("f8e4m3fn", "f8e5m2"):
        return np.arange(256, dtype=np.uint8).view(NUMPY[dtype])
    if kind(dtype) == "float":
        return np.array(FLOAT_EDGES).astype(NUMPY[dtype])
    info = np.iinfo(NUMPY[dtype])
    ends = (info.max, info.max - 1, info.max // 2, info.min, info.min + 1, -1, -2, -7)
    return np.array([x for x in (*INTEGER_EDGES, *ends) if info.min <= x <= info.max], NUMPY[dtype])


def pairs(dtype: str) -> list[np.ndarray]:
    values = edges(dtype)
    return [np.repeat(values, values.size), np.tile(values, values.size)]


def widened(values: Any) -> np.ndarray:
    """Narrow floats as the float32 that kernels compute with."""
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype in (NUMPY["f16"], NUMPY["bf16"]) else array


def check(name: str, got: np.ndarray, expected: Any, inputs: Sequence[np.ndarray], tolerance: float) -> None:
    """Equal, signs of zeros too; or near, where a tolerance is given."""
    got, wanted = _comparable(got), _comparable(np.asarray(expected))
    wanted = wanted.astype(got.dtype)
    if got.dtype.kind != "f":
        right = got == wanted
    else:
        right = (got == wanted) & (np.signbit(got) == np.signbit(wanted)) | np.isnan(got) & np.isnan(wanted)
        floor = tolerance if name.split()[0] in CROSSING else 1e-37
        right |= (tolerance > 0) & np.isclose(got, wanted, rtol=tolerance, atol=floor)
    wrong = np.flatnonzero(~right)
    where = [tuple(x[k] for x in inputs) for k in wrong[:3]]
    assert not wrong.size, f"{name} at {where}: {got[wrong[:3]]}, expected {wanted[wrong[:3]]}"


def _comparable(values: np.ndarray) -> np.ndarray:
    return values if values.dtype.kind in "biu" else values.astype(np.float64)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def same(names: Sequence[str], inputs: Sequence[np.ndarray], capability: tuple[int, int]) -> None:
    """The functions of the inputs are those of the vocabulary."""
    dtype = DTYPES[inputs[0].dtype]
    operands = ", ".join(f"{{{k}}}" for k in range(len(inputs)))
    results = [(f"{n}({operands})", "bool" if n == "is_finite" else dtype) for n in names]
    for name, got in zip(names, run_elementwise(results, inputs, capability), strict=True):
        expected = [known(name, *values) for values in zip(*inputs, strict=True)]
        check(f"{name} {dtype}", got, expected, inputs, TOLERANCE.get(dtype, 0.0))


def known(name: str, *values: Any) -> Any:
    """What the vocabulary says, except where the newer XLA and C agree with each other and not with it."""
    if name == "digamma" and values[0] == 0:
        return values[0] * 0 - np.inf
    if name == "pow_" and values[0] == -np.inf and values[1] == 0.5:
        return values[0] * -1
    if name == "lgamma":
        return values[0].dtype.type(INTRINSICS[name].reference(np.float64(values[0])))
    return INTRINSICS[name].reference(*values)


@pytest.mark.parametrize("capability", GENERATIONS)
@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_integers(dtype: str, capability: tuple[int, int]) -> None:
    same(UNARY[kind(dtype)], [edges(dtype)], capability)
    same(BINARY[kind(dtype)], pairs(dtype), capability)


@pytest.mark.parametrize("capability", GENERATIONS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_floats(dtype: str, capability: tuple[int, int]) -> None:
    dense = (np.linspace(-6, 6, 120), np.linspace(0.001, 30, 60), np.linspace(-1, 1, 60))
    same(UNARY["float"], [np.concatenate([edges(dtype), *dense]).astype(NUMPY[dtype])], capability)
    same(BINARY["float"], pairs(dtype), capability)


@pytest.mark.parametrize("capability", GENERATIONS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "s32", "u8", "bool"])
def test_operators(dtype: str, capability: tuple[int, int]) -> None:
    names = [n for n in OPERATORS if n not in "+-*/" or kind(dtype) == "float"]
    inputs = pairs(dtype)
    results = [(f"{{0}} {n} {{1}}", dtype if n in "+-*/" else "bool") for n in names]
    for name, got in zip(names, run_elementwise(results, inputs, capability), strict=True):
        check(f"{name} {dtype}", got, OPERATORS[name](*inputs), inputs, 3e-7 if name == "/" else 0.0)


@pytest.mark.parametrize("capability", GENERATIONS)
@pytest.mark.parametrize("source", NUMPY)
def test_conversions(source: str, capability: tuple[int, int]) -> None:
    x = edges(source)
    if source in ("f32", "f64"):
        random = np.random.default_rng(0)
        x = np.concatenate([x, random.normal(size=500) * np.exp2(random.integers(-30, 30, 500))])
        x = x.astype(NUMPY[source])
    results = [(f"convert_{target}({{0}})", target) for target in NUMPY]
    for (_, target), got in zip(results, run_elementwise(results, [x], capability), strict=True):
        function = INTRINSICS[f"convert_{target}"].reference
        check(f"{source} -> {target}", got, [function(v) for v in _wide(x)], [x], 0.0)


def _wide(x: np.ndarray) -> np.ndarray:
    """What a load gives a kernel."""
    return x.astype(np.float32) if x.dtype.kind in "fV" and x.dtype.itemsize < 4 else x


@pytest.mark.parametrize("capability", GENERATIONS)
def test_rounding_to_tf32(capability: tuple[int, int]) -> None:
    """By an instruction, and by arithmetic where there is none; halves go away from zero."""
    random = np.random.default_rng(0)
    x = random.normal(size=500) * np.exp2(random.integers(-30, 30, 500))
    halves = np.array([1 + 2.0**-11, -1 - 2.0**-11, 1 + 3 * 2.0**-11, 2049, 2047.5])
    x = np.concatenate([edges("f32"), x, halves]).astype(np.float32)
    (got,) = run_elementwise([("convert_tf32({0})", "f32")], [x], capability)
    check("convert_tf32", got, [INTRINSICS["convert_tf32"].reference(v) for v in x], [x], 0.0)
    finite = np.isfinite(x) & (np.abs(x) > 1e-37)
    assert (np.abs(got - x)[finite] <= np.abs(x[finite]) * 2.0**-11).all()
    assert (got[-5:] == np.float32([1 + 2.0**-10, -1 - 2.0**-10, 1 + 2 * 2.0**-10, 2050, 2048])).all()


@pytest.mark.parametrize("source", [*INTEGERS, "f32", "f64"])
def test_bitcasts(source: str) -> None:
    x = edges(source)
    targets = [d for d in (*INTEGERS, "f32", "f64") if NUMPY[d].itemsize == x.dtype.itemsize]
    results = [(f"bitcast_{target}({{0}})", target) for target in targets]
    for target, got in zip(targets, run_elementwise(results, [x]), strict=True):
        np.testing.assert_array_equal(got, x.view(NUMPY[target]))


@pytest.mark.parametrize("dtype", ["f32", "s8", "u64", "bool"])
def test_select(dtype: str) -> None:
    x, y = pairs(dtype)
    (got,) = run_elementwise([("select({0} < {1}, {0}, {1})", dtype)], [x, y])
    np.testing.assert_array_equal(got, np.where(x < y, x, y))


def test_the_vocabulary_is_that_of_the_other_target_and_more() -> None:
    tested = {n for names in (*UNARY.values(), *BINARY.values()) for n in names}
    known = math.function_names()
    scalar = {n for n in known & set(INTRINSICS) if not n.startswith(("convert_", "bitcast_"))}
    only_cpu = {"exp_nonpositive", "divide_invariant"}  # that target's passes make them
    words = {"low_bf16", "high_bf16"}  # of its pairs
    assert scalar - tested - only_cpu == {"select", "quotient", "remainder_pos", "clamp_index"}
    operators = {n for n, row in INTRINSICS.items() if row.takes is Takes.OPERATORS}
    assert set(INTRINSICS) - {f"bitcast_{d}" for d in NUMPY} - operators - words <= known


def test_names_can_be_imported() -> None:
    assert math.exp is math.find_function("exp")
    assert math.registers_f32 == "registers_f32"
    with pytest.raises(AttributeError, match="nothing_like_it"):
        math.nothing_like_it  # noqa: B018


@pytest.mark.parametrize("capability", TARGETS)
def test_functions_assemble_without_local_memory(capability: tuple[int, int]) -> None:
    """All but f64 sine, cosine and tangent, whose reduction of huge arguments libdevice does in memory."""
    results = [(f"{n}({{0}})", "bool" if n == "is_finite" else "f32") for n in UNARY["float"]]
    found = assemble(ptx(elementwise(results, ["f32"], 1000), capability), capability)
    assert (found.stack, found.spills) == (0, 0)


def test_divisions_of_f32_are_short() -> None:
    text = ptx(elementwise([("{0} / {1}", "f32"), ("{0} / float32(8.0)", "f32")], ["f32", "f32"], 100))
    assert text.count("div.full.f32") == 1
    assert "0f3E000000" in text  # 1/8
