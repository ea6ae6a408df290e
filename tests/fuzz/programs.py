"""Random programs for the differential fuzz: random graphs, and what only whole programs are checked for.

Adds to `tests.passes.random_graphs`: argmax and argmin (reductions of two operands), gathers as `take` and
`take_along_axis` make them, dynamic updates. A program is a graph and a JAX function of it; several programs
can be one function, which packs their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from jstitch.frontend.exporter import export_module
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from tests.ir.programs import NO_SPECIAL
from tests.ir.running import as_function
from tests.passes.random_graphs import Limits, _Maker

_ROUGH64 = ("chlo.erf", "chlo.erfc", "chlo.erf_inv", "chlo.lgamma")
_TRAPS = ("stablehlo.divide", "stablehlo.remainder")
_COUNT = "stablehlo.count_leading_zeros"
_INJECTIVE = (
    *("stablehlo.not", "stablehlo.negate", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.reverse"),
    *("stablehlo.broadcast_in_dim", "stablehlo.slice"),
)
_GROUPS = ("stablehlo.add", "stablehlo.subtract", "stablehlo.xor")


@dataclass
class _Programs(_Maker):
    """origins: inputs that a value is computed from. varying: values that no algebra makes a constant."""

    origins: dict[Value, frozenset[Value]] = field(default_factory=dict)
    varying: set[Value] = field(default_factory=set)

    def start(self, inputs: Sequence[Value]) -> None:
        self.values += inputs
        self.origins.update((v, frozenset([v])) for v in inputs)
        self.varying.update(inputs)

    def step(self) -> None:
        if self.random.random() < 0.15:
            self.random.choice(_STEPS)(self, self.pick())
        else:
            super().step()

    def emit(self, op: Op) -> Value:
        """Appends the op, its last operand kept to where XLA folds it well.

        XLA computes ops on constants while it compiles, (x - x) % (x - x) among them. An integer division by
        zero there ends the process, and the leading zeros of a negative number are counted as -32.
        """
        if not op.results[0].tensor.dtype.is_float and self.varying.isdisjoint(op.operands):
            if op.name in _TRAPS:
                op = replace(op, operands=(op.operands[0], self._masked(op.operands[1], 62, 1)))
            elif op.name == _COUNT and op.results[0].tensor.dtype.is_signed:
                op = replace(op, operands=(self._masked(op.operands[0], 63, 0),))
        self._note(op)
        return super().emit(op)

    def _masked(self, x: Value, mask: int, bit: int) -> Value:
        """(x & mask) | bit."""
        kept = self.emit(build.elementwise("stablehlo.and", x, self.emit(build.splat(x.tensor, mask))))
        return self.emit(build.elementwise("stablehlo.or", kept, self.emit(build.splat(x.tensor, bit))))

    def _note(self, op: Op) -> None:
        sources = [self.origins[v] for v in op.operands]
        self.origins.update((v, frozenset().union(*sources)) for v in op.results)
        moved = op.name in _INJECTIVE and op.operands[0] in self.varying
        apart = len(sources) == 2 and sources[0].isdisjoint(sources[1])
        if moved or (op.name in _GROUPS and apart and not self.varying.isdisjoint(op.operands)):
            self.varying.update(op.results)


def make_program(seed: int, limits: Limits = Limits(), inputs: int = 3) -> Graph:  # noqa: B008
    """One random graph, of the same seed the same; XLA agrees with itself on what it means."""
    random = Random(seed)
    while True:
        graph = _one(random, limits, inputs)
        if not any(map(_is_disputed, graph.ops)):
            return graph


def _one(random: Random, limits: Limits, most: int) -> Graph:
    maker = _Programs(random, limits)
    inputs = tuple(Value(maker.random_type()) for _ in range(random.randint(1, most)))
    maker.start(inputs)
    for _ in range(random.randint(1, limits.ops)):
        maker.step()
    made = [v for op in maker.ops for v in op.results]
    if not made:
        return _one(random, limits, most)
    outputs = random.sample(made, min(len(made), random.randint(1, 3)))
    return Graph(inputs, tuple(maker.ops), tuple(dict.fromkeys([*outputs, made[-1]])))


def _is_disputed(op: Op) -> bool:
    """What XLA's versions or passes disagree about: poles, and sums of truth values (or, or xor).

    Also special functions on float64, whose own tests hold them to 1e-14 and not to ulps.
    """
    if op.name in _ROUGH64 and op.result.tensor.dtype is DType.F64:
        return True
    truth = op.name in ("stablehlo.add", "stablehlo.multiply") and op.result.tensor.dtype is DType.BOOL
    return truth or op.name in NO_SPECIAL


def as_jax(graph: Graph) -> Callable[..., list[Any]]:
    """The program as a function that JAX can trace (with x64 enabled)."""
    call = as_function(export_module(graph), graph)
    return lambda *args: list(call(*args))


def batched(graphs: Sequence[Graph]) -> Callable[..., list[Any]]:
    """Independent programs as one function of all their arguments."""
    parts = [(as_jax(g), len(g.inputs)) for g in graphs]

    def f(*args: Any) -> list[Any]:
        found, at = [], 0
        for call, count in parts:
            found += call(*args[at : at + count])
            at += count
        return found

    return f


# -- steps -----------------------------------------------------------------------------------------------


def _arg_extreme(maker: _Maker, x: Value) -> None:
    """argmax or argmin over one dimension, as JAX writes it: NaN wins, the first of equals wins.

    Not of f16 and bf16: kernels keep them in float32 between ops, so that what was rounded to a tie is none.
    """
    dims = [d for d, n in enumerate(x.shape) if n]
    dtype = x.tensor.dtype
    if not dims or dtype is DType.BOOL or dtype.compute is not dtype or not x.tensor.size:
        return
    dim, greater = maker.random.choice(dims), maker.random.random() < 0.5
    number = maker.random.choice((DType.S32, DType.S64))
    positions = maker.emit(build.iota(TensorType(x.shape, number), dim))
    first = _worst(dtype, greater)
    inits = [maker.emit(build.splat(TensorType((), t), v)) for t, v in ((dtype, first), (number, 0))]
    shape = tuple(n for d, n in enumerate(x.shape) if d != dim)
    results = tuple(Value(TensorType(shape, t)) for t in (dtype, number))
    region = _arg_region(dtype, number, "GT" if greater else "LT")
    maker.emit(Op("stablehlo.reduce", (x, positions, *inits), results, {"dimensions": (dim,)}, (region,)))


def _worst(dtype: DType, greater: bool) -> float | int:
    if dtype.is_float:
        return -math.inf if greater else math.inf
    info = np.iinfo(dtype.numpy.name)
    return int(info.min if greater else info.max)


def _arg_region(dtype: DType, number: DType, direction: str) -> Graph:
    a, i, b, j = (Value(TensorType((), t)) for t in (dtype, number, dtype, number))
    better = build.compare(direction, a, b)
    nan = build.compare("NE", a, a)
    pick = build.elementwise("stablehlo.or", better.result, nan.result)
    equal = build.compare("EQ", a, b)
    earlier = build.compare("LT", i, j)
    tie = build.logical_and(equal.result, earlier.result)
    pick_number = build.elementwise("stablehlo.or", pick.result, tie.result)
    value = build.select(pick.result, a, b)
    index = build.select(pick_number.result, i, j)
    ops = (better, nan, pick, equal, earlier, tie, pick_number, value, index)
    return Graph((a, i, b, j), ops, (value.result, index.result))


def _indices(maker: _Maker, shape: tuple[int, ...], size: int) -> Value:
    """Integers, some out of range."""
    type_ = TensorType(shape, maker.random.choice((DType.S32, DType.S64)))
    rng = np.random.default_rng(maker.random.randrange(1 << 30))
    return maker.emit(build.constant(rng.integers(-2, size + 2, shape).astype(type_.dtype.numpy)))


def _take(maker: _Maker, x: Value) -> None:
    """x[indices] along one dimension."""
    if not x.tensor.rank or not x.tensor.size:
        return
    dim, count = maker.random.randrange(x.tensor.rank), maker.random.choice((1, 3, 7))
    indices = _indices(maker, (count, 1), x.shape[dim])
    others = tuple(d for d in range(x.tensor.rank) if d != dim)
    attrs = {
        "offset_dims": others,
        "collapsed_slice_dims": (dim,),
        "operand_batching_dims": (),
        "start_indices_batching_dims": (),
        "start_index_map": (dim,),
        "index_vector_dim": 1,
        "slice_sizes": tuple(1 if d == dim else n for d, n in enumerate(x.shape)),
        "indices_are_sorted": False,
    }
    shape = tuple(count if d == dim else n for d, n in enumerate(x.shape))
    maker.emit(build.op("stablehlo.gather", (x, indices), TensorType(shape, x.tensor.dtype), attrs))


def _take_along_axis(maker: _Maker, x: Value) -> None:
    """x[r, indices[r]] with the leading dimension batched."""
    if x.tensor.rank < 2 or not x.tensor.size:
        return
    rows, size = x.shape[:2]
    indices = _indices(maker, (rows, 1), size)
    rest = x.shape[2:]
    attrs = {
        "offset_dims": tuple(range(1, 1 + len(rest))),
        "collapsed_slice_dims": (1,),
        "operand_batching_dims": (0,),
        "start_indices_batching_dims": (0,),
        "start_index_map": (1,),
        "index_vector_dim": 1,
        "slice_sizes": (1, 1, *rest),
        "indices_are_sorted": False,
    }
    result = TensorType((rows, *rest), x.tensor.dtype)
    maker.emit(build.op("stablehlo.gather", (x, indices), result, attrs))


def _update_slice(maker: _Maker, x: Value) -> None:
    """Starts may lie outside: they are clamped. The update never comes from x: XLA:CPU writes it in place."""
    if not x.tensor.rank:
        return
    sizes = tuple(maker.random.randint(min(1, n), n) for n in x.shape)
    type_ = TensorType(sizes, x.tensor.dtype)
    update = maker.emit(build.splat(type_, maker.random.randint(0, 1)))
    if x.tensor.dtype is not DType.BOOL:
        line = maker.emit(build.iota(type_, maker.random.randrange(len(sizes))))
        update = maker.emit(build.elementwise("stablehlo.subtract", line, update))
    starts = [maker.like(Value(TensorType((), DType.S32))) for _ in x.shape]
    maker.emit(build.op("stablehlo.dynamic_update_slice", (x, update, *starts), x.tensor))


_STEPS: tuple[Callable[[_Maker, Value], None], ...] = (
    _arg_extreme,
    _arg_extreme,
    _take,
    _take_along_axis,
    _update_slice,
)
