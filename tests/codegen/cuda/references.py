"""What the machines' results are held to: `jstitch.inspection.reference`'s references, and sums in float32.

The Graph interpreter sums in float64, more accurately than any target does. Sums in float32, in the orders
that targets sum in, are programs "rounded in other places", whose errors count: neighbours first, so many at
a time; then so many interleaved partial sums; these in pairs. jax.jit itself, what CUDA's manual allows its
special functions, outputs read back from memory, and sums that start from an element, as those of one
pass do, are asked where these do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import jax
import numpy as np

from jstitch.inspection.numerics import difference
from jstitch.inspection.reference import reference, references
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import build
from jstitch.ir.types import DType
from tests.fuzz.programs import as_jax

Arrays = Sequence[np.ndarray]
ORDERS = ((1, 1), (1, 4), (1, 32), (1, 256), (2, 1), (4, 1), (4, 8), (8, 4))  # neighbours, partial sums
SUMS = ("stablehlo.add", "stablehlo.subtract")
CROSSED = ("stablehlo.subtract", "stablehlo.negate")  # larger, the smaller the last operand is
# Largest errors of float32 functions, in ulps, by the CUDA programming guide's tables.
ULPS = {
    **dict.fromkeys(("stablehlo.divide", "stablehlo.rsqrt", "stablehlo.tanh", "stablehlo.sine"), 2),
    **dict.fromkeys(("stablehlo.cosine", "stablehlo.exponential", "chlo.atan", "chlo.cosh", "chlo.erf"), 2),
    **dict.fromkeys(("chlo.erf_inv", "chlo.acos", "chlo.atanh", "chlo.sinh", "chlo.asinh"), 3),
    **dict.fromkeys(("stablehlo.atan2", "stablehlo.logistic"), 3),
    **dict.fromkeys(
        ("stablehlo.tan", "chlo.tan", "chlo.asin", "chlo.acosh", "chlo.erfc", "stablehlo.power"), 4
    ),
    **dict.fromkeys(("stablehlo.log", "stablehlo.log_plus_one", "stablehlo.exponential_minus_one"), 1),
    **dict.fromkeys(("stablehlo.cbrt",), 1),
    **dict.fromkeys(("chlo.lgamma",), 6),
}
ULPS64 = {
    **dict.fromkeys(("stablehlo.rsqrt", "stablehlo.cbrt", "stablehlo.exponential"), 1),
    **dict.fromkeys(("stablehlo.log", "stablehlo.log_plus_one", "stablehlo.exponential_minus_one"), 1),
    **dict.fromkeys(("stablehlo.sine", "stablehlo.cosine", "stablehlo.tan", "chlo.tan", "chlo.atan"), 2),
    **dict.fromkeys(("stablehlo.atan2", "stablehlo.power", "stablehlo.tanh", "stablehlo.logistic"), 2),
    **dict.fromkeys(("chlo.asin", "chlo.acos", "chlo.sinh", "chlo.cosh", "chlo.atanh"), 2),
    **dict.fromkeys(("chlo.asinh", "chlo.acosh"), 3),
}
ROOTS = -10.001, -2.264  # of lgamma: between them its errors are those of numbers of size 1


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
            others = shifted(self.graph, self.args), summed(self.graph, self.args, 1, 1, backwards=True)
            kept = reference(stored(self.graph), self.args, rounding=True)
            return [self.jitted, kept, *others, *nudged(self.graph, self.args)]

    @cached_property
    def jitted(self) -> Arrays:
        """What jax.jit makes of the program on this machine."""
        with jax.enable_x64(True):
            return [np.asarray(x) for x in jax.jit(as_jax(self.graph))(*self.args)]

    def _wrong(self, found: Arrays, more: Sequence[Arrays]) -> str | None:
        for n, arrays in enumerate(zip(found, self.plain, self.others, *more, strict=True)):
            ours, plain, (exact, rounded, converted, *sums), *jitted = arrays
            if not DType.of(ours.dtype).is_float and ours.shape == plain.shape:
                # next to a jump, programs that round at conversions only differ from one that rounds each op
                ours = np.where((ours == exact) | (ours == converted), plain, ours).astype(ours.dtype)
            message = difference(ours, plain, exact, rounded, *sums, *jitted, converted)
            if message is not None:
                return f"output {n}: {message}"
        return None


def stored(graph: Graph) -> Graph:
    """The graph whose outputs are rounded before others read them, as what is read back from memory is.

    Conversions from a type to itself are none.
    """
    ops: list[Op] = []
    new: dict[Value, Value] = {}
    for op in graph.ops:
        if op.name == "stablehlo.convert" and op.operands[0].type == op.result.type:
            new[op.result] = new.get(op.operands[0], op.operands[0])
            continue
        ops.append(replace(op, operands=tuple(new.get(v, v) for v in op.operands)))
        for v in op.results:
            if v in graph.outputs and v.tensor.dtype.is_float:
                ops.append(build.convert(v, v.tensor.dtype))
                new[v] = ops[-1].result
    return Graph(graph.inputs, tuple(ops), tuple(new.get(v, v) for v in graph.outputs))


def summed(graph: Graph, args: Arrays, neighbours: int, partials: int, backwards: bool = False) -> Arrays:
    """The graph's outputs with float sums made in that order."""

    def run(op: Op, given: Arrays) -> Arrays:
        if not _is_sum(op):
            return _plain(op, given)
        x = np.flip(given[0], op.attrs["dimensions"]) if backwards else given[0]
        return [_sum(op, neighbours, partials, x, given[1])]

    return _evaluate(graph, args, run)


