"""Count what a loop nest executes: instructions by class, and its accesses to memory.

for i0 in [0, 768):                  elements: 768 * (1 multiply + 1 add), in vectors of 4-byte lanes
  v0 = a0[r * 768 + i0]       ->     loops: 1 started
  acc = acc + v0 * v0                accesses: a0, 768 of them, neighbours

Counts are of one run of the nest: one row step, or all rows of a flat lane.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from jstitch.codegen.cpu.panel import VECTOR, is_packed, pack_cycles, product_cycles
from jstitch.codegen.cpu.sort_work import sort_work
from jstitch.codegen.intrinsics import cycles
from jstitch.codegen.kernel_ir import (
    PROGRAM,
    ROW,
    STEP,
    Buffer,
    Let,
    Load,
    LoadPair,
    Loop,
    Nest,
    Product,
    Sorting,
    Store,
    StorePair,
)
from jstitch.ir.expr import Call, Const, Expr, Number, calls, index_operations
from jstitch.ir.index import Clamp, Dynamic, FloorDiv, Index, Mod, Var, atoms
from jstitch.ir.types import DType
from jstitch.passes.base.machine import F32_BYTES

_BY_NUMBER = 4.0  # cycles of a division by a number that is known
_DIVIDES = frozenset({"idiv", "irem"})
_WIDE = frozenset({"convert_s64", "convert_u64", "convert_f64"})
_NARROW = frozenset({"convert_bf16", "convert_f8e4m3fn", "convert_f8e5m2"})


class Way(enum.Enum):
    """How an access goes on from one turn of the innermost loop to the next."""

    SAME = "the same element"
    NEXT = "the next element"
    FAR = "an element at a constant distance"
    ANYWHERE = "by division, a clamp, or a number read from memory"


@dataclass(frozen=True)
class Access:
    """A load or a store. times: runs of it. distinct: elements it reaches, at most, over one run of the nest.

    by_step, by_program: whether the next row step, or the next program, reaches others. reach: turns of the
    innermost loop, stride: elements from one to the next. divisions: in the index, at each turn.
    """

    buffer: Buffer
    offset: Index
    store: bool
    way: Way
    times: int
    distinct: int
    by_step: bool
    by_program: bool
    reach: int
    stride: int
    divisions: int

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.buffer.type.dtype.itemsize

    @property
    def scattered(self) -> bool:
        return self.way in (Way.FAR, Way.ANYWHERE)

    @property
    def rounded(self) -> bool:
        """Whether it stores a float that no processor rounds to by itself."""
        dtype = self.buffer.type.dtype
        return self.store and dtype.compute is not dtype and dtype is not DType.F16


@dataclass(frozen=True)
class NestWork:
    """inner: cycles of the innermost loop's instructions, summed over its turns; outer: of all others.

    narrow: roundings to narrow floats. loops: innermost loops started; turns: of each. lane_bytes: of the
    widest number in the innermost loop. reduced: accumulators of the innermost loop.
    """

    inner: float
    outer: float
    narrow: float
    loops: int
    turns: int
    lane_bytes: int
    reduced: int
    accesses: tuple[Access, ...]

    @property
    def scattered(self) -> float:
        """Accesses whose elements are not neighbours, one by one."""
        return sum(a.times for a in self.accesses if a.scattered)

    @property
    def divisions(self) -> float:
        return sum(a.times * a.divisions for a in self.accesses)


def count(nest: Nest, cost: Callable[[str], float] = cycles, rows: int | None = None) -> NestWork:
    """What one run of the nest executes.

    cost: cycles of a function. rows: turns of the row loop, where that is all rows of a
    flat lane.
    """
    match nest:
        case Product():
            return _product(nest)
        case Sorting():
            return _sorting(nest)
    extents = [
        rows // loop.each if rows and loop.var.name == ROW else loop.hi - loop.lo for loop in nest.loops
    ]
    deepest = len(extents)
    times = [math.prod(extents[:depth]) for depth in range(deepest + 1)]
    inner = outer = narrow = 0.0
    for i in nest.instructions:
        each = expr_cycles(i.value, cost) if isinstance(i, Let) else cost("load")
        if i.depth == deepest:
            inner += each * times[deepest]
        else:
            outer += each * times[i.depth]
        narrow += times[i.depth] * _count(i.value, _NARROW) if isinstance(i, Let) else 0
    return NestWork(
        inner,
        outer,
        narrow,
        times[deepest - 1] if deepest else 0,
        extents[-1] if deepest else 1,
        _lane_bytes(nest, deepest),
        sum(a.depth < deepest for a in nest.accumulators),
        tuple(_accesses(nest, extents, times)),
    )


def _product(p: Product) -> NestWork:
    """By tiles of registers: each operand is read about once."""
    m, n, k = p.sizes
    packs = is_packed(m, p.right.strides[1], p.right.buffer.type.dtype)
    inner = product_cycles(m, n, k) + (pack_cycles(n, k) if packs else 0.0)
    sides = ((p.left, m * k), (p.right, n * k), (p.result, m * n))
    accesses = []
    for x, size in sides:
        named, written = _variables(x.first), x is p.result
        moves = bool(named & {ROW, STEP}), PROGRAM in named
        accesses.append(Access(x.buffer, x.first, written, Way.NEXT, size, size, *moves, size, 1, 0))
    return NestWork(inner, 0.0, 0.0, 0, VECTOR, F32_BYTES, 0, tuple(accesses))


def _sorting(s: Sorting) -> NestWork:
    """One by one, outside vectors."""
    size = s.items.type.size
    tiles = [
        Access(tile, Index(), True, Way.NEXT, size, size, False, False, size, 1, 0)
        for tile in (s.items, s.room)
    ]
    return NestWork(0.0, sort_work(size), 0.0, 0, 1, F32_BYTES, 0, tuple(tiles))


def expr_cycles(e: Expr, cost: Callable[[str], float] = cycles) -> float:
    """Cycles of an expression on one lane, relative to an add."""
    match e:
        case Number(index):
            simple, divisions, clamps = index_operations(index)
            return simple * cost("iadd") + divisions * _BY_NUMBER + clamps * cost("clamp_index")
        case Call(function, args):
            known = function in _DIVIDES and isinstance(args[1], Const)
            own = _BY_NUMBER if known else cost(function)
            return own + sum(expr_cycles(a, cost) for a in args)
    return 0.0


def _count(e: Expr, functions: Collection[str]) -> int:
    return sum(c.function in functions for c in calls(e))


def _lane_bytes(nest: Nest, deepest: int) -> int:
    """Bytes of the widest number that the innermost loop computes with."""
    widest = 1
    for i in nest.instructions:
        if i.depth < deepest:
            continue
        if isinstance(i, Let):
            widest = max(widest, 8 if _count(i.value, _WIDE) else 4)
        else:
            widest = max(widest, i.buffer.type.dtype.compute.itemsize)
    return widest


def _accesses(nest: Nest, extents: Sequence[int], times: Sequence[int]) -> Iterator[Access]:
    for i in _memory(nest):
        named = _variables(i.offset)
        around = zip(nest.loops[: i.depth], extents, strict=False)
        reached = [extent for loop, extent in around if loop.var.name in named]
        dynamic = any(isinstance(a, Dynamic) for a in atoms([i.offset]))
        inner = nest.loops[-1] if nest.loops and i.depth == len(nest.loops) else None
        each = 2 if isinstance(i, LoadPair | StorePair) else 1
        way, stride = _way(i.offset, inner, each)
        yield Access(
            i.buffer,
            i.offset,
            isinstance(i, Store),
            way,
            each * times[i.depth],
            each * (times[i.depth] if dynamic else math.prod(reached)),
            bool(named & {ROW, STEP}) or dynamic,
            PROGRAM in named,
            each * extents[-1] if inner else 1,
            stride,
            _divisions(i.offset, inner),
        )


def _memory(nest: Nest) -> Iterator[Load | Store]:
    return (i for i in nest.instructions if not isinstance(i, Let))


def _variables(e: Index) -> set[str]:
    return {a.name for a in atoms([e]) if isinstance(a, Var)}


def _way(e: Index, inner: Loop | None, each: int) -> tuple[Way, int]:
    """And the distance of neighbours; a turn takes `each` of them."""
    if inner is None:
        return Way.SAME, 0
    if any(isinstance(a, Dynamic) for a in atoms([e])):
        return Way.ANYWHERE, 0
    name, stride = inner.var.name, 0
    for a, k in e.terms:
        if isinstance(a, Var) and a.name == name:
            stride = k // each
        elif isinstance(a, FloorDiv | Mod | Clamp) and name in _variables(a.of):
            return Way.ANYWHERE, 0
    return {0: Way.SAME, 1: Way.NEXT}.get(stride, Way.FAR), abs(stride)


def _divisions(e: Index, inner: Loop | None) -> int:
    """Divisions that are made anew at each turn of the innermost loop; // and % by one number are one."""
    if inner is None:
        return 0
    found = [a for a in atoms([e]) if isinstance(a, FloorDiv | Mod)]
    return len({(a.of, a.by) for a in found if inner.var.name in _variables(a.of)})
