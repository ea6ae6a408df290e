"""What `compare` measures, and what the rule says of it."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jstitch.inspection.arrays import read_arrays, write_arrays
from jstitch.inspection.compare import compare, failed
from jstitch.inspection.numerics import difference, program_difference
from jstitch.inspection.reference import Reference, interpreted_seconds, make_reference
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType

DTYPES = [np.bool_, np.int8, np.uint32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5, 7)], ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, np.complex64], ids=lambda d: np.dtype(d).name)
def test_equal_arrays_are_the_same(dtype: type, shape: tuple[int, ...]) -> None:
    x = (RANDOM.standard_normal(shape) * 3).astype(dtype)
    (output,) = compare([x], [x.copy()]).outputs
    assert output.wrong is None
    assert (output.differing, output.max_abs, output.first, output.elements) == (0, 0.0, None, x.size)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_ulps(dtype: type) -> None:
    """One, five and twenty steps from 1.5."""
    xla = np.full(8, 1.5, dtype)
    eps = float(ml_dtypes.finfo(dtype).eps)
    ours = (np.float64(1.5) + eps * np.array([0, 0, 0, 0, 0, 1, 5, 20])).astype(dtype)
    ulps = compare([ours], [xla]).outputs[0].ulps
    assert ulps is not None
    assert (ulps.most, ulps.median) == (20.0, 5.0)
    assert ulps.above == {1: 0.25, 4: 0.25, 16: 0.125}


def test_nan_and_infinity() -> None:
    nan, inf = np.nan, np.inf
    xla = np.array([nan, nan, inf, inf, 1.0, 2.0], np.float32)
    (output,) = compare([np.array([nan, 1.0, inf, -inf, nan, 2.0], np.float32)], [xla]).outputs
    assert (output.nans, output.infs, output.differing) == (2, 1, 3)
    assert output.first is not None
    assert output.first.index == (1,)
    assert output.wrong is not None
    assert compare([xla.copy()], [xla]).same


def test_the_first_difference_in_row_major_order() -> None:
    xla = np.zeros((3, 4), np.int32)
    ours = xla.copy()
    ours[1, 2] = ours[2, 0] = 5
    (output,) = compare([ours], [xla]).outputs
    assert output.first is not None
    assert (output.first.index, output.first.ours, output.first.xla) == ((1, 2), "5", "0")
    assert output.ulps is None
    assert output.max_abs == 5.0


def test_integers_that_float64_cannot_tell_apart() -> None:
    xla = np.array([1 << 60], np.int64)
    (output,) = compare([xla + 1], [xla]).outputs
    assert output.differing == 1
    assert output.wrong is not None


def test_another_type_or_no_result() -> None:
    x = np.zeros((2, 3), np.float32)
    assert "tensor<2x3xf32>" in (compare([x.astype(np.float16)], [x]).complaint or "")
    assert "tensor<3x2xf32>" in (compare([x.T], [x]).complaint or "")
    assert not failed("it was out of memory").same


def test_without_a_reference() -> None:
    """Within 16 ulps of the largest element."""
    xla = np.array([100.0, 1e-3], np.float32)
    ulp = np.spacing(np.float32(64.0), dtype=np.float32)
    assert compare([xla + np.float32([0, 10 * ulp])], [xla]).same
    assert not compare([xla + np.float32([0, 20 * ulp])], [xla]).same
    assert not compare([np.array([100.0, np.nan], np.float32)], [xla]).same
    z = np.array([1 + 1j], np.complex64)
    assert compare([z * np.complex64(1 + 1e-7)], [z]).same
    assert not compare([z.conj()], [z]).same


def square(dtype: DType) -> tuple[Graph, Value]:
    x = Value(TensorType((64,), dtype))
    y = build.elementwise("stablehlo.multiply", x, x)
    return Graph((x,), (y,), y.results), x


def no_run(graph: Graph, args: object) -> list[np.ndarray]:
    raise AssertionError("NumPy is quick enough")


def test_who_is_right() -> None:
    graph, _ = square(DType.F32)
    x = RANDOM.standard_normal(64).astype(np.float32)
    reference = make_reference(graph, [x], no_run)
    right, wrong = x * x, x * x + np.float32(1e-3)
    assert compare([right], [wrong], reference).outputs[0].nearer == "ours"
    comparison = compare([wrong], [right], reference)
    assert comparison.outputs[0].nearer == "xla"
    assert not comparison.same
    assert compare([right], [right], reference).same
    assert json.loads(json.dumps(comparison.as_dict()))["outputs"][0]["same"] is False


def test_a_reference_that_takes_numpy_long_is_xlas() -> None:
    x = Value(TensorType((8192, 8192), DType.F32))
    ops = [build.elementwise("stablehlo.exponential", x)]
    for _ in range(7):
        ops.append(build.elementwise("stablehlo.exponential", ops[-1].result))
    graph = Graph((x,), tuple(ops), ops[-1].results)
    assert interpreted_seconds(graph) > 6.0
    asked: list[Graph] = []

    def run(graph: Graph, args: object) -> list[np.ndarray]:
        asked.append(graph)
        return [np.zeros(1)]

    assert make_reference(graph, [np.zeros((1, 1), np.float32)], run).how == "XLA in float64"
    assert [g.inputs[0].tensor.dtype for g in asked] == [DType.F64, DType.F32, DType.F64]


def test_no_reference_for_what_only_xla_knows() -> None:
    x = Value(TensorType((2,), DType.F32))
    op = Op("some.call", (x,), (Value(x.type),), loc="model.py:3")
    found = make_reference(Graph((x,), (op,), op.results), [np.zeros(2, np.float32)], no_run)
    assert found == Reference("no float64 reference: some.call at model.py:3 is only known to XLA", None)


def test_errors_in_other_places_are_right_and_larger_ones_wrong() -> None:
    """By element they are wrong already: a small element with the error of its large neighbours."""
    exact = np.linspace(-1, 1, 256)
    noise = RANDOM.uniform(-1, 1, (3, 256)) * 1e-6
    ours, xla, other = (exact + noise).astype(np.float32)
    assert difference(ours, xla, exact, other) is not None
    assert program_difference(ours, xla, exact, other) is None
    shifted = (exact + noise[0] + 1e-5).astype(np.float32)
    assert program_difference(shifted, xla, exact, other) is not None
    block = ours.reshape(4, 64).copy()
    block[2, 5] += np.float32(1e-5)
    four = [a.reshape(4, 64) for a in (xla, exact, other)]
    assert "first at (2, 5)" in (program_difference(block, *four) or "")


def test_an_integer_may_be_what_a_rounding_makes_it() -> None:
    xla, nearby = np.array([3, 4]), np.array([3, 5])
    assert program_difference(np.array([3, 5]), xla, xla, nearby) is None
    assert program_difference(np.array([2, 5]), xla, xla, nearby) is not None


# -- files ------------------------------------------------------------------------------------------------

TYPES = [DType.BF16, DType.F8E4M3FN, DType.F8E5M2, DType.S4, DType.F16, DType.BOOL, DType.S32, DType.F64]


def test_every_dtype_goes_through_a_file(tmp_path: Path) -> None:
    arrays = [np.array([[0, 1, 2]]).astype(t.numpy) for t in TYPES]
    types = [TensorType((1, 3), t) for t in TYPES]
    write_arrays(tmp_path / "a.npz", arrays)
    for a, b in zip(read_arrays(tmp_path / "a.npz", types), arrays, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_bits_and_names(tmp_path: Path) -> None:
    x = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    np.savez(tmp_path / "a.npz", arg1=np.int32(3), arg0=x.view(np.uint16))
    types = [TensorType((2,), DType.BF16), TensorType((), DType.S32)]
    found = read_arrays(tmp_path / "a.npz", types)
    np.testing.assert_array_equal(found[0], x)
    assert found[1] == 3


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: object, *arrays: np.ndarray) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        write_arrays(tmp_path / "a.npz", [np.zeros(3)])
    assert not list(tmp_path.iterdir())