def shifted(graph: Graph, args: Arrays) -> Arrays:
    """The graph's outputs with float sums made of what the elements are off the largest of them.

    Sums of one pass start from a first element, each program's from another: the largest is the worst.
    """

    def run(op: Op, given: Arrays) -> Arrays:
        if not _is_sum(op):
            return _plain(op, given)
        wide = np.float64 if op.result.tensor.dtype is DType.F64 else np.float32
        x, dims = given[0].astype(wide), op.attrs["dimensions"]
        low, high = (reduced(x, axis=dims, keepdims=True, initial=0) for reduced in (np.min, np.max))
        first = np.where(high > -low, high, low)
        count = wide(math.prod(x.shape[d] for d in dims))
        found = np.sum(x - first, axis=dims, dtype=wide) + count * np.sum(first, axis=dims)
        return [np.asarray(np.add(found, given[1].astype(wide))).astype(op.result.tensor.dtype.numpy)]

    return _evaluate(graph, args, run)


def nudged(graph: Graph, args: Arrays) -> tuple[Arrays, Arrays]:
    """The graph's outputs with every special function above, and below, by as much as libdevice's may be.

    A difference is above with what is subtracted below. Sums of products are off by what a fused multiply-add
    does not round; sums that other sums wait for by what starting from an element rounds.
    """
    awaited = _awaited(graph)
    products = {op.results[0] for op in graph.ops if op.name == "stablehlo.multiply"}
    above, below = (dict(zip(graph.inputs, args, strict=True)) for _ in range(2))
    for op in graph.ops:
        given = [[env[v] for v in op.uses] for env in (above, below)]
        if op.name in CROSSED:
            given[0][-1], given[1][-1] = given[1][-1], given[0][-1]
        fused = op.name in SUMS and not products.isdisjoint(op.operands)
        for env, operands, direction in zip((above, below), given, (np.inf, -np.inf), strict=True):
            found = _nudged(op, operands, direction, fused)
            if op in awaited:
                error = np.copysign(_start_error(op, operands[0]), direction)
                found = [np.asarray(np.add(found[0], error.astype(found[0].dtype)))]
            env.update(zip(op.results, found, strict=True))
    return [above[v] for v in graph.outputs], [below[v] for v in graph.outputs]


def _nudged(op: Op, given: Arrays, direction: float, fused: bool) -> Arrays:
    """The op's results, off in one direction. fused: a sum of a product."""
    found = list(_plain(op, given))
    if fused and op.results[0].tensor.dtype.compute is DType.F32:
        largest = np.maximum(*(np.abs(x.astype(np.float32)) for x in given))
        step = np.copysign(np.spacing(largest), np.float32(direction))
        return [(x.astype(np.float32) + step).astype(x.dtype) for x in found]
    limits = {"float32": ULPS, "float64": ULPS64}.get(found[0].dtype.name, {})
    for _ in range(limits.get(op.name, 0)):
        found = [np.nextafter(x, x.dtype.type(direction)) for x in found]
    if op.name == "chlo.lgamma" and found[0].dtype == np.float32:
        near = (given[0] > ROOTS[0]) & (given[0] < ROOTS[1]) & (np.abs(found[0]) < 1)
        step = ULPS[op.name] * np.copysign(np.spacing(np.float32(1)), np.float32(direction))
        found = [np.where(near, found[0] + step, found[0])]
    return found


def _awaited(graph: Graph) -> set[Op]:
    """Sums that another sum is computed from: passes make one reduction of both."""
    behind: dict[Value, frozenset[Op]] = {}
    for op in graph.ops:
        before = frozenset[Op]().union(*(behind.get(v, frozenset()) for v in op.operands))
        own = frozenset([op]) if _is_sum(op) else frozenset()
        behind.update(dict.fromkeys(op.results, before | own))
    sums = [op for op in graph.ops if _is_sum(op)]
    return {first for op in sums for v in op.operands for first in behind.get(v, ())}


def _start_error(op: Op, x: np.ndarray) -> np.ndarray:
    """A unit in the last place of what so many elements, as large as the largest, add up to."""
    dims: tuple[int, ...] = op.attrs["dimensions"]
    wide = np.float64 if op.result.tensor.dtype is DType.F64 else np.float32
    largest = np.max(np.abs(x.astype(wide)), axis=dims, initial=0)
    return np.asarray(np.spacing(largest * wide(math.prod(x.shape[d] for d in dims))))


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
            rows = np.add(rows[: len(rows) // 2], rows[len(rows) // 2 :])
        return np.asarray(np.add(rows[0], init.astype(wide))).astype(dtype.numpy)


def _in_steps(rows: np.ndarray, count: int, axis: int) -> np.ndarray:
    """Sums of `count` neighbours (axis 1), or `count` sums of what stands that far apart (axis 0)."""
    missing = -len(rows) % count if len(rows) else count
    padded = np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])
    parts = padded.reshape(-1, count, *rows.shape[1:])
    return np.asarray(np.add.accumulate(parts, axis=axis).take(-1, axis=axis))
