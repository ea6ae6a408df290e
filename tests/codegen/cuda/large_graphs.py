"""Random graphs of the shapes by which CUDA kernels are dealt out: long rows, columns, flat, many lanes.

    make_large(seed)        rows of 257 to 12,000; columns of up to 3,000 rows; flat; images; odd sizes
    make_columns(seed)      statistics of columns, and the rows with them: variances, soft maxima, any others
    make_many_lanes(seed)   tens of small independent chains, which are packed into one launch

Steps of `tests.fuzz.programs` and, most often, a reduction whose result is broadcast back, as norms have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from jstitch.ir.graph import Graph, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from tests.fuzz.programs import _is_disputed, _Programs
from tests.passes.random_graphs import _BOOL_MONOIDS, _MONOIDS, Limits, _convert, _elementwise, _select

DTYPES: Sequence[tuple[DType, ...]] = (
    (DType.F32,),
    (DType.F32,),
    (DType.F32, DType.BF16, DType.F16),
    (DType.BF16,),
    (DType.F64, DType.F32),
    (DType.S32, DType.S8, DType.U8, DType.BOOL, DType.S16),
    (DType.S64, DType.U32, DType.U64, DType.U16),
    (DType.F32, DType.F8E4M3FN, DType.F8E5M2, DType.BF16),
)
NARROW = (DType.F8E4M3FN, DType.F8E5M2)  # only stored: XLA widens them before it computes
LONG = (257, 512, 1000, 1023, 1024, 1536, 2048, 4099, 8192, 12000)
TALL = (100, 256, 391, 1000, 1024, 3000)


@dataclass
class _Large(_Programs):
    shape: tuple[int, ...] = ()

    def random_shape(self) -> tuple[int, ...]:
        """The graph's own shape, or what broadcasts to it."""
        if self.random.random() < 0.7:
            return self.shape
        kept = self.random.randrange(len(self.shape))
        return tuple(n if d >= kept else 1 for d, n in enumerate(self.shape))

    def step(self) -> None:
        x = self.pick()
        if x.tensor.dtype in NARROW:
            self.emit(build.convert(x, DType.F32))
        elif self.random.random() < 0.35:
            _normalise(self, x)
        else:
            super().step()


