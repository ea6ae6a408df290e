"""Random graphs for property tests, driven by the op table.

    @given(random_graphs())
    def test_pass(graph: Graph) -> None: ...

Elementwise ops of any class and dtype, shape ops, reductions, concat/pad/slice, iota and constants; shared
values (diamonds), several outputs, ranks 0 to 6, sizes 0, 1 and primes. Small: a graph is interpreted in
milliseconds. `make_graph` takes a plain `random.Random`, for tests without hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from hypothesis import strategies as st

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OPS, build, lookup
from jstitch.ir.ops.convert import CONVERT_TF32
from jstitch.ir.ops.numerics import largest, smallest
from jstitch.ir.types import DType, TensorType
from tests.ir.programs import ARITY, DTYPES, FLOATS

ALL_DTYPES = (
    *(DType.F32, DType.F32, DType.F32, DType.F16, DType.BF16, DType.F64),
    *(DType.S8, DType.S32, DType.S64, DType.U8, DType.U32, DType.BOOL),
)
SIZES = (1, 2, 3, 4, 5, 7, 8, 13)
SPECIAL = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 0.5)


@dataclass(frozen=True)
class Limits:
    """What graphs may look like. exact: leave out ops whose value depends on the library (exp, ...)."""

    ops: int = 12
    rank: int = 6
    elements: int = 512
    dtypes: tuple[DType, ...] = ALL_DTYPES
    empty: bool = True
    exact: bool = False
    specials: bool = True


def random_graphs(limits: Limits = Limits()) -> st.SearchStrategy[Graph]:
    """Verified graphs with one to three inputs and outputs."""
    return st.randoms(use_true_random=False).map(lambda random: make_graph(random, limits))


def make_graph(random: Random, limits: Limits = Limits()) -> Graph:
    """One random graph."""
    maker = _Maker(random, limits)
    inputs = tuple(Value(maker.random_type()) for _ in range(random.randint(1, 3)))
    maker.values += inputs
    for _ in range(random.randint(1, limits.ops)):
        maker.step()
    if not maker.ops:
        _convert(maker, inputs[0])
    made = [v for op in maker.ops for v in op.results]
    outputs = random.sample(made, min(len(made), random.randint(1, 3)))
    return Graph(inputs, tuple(maker.ops), tuple(dict.fromkeys([*outputs, made[-1]])))


def arguments(graph: Graph, seed: int, specials: bool = True) -> list[np.ndarray]:
    """One array per input; floats with NaN, infinities and signed zeros among them."""
    rng = np.random.default_rng(seed)
    return [_argument(rng, v.tensor, specials) for v in graph.inputs]


def _argument(rng: np.random.Generator, type_: TensorType, specials: bool) -> np.ndarray:
    if type_.dtype is DType.BOOL:
        return rng.integers(0, 2, type_.shape).astype(np.bool_)
    if not type_.dtype.is_float:
        low = -20 if type_.dtype.is_signed else 0
        return rng.integers(low, 21, type_.shape).astype(type_.dtype.numpy)
    values = rng.uniform(-4, 4, type_.shape)
    if specials:
        values = np.where(rng.random(type_.shape) < 0.1, rng.choice(SPECIAL, type_.shape), values)
    return np.asarray(values).astype(type_.dtype.numpy)


@dataclass
class _Maker:
    random: Random
    limits: Limits
    ops: list[Op] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def random_type(self) -> TensorType:
        dtype = self.random.choice(self.limits.dtypes)
        return TensorType(self.random_shape(), dtype)

    def random_shape(self) -> tuple[int, ...]:
        shape: list[int] = []
        for _ in range(self.random.choice((0, 1, 2, 2, 3, 3, self.limits.rank))):
            size = self.random.choice((*SIZES, *shape, *shape))  # squares, too
            shape.append(size if math.prod(shape) * size <= self.limits.elements else 1)
        if self.limits.empty and shape and self.random.random() < 0.03:
            shape[self.random.randrange(len(shape))] = 0
        return tuple(shape)

    def emit(self, op: Op) -> Value:
        self.ops.append(op)
        self.values += op.results
        return op.results[0]

    def pick(self) -> Value:
        """The last value (chains), or any one (diamonds)."""
        return self.values[-1] if self.random.random() < 0.4 else self.random.choice(self.values)

    def like(self, x: Value, dtype: DType | None = None) -> Value:
        """A value of x's shape and this dtype: one that is there, else a conversion, a broadcast, a splat."""
        type_ = replace(x.tensor, dtype=dtype or x.tensor.dtype)
        same = [v for v in self.values if v.type == type_]
        if same and self.random.random() < 0.7:
            return self.random.choice(same)
        scalars = [v for v in self.values if v.type == TensorType((), type_.dtype)]
        if scalars and self.random.random() < 0.5:
            return self.emit(build.broadcast(self.random.choice(scalars), type_.shape, ()))
        return self.emit(build.splat(type_, self._number(type_.dtype)))

    def _number(self, dtype: DType) -> object:
        if dtype is DType.BOOL:
            return self.random.random() < 0.5
        if not dtype.is_float:
            return self.random.choice((0, 1, 2, 3))
        plain = (0.0, -0.0, 1.0, 2.0, -0.5)
        return self.random.choice(plain + (SPECIAL if self.limits.specials else ()))

    def step(self) -> None:
        """One more op of a random kind (some come with a constant or a broadcast)."""
        self.random.choice(_STEPS)(self, self.pick())


