"""The program in float64: what both XLA's results and ours are held against.

%1 = exponential %0 : tensor<8xbf16>      ->      %1 = exponential %0 : tensor<8xf64>
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from jstitch.inspection.execute import ExecutionError
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import OPS, OpClass, build, lookup
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.rewrite import is_control

Arrays = Sequence[np.ndarray]
INTERPRETED_SECONDS = 6.0  # what interpreting a program may be expected to take
NEARBY = 3  # runs on arguments that differ by a rounding
TURNS = 256  # of a loop, for that expectation
PER_OP, PER_ELEMENT, PER_CALLED_ELEMENT = 3e-5, 1e-8, 2e-6  # seconds of NumPy


def widen(graph: Graph, *, rounding: bool = False) -> Graph:
    """The same program with every float in float64; `rounding`: conversions still round to their dtype."""
    return _Widening(rounding).graph(graph)


class _Widening:
    def __init__(self, rounding: bool) -> None:
        self.rounding = rounding
        self.values: dict[Value, Value] = {}

    def value(self, v: Value) -> Value:
        if v not in self.values:
            wide = Value(TensorType(v.shape, DType.F64)) if _is_float(v) else Value(v.type)
            self.values[v] = wide
        return self.values[v]

    def graph(self, graph: Graph) -> Graph:
        inputs = tuple(map(self.value, graph.inputs))
        ops = tuple(made for op in graph.ops for made in self.ops(op))
        return Graph(inputs, ops, tuple(map(self.value, graph.outputs)))

    def ops(self, op: Op) -> tuple[Op, ...]:
        wide = self.op(op)
        if op.name == "stablehlo.bitcast_convert":
            return tuple(self.same_bits(op, wide))
        if not (self.rounding and op.name == "stablehlo.convert" and _is_float(op.result)):
            return (wide,)
        narrow = build.convert(wide.operands[0], op.result.tensor.dtype)
        return narrow, replace(wide, operands=narrow.results)

    def same_bits(self, op: Op, wide: Op) -> Iterator[Op]:
        """The op on the types that it had: float64 has other bits."""
        operand, result = op.operands[0], op.result
        before = wide.operands[0]
        if _is_float(operand):
            narrow = build.convert(before, operand.tensor.dtype)
            yield narrow
            before = narrow.result
        if not _is_float(result):
            yield replace(wide, operands=(before,))
            return
        made = replace(wide, operands=(before,), results=(Value(result.type),))
        yield made
        yield replace(build.convert(made.result, DType.F64), results=wide.results)

    def op(self, op: Op) -> Op:
        attrs = {
            k: v.astype(np.float64) if isinstance(v, np.ndarray) and DType.of(v.dtype).is_float else v
            for k, v in op.attrs.items()
        }
        operands, results = (tuple(map(self.value, vs)) for vs in (op.operands, op.results))
        regions = tuple(map(self.graph, op.regions))
        return replace(op, operands=operands, results=results, attrs=attrs, regions=regions)


def _is_float(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype.is_float


def reference(graph: Graph, args: Arrays, *, rounding: bool = False) -> list[np.ndarray]:
    """Every output, computed in float64 by the NumPy interpreter."""
    return list(interpret(widen(graph, rounding=rounding), _widened(args)))


def references(graph: Graph, args: Arrays) -> Iterator[tuple[np.ndarray, ...]]:
    """Per output: the float64 reference; every op rounded; only conversions rounded, as kernels do."""
    found = reference(graph, args), interpret(graph, args), reference(graph, args, rounding=True)
    return zip(*found, strict=True)


def _widened(args: Arrays) -> list[np.ndarray]:
    return [a.astype(np.float64) if DType.of(a.dtype).is_float else a for a in args]


# -- the cheapest that there is -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """how: who computed it, or why nobody can. arrays: per output, the arguments of the numerics rule that
    follow jax.jit's result; None without a reference. nearby: per output, what it is for arguments that
    differ by a rounding; computed when somebody asks."""

    how: str
    arrays: tuple[tuple[np.ndarray, ...], ...] | None
    nearby: Callable[[], tuple[tuple[np.ndarray, ...], ...]] = tuple


def make_reference(graph: Graph, args: Arrays, run: Callable[[Graph, Arrays], list[np.ndarray]]) -> Reference:
    """By NumPy where that is quick enough, else by XLA, in float64. run: a graph through XLA, rounding
    where the graph says so and nowhere else."""
    reason = why_not_widened(graph)
    if reason is not None:
        return Reference(f"no float64 reference: {reason}", None)
    if interpreted_seconds(graph) <= INTERPRETED_SECONDS:
        try:
            with np.errstate(all="ignore"):
                found = tuple(references(graph, args))
            return Reference("NumPy in float64", found, _nearby(graph, args, interpret))
        except NotImplementedError as error:
            return Reference(f"no float64 reference: {error}", None)
    wide = _widened(args)
    try:
        runs = run(widen(graph), wide), run(graph, args), run(widen(graph, rounding=True), wide)
    except ExecutionError as error:
        return Reference(f"no float64 reference: {' '.join(str(error).split())}", None)
    return Reference("XLA in float64", tuple(zip(*runs, strict=True)), _nearby(graph, args, run))


def _nearby(
    graph: Graph, args: Arrays, run: Callable[[Graph, Arrays], Arrays]
) -> Callable[[], tuple[tuple[np.ndarray, ...], ...]]:
    """The program in float64 on arguments that are up to half an ulp away."""

    @functools.cache
    def compute() -> tuple[tuple[np.ndarray, ...], ...]:
        random = np.random.default_rng(0)
        kinds = {v.tensor.dtype for v in (*graph.inputs, *graph.outputs) if v.tensor.dtype.is_float}
        eps = min((float(ml_dtypes.finfo(kind.numpy).eps) for kind in kinds), default=0.0)
        wide, found = widen(graph), []
        for _ in range(NEARBY):
            moved = [
                a * (1 + eps * random.uniform(-0.5, 0.5, a.shape)) if a.dtype == np.float64 else a
                for a in _widened(args)
            ]
            with np.errstate(all="ignore"):
                found.append(run(wide, moved))
        return tuple(zip(*found, strict=True))

    return compute


def why_not_widened(graph: Graph) -> str | None:
    """Which op cannot be had in float64, None when all can."""
    for op in graph.walk():
        values = (*op.operands, *op.results)
        complex_ = any(isinstance(v.type, TensorType) and v.type.dtype.is_complex for v in values)
        if complex_ or (op.name not in OPS and any(map(_is_float, values))):
            where = f" at {op.loc}" if op.loc else ""
            return f"{op.name}{where} {'is complex' if complex_ else 'is only known to XLA'}"
    return None


def interpreted_seconds(graph: Graph) -> float:
    """A guess of what NumPy takes; loops whose turns are not known count as TURNS of them."""
    return sum(map(_seconds, graph.ops))


def _seconds(op: Op) -> float:
    if is_control(op):
        turns = TURNS if op.regions[0].inputs else 1
        return turns * sum(map(interpreted_seconds, op.regions))
    elements = sum(math.prod(v.shape) for v in (*op.operands, *op.results) if isinstance(v.type, TensorType))
    if lookup(op.name).op_class is OpClass.CONTRACTION:
        return PER_OP + PER_ELEMENT * _products(op) / 10
    called = op.regions and "monoid" not in op.attrs
    return PER_OP + elements * (PER_CALLED_ELEMENT if called else PER_ELEMENT)


def _products(op: Op) -> float:
    """Of a contraction: at most what all of both operands have to do with each other."""
    a, b, c = (float(v.tensor.size) for v in (*op.operands[:2], op.results[0]))
    return math.sqrt(a * b * c)
