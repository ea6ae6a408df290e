"""The numerics rule: an error against a float64 reference at most twice jax.jit's own, plus one ulp.

Integers and bools are exact. NaN and infinities stand where they stand in jax.jit's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.types import DType, TensorType

SLACK = 2.0  # times jax.jit's own error
F64_ULPS = 4.0  # for float64 results the reference is no more accurate than they are


def widen(graph: Graph) -> Graph:
    """The same program with every float in float64."""
    return _Widening().graph(graph)


class _Widening:
    def __init__(self) -> None:
        self.values: dict[Value, Value] = {}

    def value(self, v: Value) -> Value:
        if v not in self.values:
            t = v.tensor
            wide = TensorType(t.shape, DType.F64) if t.dtype.is_float else t
            self.values[v] = Value(wide)
        return self.values[v]

    def graph(self, graph: Graph) -> Graph:
        inputs = tuple(map(self.value, graph.inputs))
        ops = tuple(map(self.op, graph.ops))
        return Graph(inputs, ops, tuple(map(self.value, graph.outputs)))

    def op(self, op: Op) -> Op:
        attrs = {
            k: v.astype(np.float64) if isinstance(v, np.ndarray) and DType.of(v.dtype).is_float else v
            for k, v in op.attrs.items()
        }
        operands, results = (tuple(map(self.value, vs)) for vs in (op.operands, op.results))
        regions = tuple(map(self.graph, op.regions))
        return replace(op, operands=operands, results=results, attrs=attrs, regions=regions)


def reference(graph: Graph, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Every output, computed in float64."""
    wide = [a.astype(np.float64) if DType.of(a.dtype).is_float else a for a in args]
    return list(interpret(widen(graph), wide))


def difference(found: np.ndarray, expected: np.ndarray, exact: np.ndarray, other: np.ndarray) -> str | None:
    """What is wrong with `found`, next to jax.jit's `expected` and the float64 reference `exact`.

    other: the program computed op by op, each rounded; its error counts like jax.jit's own, because XLA's
    choice of what to contract or reassociate is one among equals.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"expected {expected.dtype}{list(expected.shape)}, found {found.dtype}{list(found.shape)}"
    if not DType.of(found.dtype).is_float:
        return _exactly(found, expected)
    with np.errstate(all="ignore"):
        a, b, c, d = (x.astype(np.float64) for x in (found, expected, exact, other))
        return _closely(a, b, c, d, found.dtype)


def _exactly(found: np.ndarray, expected: np.ndarray) -> str | None:
    wrong = np.argwhere(found != expected)
    if not len(wrong):
        return None
    at = tuple(map(int, wrong[0]))
    return f"{len(wrong)} of {found.size} differ, first at {at}: expected {expected[at]}, found {found[at]}"


def _closely(
    found: np.ndarray, expected: np.ndarray, exact: np.ndarray, other: np.ndarray, dtype: np.dtype[np.generic]
) -> str | None:
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    finite = np.isfinite(found) & np.isfinite(expected) & np.isfinite(exact)
    strange = ~same & ~finite
    if strange.any():
        return _describe("NaN or infinity", strange, found, expected, exact)
    own = np.abs(np.stack([expected, other]) - exact)
    allowed = SLACK * np.where(np.isfinite(own), own, 0).max(axis=0) + ulp(exact, dtype) * (
        F64_ULPS if dtype == np.float64 else 1.0
    )
    largest = np.max(np.where(finite, allowed, 0), initial=0.0)
    wrong = ~same & (np.abs(found - exact) > np.maximum(allowed, _share(largest, exact)))
    return _describe("too far off", wrong, found, expected, exact) if wrong.any() else None


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