def _elementwise(maker: _Maker, x: Value) -> None:
    dtype = x.tensor.dtype
    names = _names(dtype, maker.limits.exact)
    if not names:
        return _convert(maker, x)
    name = maker.random.choice(names)
    others = [maker.like(x) for _ in range(ARITY.get(name, 1) - 1)]
    result = DType.BOOL if name == "stablehlo.is_finite" else dtype
    maker.emit(build.elementwise(name, x, *others, dtype=result))
    return None


def _names(dtype: DType, exact: bool) -> list[str]:
    """Elementwise ops that keep the operand types simple and that kernels have."""
    probe = Value(TensorType((), dtype))
    found = []
    for name, definition in OPS.items():
        special = name in _OWN_STEP or dtype not in DTYPES.get(name, FLOATS)
        if special or not definition.op_class.is_elementwise or (exact and name not in _EXACT):
            continue
        op = build.elementwise(name, *[probe] * ARITY.get(name, 1))
        if definition.scalar is not None and definition.scalar(op) is not None:
            found.append(name)
    return found


_OWN_STEP = (
    *("stablehlo.convert", "stablehlo.compare", "stablehlo.select", "stablehlo.bitcast_convert"),
    *("stablehlo.reduce_precision", "stablehlo.complex", "stablehlo.real", "stablehlo.imag", CONVERT_TF32),
)
_EXACT = (
    *("stablehlo.add", "stablehlo.subtract", "stablehlo.multiply", "stablehlo.divide", "stablehlo.negate"),
    *("stablehlo.abs", "stablehlo.maximum", "stablehlo.minimum", "stablehlo.clamp", "stablehlo.floor"),
    *("stablehlo.and", "stablehlo.or", "stablehlo.xor", "stablehlo.not", "stablehlo.sign"),
)


def _convert(maker: _Maker, x: Value) -> None:
    maker.emit(build.convert(x, maker.random.choice(maker.limits.dtypes)))


def _round_trip(maker: _Maker, x: Value) -> None:
    there = maker.emit(build.convert(x, maker.random.choice(maker.limits.dtypes)))
    maker.emit(build.convert(there, x.tensor.dtype))


def _compare(maker: _Maker, x: Value) -> None:
    direction = maker.random.choice(("EQ", "NE", "LT", "LE", "GT", "GE"))
    maker.emit(build.compare(direction, x, maker.like(x)))


def _select(maker: _Maker, x: Value) -> None:
    maker.emit(build.select(maker.like(x, DType.BOOL), x, maker.like(x)))


def _reshape(maker: _Maker, x: Value) -> None:
    factors = [p for n in x.shape for p in _factors(n)]
    shape: list[int] = []
    for factor in factors:
        if shape and maker.random.random() < 0.5:
            shape[-1] *= factor
        else:
            shape.append(factor)
    if len(shape) < maker.limits.rank and maker.random.random() < 0.4:
        shape.insert(maker.random.randint(0, len(shape)), 1)
    maker.emit(build.reshape(x, shape[: max(len(shape), 0)]))