def make_large(seed: int) -> Graph:
    """One graph of a few long tensors, of the same seed the same."""
    random = Random(seed)
    limits = Limits(ops=8, elements=48_000, dtypes=DTYPES[seed % len(DTYPES)], empty=False)
    while True:
        graph = _one(random, limits, _SHAPES[seed // len(DTYPES) % len(_SHAPES)](random))
        if not any(map(_is_disputed, graph.ops)):
            return graph


def make_columns(seed: int) -> Graph:
    """One graph of arrays of rows and vectors of their columns."""
    random = Random(seed)
    shape = random.choice((60, 100, 257, 384)), random.choice((32, 33, 40, 64, 96, 120, 127, 200))
    dtypes = DTYPES[seed % len(DTYPES)]
    exact = any(d.compute is not d for d in dtypes)  # what is rounded less has its poles elsewhere
    limits = Limits(ops=9, dtypes=dtypes, empty=False, exact=exact)
    while True:
        graph = _columns_graph(random, limits, shape)
        if not any(map(_is_disputed, graph.ops)):
            return graph


def make_many_lanes(seed: int) -> Graph:
    """Twelve to sixty independent chains, most of them alike."""
    random = Random(seed)
    limits = Limits(ops=4, elements=3_000, dtypes=DTYPES[seed % len(DTYPES)], empty=False, rank=3)
    parts: list[Graph] = []
    while len(parts) < random.choice((12, 20, 60)):
        shape = random.choice(((4,), (7, 33), (64,), (16, 16), (300,), (2, 1024)))
        part = _one(Random(seed + random.randrange(3)), limits, shape)
        parts += [] if any(map(_is_disputed, part.ops)) else [part]
        random = random if parts else Random(random.random())
    return Graph(
        tuple(v for p in parts for v in p.inputs),
        tuple(op for p in parts for op in p.ops),
        tuple(v for p in parts for v in p.outputs),
    )


def _one(random: Random, limits: Limits, shape: tuple[int, ...]) -> Graph:
    maker = _Large(random, limits, shape=shape)
    inputs = tuple(Value(maker.random_type()) for _ in range(random.randint(1, 3)))
    inputs = (Value(TensorType(shape, random.choice(limits.dtypes))), *inputs[1:])
    maker.start(inputs)
    while len(maker.ops) < limits.ops:
        maker.step()
    made = [v for op in maker.ops for v in op.results]
    outputs = random.sample(made, min(len(made), random.randint(1, 3)))
    return Graph(inputs, tuple(maker.ops), tuple(dict.fromkeys([*outputs, made[-1]])))


def _columns_graph(random: Random, limits: Limits, shape: tuple[int, int]) -> Graph:
    maker = _Large(random, limits, shape=shape)
    shapes = (shape, *random.choices((shape, shape[1:]), k=random.randint(0, 2)))
    inputs = tuple(Value(TensorType(s, random.choice(limits.dtypes))) for s in shapes)
    maker.start(inputs)
    while len(maker.ops) < limits.ops:
        x = maker.pick()
        if x.tensor.dtype in NARROW:
            maker.emit(build.convert(x, DType.F32))
        else:
            random.choice(_STATISTICS if x.shape == shape else _OF_COLUMNS)(maker, x)
    made = [v for op in maker.ops for v in op.results]
    outputs = random.sample(made, min(len(made), random.randint(0, 3)))
    return Graph(inputs, tuple(maker.ops), tuple(dict.fromkeys([*outputs, made[-1]])))


# -- shapes ----------------------------------------------------------------------------------------------


def _rows(random: Random) -> tuple[int, ...]:
    return random.choice((1, 2, 3, 5)), random.choice(LONG)


def _short_rows(random: Random) -> tuple[int, ...]:
    return random.choice(TALL), random.choice((1, 3, 4, 31, 32, 33, 48))


def _columns(random: Random) -> tuple[int, ...]:
    return random.choice((100, 257, 384)), random.choice((33, 64, 100, 127))


def _flat(random: Random) -> tuple[int, ...]:
    return (random.choice((5000, 16384, 16411, 40_000)),)


def _image(random: Random) -> tuple[int, ...]:
    return random.choice((1, 2, 4)), random.choice((49, 100, 196)), random.choice((8, 32, 33))


_SHAPES: Sequence[Callable[[Random], tuple[int, ...]]] = (_rows, _short_rows, _columns, _flat, _image)


# -- steps -----------------------------------------------------------------------------------------------


def _normalise(maker: _Programs, x: Value) -> None:
    """x op broadcast(reduce(x)), over the last dimensions, the first ones, all, or any."""
    rank, dtype = x.tensor.rank, x.tensor.dtype
    if not rank or dtype is DType.BOOL or not math.prod(x.shape):
        return
    cut = maker.random.randint(0, rank)
    dims = maker.random.choice((range(cut, rank), range(cut), range(rank), range(rank - 1, rank)))
    name, first = maker.random.choice(_MONOIDS)
    init = maker.emit(build.splat(TensorType((), dtype), first(dtype)))
    total = maker.emit(build.reduce(name, x, init, list(dims)))
    kept = [d for d in range(rank) if d not in dims]
    wide = maker.emit(build.broadcast(total, x.shape, kept))
    name = maker.random.choice(("subtract", "maximum", "multiply"))
    maker.emit(build.elementwise(f"stablehlo.{name}", x, wide))


def _statistic(maker: _Programs, x: Value) -> Value:
    """A reduction of each column."""
    kinds = _BOOL_MONOIDS if x.tensor.dtype is DType.BOOL else _MONOIDS
    name, first = maker.random.choice(kinds)
    init = maker.emit(build.splat(TensorType((), x.tensor.dtype), first(x.tensor.dtype)))
    return maker.emit(build.reduce(name, x, init, [0]))


def _is_fixed(maker: _Programs, x: Value) -> bool:
    """Whether all rows of x are alike: XLA sums these without rounding, and finds no spread at all."""
    made = next((op for op in maker.ops if x in op.results), None)
    if made is None or x.tensor.rank < 2:
        return x.tensor.rank < 2
    return all(_is_fixed(maker, v) for v in made.operands)


def _spread(maker: _Programs, x: Value) -> None:
    """Sums of squares around the mean, or of powers below the largest: one pass over the rows."""
    if not x.tensor.dtype.is_float or _is_fixed(maker, x):
        _statistic(maker, x)
        return
    maximum = maker.random.random() < 0.5
    first = -math.inf if maximum else 0
    init = maker.emit(build.splat(TensorType((), x.tensor.dtype), first))
    column = maker.emit(build.reduce("stablehlo.maximum" if maximum else "stablehlo.add", x, init, [0]))
    if not maximum:
        count = maker.emit(build.splat(column.tensor, x.shape[0]))
        column = maker.emit(build.elementwise("stablehlo.divide", column, count))
    wide = maker.emit(build.broadcast(column, x.shape, [1]))
    centred = maker.emit(build.elementwise("stablehlo.subtract", x, wide))
    if maximum:
        made = maker.emit(build.elementwise("stablehlo.exponential", centred))
    else:
        made = maker.emit(build.elementwise("stablehlo.multiply", centred, centred))
    zero = maker.emit(build.splat(TensorType((), x.tensor.dtype), 0))
    maker.emit(build.reduce("stablehlo.add", made, zero, [0]))


def _to_rows(maker: _Programs, x: Value) -> None:
    """An array of rows with what belongs to their columns."""
    arrays = [v for v in maker.values if v.tensor.rank == 2 and v.tensor.dtype is x.tensor.dtype]
    if x.tensor.rank != 1 or not arrays or x.tensor.dtype is DType.BOOL:
        return _elementwise(maker, x)
    rows = maker.random.choice(arrays)
    wide = maker.emit(build.broadcast(x, rows.shape, [1]))
    name = maker.random.choice(("subtract", "multiply", "minimum"))
    maker.emit(build.elementwise(f"stablehlo.{name}", rows, wide))


_STATISTICS: Sequence[Callable[[_Programs, Value], object]] = (
    *(_statistic, _spread, _elementwise, _elementwise, _select, _convert),
)
_OF_COLUMNS: Sequence[Callable[[_Programs, Value], object]] = (_to_rows, _to_rows, _elementwise, _convert)
