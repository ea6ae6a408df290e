"""What the machines' results are held to: `tests.fuzz.compare`'s references, and sums in float32.

The Graph interpreter sums in float64, more accurately than any target does. Sums in float32, in the orders
that targets sum in, are programs "rounded in other places", whose errors count: neighbours first, so many at
a time; then so many interleaved partial sums; these in pairs. jax.jit itself, and what CUDA's manual
allows its special functions, are asked where these do not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import jax
import numpy as np

from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.types import DType
from tests.fuzz.compare import difference, references
from tests.fuzz.programs import as_jax

Arrays = Sequence[np.ndarray]
ORDERS = ((1, 1), (1, 4), (1, 32), (1, 256), (2, 1), (4, 1), (4, 8), (8, 4))  # neighbours, partial sums
SUMS = ("stablehlo.add", "stablehlo.subtract")
# Largest errors of float32 functions, in ulps, by the CUDA programming guide's tables.
ULPS = {
    **dict.fromkeys(("stablehlo.divide", "stablehlo.rsqrt", "stablehlo.tanh", "stablehlo.sine"), 2),
    **dict.fromkeys(("stablehlo.cosine", "stablehlo.exponential", "chlo.atan", "chlo.cosh", "chlo.erf"), 2),
    **dict.fromkeys(("chlo.erf_inv", "chlo.acos", "chlo.atanh", "chlo.sinh", "chlo.asinh"), 3),
    **dict.fromkeys(("stablehlo.atan2", "stablehlo.logistic"), 3),
    **dict.fromkeys(("stablehlo.tan", "chlo.asin", "chlo.acosh", "chlo.erfc", "stablehlo.power"), 4),
    **dict.fromkeys(("stablehlo.log", "stablehlo.log_plus_one", "stablehlo.exponential_minus_one"), 1),
    **dict.fromkeys(("stablehlo.cbrt",), 1),
    **dict.fromkeys(("chlo.lgamma",), 6),
}


class Expected:
    """References of one graph for one set of arguments, made once for all machines.

    undecided: an argmax or argmin sees NaNs, of which jax.jit names any, too.
    """

    def __init__(self, graph: Graph, args: Arrays) -> None:
        self.graph, self.args = graph, args
        self.undecided = _any_choice(graph, args)
        self.plain = interpret(graph, args)
        sums = (summed(graph, args, *order) for order in ORDERS)
        self.others = list(zip(*zip(*references(graph, args), strict=True), *sums, strict=True))

    def wrong(self, found: Arrays) -> str | None:
        """What is wrong with the outputs of a machine, None when they keep the numerics rule."""
        return self._wrong(found, []) and self._wrong(found, self.more)

    @cached_property
    def more(self) -> list[Arrays]:
        """References that cost more, or are seldom needed."""
        with np.errstate(all="ignore"):
            nudges = [nudged(self.graph, self.args, direction) for direction in (np.inf, -np.inf)]
        return [self.jitted, *nudges]

    @cached_property
    def jitted(self) -> Arrays:
        """What jax.jit makes of the program on this machine."""
        with jax.enable_x64(True):
            return [np.asarray(x) for x in jax.jit(as_jax(self.graph))(*self.args)]

    def _wrong(self, found: Arrays, more: Sequence[Arrays]) -> str | None:
        for n, arrays in enumerate(zip(found, self.plain, self.others, *more, strict=True)):
            ours, plain, (exact, rounded, converted, *sums), *jitted = arrays
            message = difference(ours, plain, exact, rounded, *sums, *jitted, converted)
            if message is not None:
                return f"output {n}: {message}"
        return None


def summed(graph: Graph, args: Arrays, neighbours: int, partials: int) -> Arrays:
    """The graph's outputs with float sums made in that order."""

    def run(op: Op, given: Arrays) -> Arrays:
        return [_sum(op, neighbours, partials, *given)] if _is_sum(op) else _plain(op, given)

    return _evaluate(graph, args, run)


def nudged(graph: Graph, args: Arrays, direction: float) -> Arrays:
    """The graph's outputs with every special function off by as much as libdevice's may be.

    Sums of products are off by what a fused multiply-add does not round.
    """
    products = {op.results[0] for op in graph.ops if op.name == "stablehlo.multiply"}

    def run(op: Op, given: Arrays) -> Arrays:
        found = list(_plain(op, given))
        single = op.results[0].tensor.dtype.compute is DType.F32
        if op.name in SUMS and single and not products.isdisjoint(op.operands):
            largest = np.maximum(*(np.abs(x.astype(np.float32)) for x in given))
            step = np.copysign(np.spacing(largest), np.float32(direction))
            return [(x.astype(np.float32) + step).astype(x.dtype) for x in found]
        for _ in range(ULPS.get(op.name, 0) if found[0].dtype == np.float32 else 0):
            found = [np.nextafter(x, np.float32(direction)) for x in found]
        return found

    return _evaluate(graph, args, run)


def _evaluate(graph: Graph, args: Arrays, run: Callable[[Op, Arrays], Arrays]) -> Arrays:
    env = dict(zip(graph.inputs, args, strict=True))
    for op in graph.ops:
        env.update(zip(op.results, run(op, [env[v] for v in op.uses]), strict=True))
    return [env[v] for v in graph.outputs]


def _plain(op: Op, given: Arrays) -> Arrays:
    return interpret(Graph(op.uses, (op,), op.results), given)


def _any_choice(graph: Graph, args: Arrays) -> bool:
    joint = [op.operands[0] for op in graph.ops if op.name == "stablehlo.reduce" and len(op.results) > 1]
    inside = interpret(Graph(graph.inputs, graph.ops, tuple(joint)), args) if joint else ()
    return any(bool(np.isnan(x.astype(np.float64)).any()) for x in inside)


def _is_sum(op: Op) -> bool:
    reduces = op.name == "stablehlo.reduce" and op.attrs.get("monoid") == "stablehlo.add"
    return reduces and op.result.tensor.dtype.is_float


def _sum(op: Op, neighbours: int, partials: int, x: np.ndarray, init: np.ndarray) -> np.ndarray:
    dtype = op.result.tensor.dtype
    dims: tuple[int, ...] = op.attrs["dimensions"]
    wide = np.float64 if dtype is DType.F64 else np.float32
    kept = [n for d, n in enumerate(x.shape) if d not in dims]
    rows = np.moveaxis(x, dims, range(len(dims))).reshape(-1, *kept).astype(wide)
    with np.errstate(all="ignore"):
        rows = _in_steps(_in_steps(rows, neighbours, 1), partials, 0)
        while len(rows) > 1:
            rows = rows[: len(rows) // 2] + rows[len(rows) // 2 :]
        return np.asarray(rows[0] + init.astype(wide)).astype(dtype.numpy)


def _in_steps(rows: np.ndarray, count: int, axis: int) -> np.ndarray:
    """Sums of `count` neighbours (axis 1), or `count` sums of what stands that far apart (axis 0)."""
    missing = -len(rows) % count if len(rows) else count
    padded = np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])
    parts = padded.reshape(-1, count, *rows.shape[1:])
    return np.asarray(np.add.accumulate(parts, axis=axis).take(-1, axis=axis))