def _factors(n: int) -> list[int]:
    for p in (2, 3, 5, 7):
        if n > p and n % p == 0:
            return [p, *_factors(n // p)]
    return [n]


def _transpose(maker: _Maker, x: Value) -> None:
    maker.emit(build.transpose(x, maker.random.sample(range(x.tensor.rank), x.tensor.rank)))


def _broadcast(maker: _Maker, x: Value) -> None:
    """New dimensions in between, and dimensions of size 1 made larger."""
    shape, dims = list[int](), list[int]()
    for n in x.shape:
        if len(shape) + x.tensor.rank < maker.limits.rank and maker.random.random() < 0.4:
            shape.append(maker.random.choice(SIZES[:5]))
        dims.append(len(shape))
        shape.append(maker.random.choice(SIZES[:5]) if n == 1 else n)
    if len(shape) < maker.limits.rank and maker.random.random() < 0.5:
        shape.append(maker.random.choice(SIZES[:5]))
    if math.prod(shape) <= 4 * maker.limits.elements:
        maker.emit(build.broadcast(x, shape, dims))


def _slice(maker: _Maker, x: Value) -> None:
    bounds = [sorted((maker.random.randint(0, n), maker.random.randint(0, n))) for n in x.shape]
    bounds = [
        [0, n] if a == b or maker.random.random() < 0.4 else [a, b]
        for (a, b), n in zip(bounds, x.shape, strict=True)
    ]
    strides = [maker.random.choice((1, 1, 2)) for _ in x.shape]
    maker.emit(build.slice_(x, [a for a, _ in bounds], [b for _, b in bounds], strides))


def _pad(maker: _Maker, x: Value) -> None:
    edges = [
        (maker.random.randint(-1, 2), maker.random.randint(-1, 2), maker.random.choice((0, 0, 1)))
        for _ in x.shape
    ]
    low, high, interior = ([e[k] for e in edges] for k in range(3))
    sizes = [a + n + b + max(n - 1, 0) * k for n, a, b, k in zip(x.shape, low, high, interior, strict=True)]
    if all(n >= 0 for n in sizes) and math.prod(sizes) <= 4 * maker.limits.elements:
        fill = maker.emit(build.splat(TensorType((), x.tensor.dtype), maker._number(x.tensor.dtype)))
        maker.emit(build.pad(x, fill, low, high, interior))


def _concatenate(maker: _Maker, x: Value) -> None:
    if x.tensor.rank and x.tensor.size <= maker.limits.elements:
        maker.emit(build.concatenate([x, maker.like(x)], maker.random.randrange(x.tensor.rank)))


def _reverse(maker: _Maker, x: Value) -> None:
    maker.emit(build.reverse(x, [d for d in range(x.tensor.rank) if maker.random.random() < 0.5]))


def _reduce(maker: _Maker, x: Value) -> None:
    """Sum, product, max, min; and, or for truth values. Any set of dimensions."""
    dims = [d for d in range(x.tensor.rank) if maker.random.random() < 0.5]
    dtype = x.tensor.dtype
    name, first = maker.random.choice(_MONOIDS if dtype is not DType.BOOL else _BOOL_MONOIDS)
    init = maker.emit(build.splat(TensorType((), dtype), first(dtype)))
    maker.emit(build.reduce(name, x, init, dims))


_MONOIDS: Sequence[tuple[str, Callable[[DType], object]]] = (
    ("stablehlo.add", lambda dtype: 0),
    ("stablehlo.add", lambda dtype: 0),
    ("stablehlo.maximum", lambda dtype: -math.inf if dtype.is_float else int(smallest(dtype))),
    ("stablehlo.minimum", lambda dtype: math.inf if dtype.is_float else int(largest(dtype))),
)
_BOOL_MONOIDS: Sequence[tuple[str, Callable[[DType], object]]] = (
    ("stablehlo.or", lambda dtype: False),
    ("stablehlo.and", lambda dtype: True),
)


def _iota(maker: _Maker, x: Value) -> None:
    if x.tensor.rank and x.tensor.dtype is not DType.BOOL:
        maker.emit(build.iota(x.tensor, maker.random.randrange(x.tensor.rank)))


def _dynamic_slice(maker: _Maker, x: Value) -> None:
    """Starts may lie outside: they are clamped."""
    if not x.tensor.rank:
        return
    starts = [maker.like(Value(TensorType((), DType.S32))) for _ in x.shape]
    sizes = tuple(maker.random.randint(min(1, n), n) for n in x.shape)
    result = TensorType(sizes, x.tensor.dtype)
    maker.emit(build.op("stablehlo.dynamic_slice", (x, *starts), result, {"slice_sizes": sizes}))


_STEPS: tuple[Callable[[_Maker, Value], None], ...] = (
    *[_elementwise] * 8,
    *[_convert, _round_trip, _compare, _select],
    *[_reduce, _broadcast, _reduce, _broadcast],
    *[_reshape, _transpose, _slice, _pad, _concatenate, _reverse, _iota, _dynamic_slice],
)


def classes(graph: Graph) -> set[str]:
    """The op classes in a graph, for tests of this module."""
    return {lookup(op.name).op_class.name for op in graph.ops}
