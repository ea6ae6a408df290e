"""The numerics rule: an error against a float64 reference at most twice jax.jit's own, plus one ulp.

Integers and bools are exact. NaN and infinities stand where they stand in jax.jit's result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType

SLACK = 2.0  # times jax.jit's own error
F64_ULPS = 4.0  # for float64 results the reference is no more accurate than they are


def widen(graph: Graph, *, rounding: bool = False) -> Graph:
    """The same program with every float in float64; `rounding`: conversions still round to their dtype."""
    return _Widening(rounding).graph(graph)


class _Widening:
    def __init__(self, rounding: bool) -> None:
        self.rounding = rounding
        self.values: dict[Value, Value] = {}

    def value(self, v: Value) -> Value:
        if v not in self.values:
            t = v.tensor
            wide = TensorType(t.shape, DType.F64) if t.dtype.is_float else t
            self.values[v] = Value(wide)
        return self.values[v]

    def graph(self, graph: Graph) -> Graph:
        inputs = tuple(map(self.value, graph.inputs))
        ops = tuple(made for op in graph.ops for made in self.ops(op))
        return Graph(inputs, ops, tuple(map(self.value, graph.outputs)))

    def ops(self, op: Op) -> tuple[Op, ...]:
        wide = self.op(op)
        if not (self.rounding and op.name == "stablehlo.convert" and op.result.tensor.dtype.is_float):
            return (wide,)
        narrow = build.convert(wide.operands[0], op.result.tensor.dtype)
        return narrow, replace(wide, operands=narrow.results)

    def op(self, op: Op) -> Op:
        attrs = {
            k: v.astype(np.float64) if isinstance(v, np.ndarray) and DType.of(v.dtype).is_float else v
            for k, v in op.attrs.items()
        }
        operands, results = (tuple(map(self.value, vs)) for vs in (op.operands, op.results))
        regions = tuple(map(self.graph, op.regions))
        return replace(op, operands=operands, results=results, attrs=attrs, regions=regions)


def reference(graph: Graph, args: Sequence[np.ndarray], *, rounding: bool = False) -> list[np.ndarray]:
    """Every output, computed in float64."""
    wide = [a.astype(np.float64) if DType.of(a.dtype).is_float else a for a in args]
    return list(interpret(widen(graph, rounding=rounding), wide))


def references(graph: Graph, args: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, ...]]:
    """Per output: the float64 reference; every op rounded; only conversions rounded, as kernels do."""
    found = reference(graph, args), interpret(graph, args), reference(graph, args, rounding=True)
    return zip(*found, strict=True)


def difference(found: np.ndarray, expected: np.ndarray, exact: np.ndarray, *others: np.ndarray) -> str | None:
    """What is wrong with `found`, next to jax.jit's `expected` and the float64 reference `exact`.

    others: the program rounded in other places; their errors count like jax.jit's own, because XLA's choice
    of what to round, contract or reassociate is one among equals.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"expected {expected.dtype}{list(expected.shape)}, found {found.dtype}{list(found.shape)}"
    if not DType.of(found.dtype).is_float:
        return _exactly(found, expected)
    with np.errstate(all="ignore"):
        a, b, c, *d = (x.astype(np.float64) for x in (found, expected, exact, *others))
        return _closely(a, b, c, d, found.dtype)


def _exactly(found: np.ndarray, expected: np.ndarray) -> str | None:
    wrong = np.argwhere(found != expected)
    if not len(wrong):
        return None
    at = tuple(map(int, wrong[0]))
    return f"{len(wrong)} of {found.size} differ, first at {at}: expected {expected[at]}, found {found[at]}"


def _closely(
    found: np.ndarray,
    expected: np.ndarray,
    exact: np.ndarray,
    others: Sequence[np.ndarray],
    dtype: np.dtype[np.generic],
) -> str | None:
    same = _alike(found, expected)
    if (
        dtype.itemsize < 4
    ):  # kernels round f16 and bf16 at conversions only: jax.jit's NaN may be a rounding's
        same |= _alike(found, exact) & _alike(found, others[-1]) & ~np.isfinite(found)
    finite = np.isfinite(found) & np.isfinite(expected) & np.isfinite(exact)
    strange = ~same & ~finite
    if strange.any():
        return _describe("NaN or infinity", strange, found, expected, exact)
    own = np.abs(np.stack([expected, *others]) - exact)
    allowed = SLACK * np.where(np.isfinite(own), own, 0).max(axis=0) + ulp(exact, dtype) * (
        F64_ULPS if dtype == np.float64 else 1.0
    )
    largest = np.max(np.where(finite, allowed, 0), initial=0.0)
    wrong = ~same & (np.abs(found - exact) > np.maximum(allowed, _share(largest, exact)))
    return _describe("too far off", wrong, found, expected, exact) if wrong.any() else None


def _alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _share(largest: float, exact: np.ndarray) -> np.ndarray:
    """The worst error jax.jit makes in the array is allowed for elements of the same size."""
    size = np.max(np.abs(exact[np.isfinite(exact)]), initial=0.0)
    return largest * np.abs(exact) / size if size else np.zeros_like(exact)


def ulp(x: np.ndarray, dtype: np.dtype[np.generic]) -> np.ndarray:
    """Distance of neighbours of the dtype near x; denormals count as zero, as XLA's threads flush them."""
    info = ml_dtypes.finfo(dtype)
    tiny = float(info.smallest_normal)
    exponent = np.floor(np.log2(np.maximum(np.abs(x), tiny)))
    return np.asarray(np.maximum(np.exp2(exponent - int(info.nmant)), tiny))


def _describe(
    what: str, wrong: np.ndarray, found: np.ndarray, expected: np.ndarray, exact: np.ndarray
) -> str:
    at = tuple(map(int, np.argwhere(wrong)[0]))
    return (
        f"{what}: {int(wrong.sum())} of {wrong.size}, first at {at}:"
        f" found {found[at]!r}, jax.jit {expected[at]!r}, float64 {exact[at]!r}"
    )
