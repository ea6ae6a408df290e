"""A sort -> Kernel: programs take rows one by one, sort words of a key and a place, and read by the places.

sort of 1000 rows of 300 pairs, by the first numbers
    lane: 1000 rows
      for e:  t0[e] = key(a0[row, e]) << 32 | e
      by digits, of words in t0 and t1
      for e:  o0[row, e] = a0[row, t0[e]];  o1[row, e] = a1[row, t0[e]]

With several words of keys the lowest are sorted first, and the next ones in the order that is found then:
equal ones stay as they were.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.kernel_ir import (
    ROW,
    Buffer,
    Kernel,
    Lane,
    Let,
    Load,
    Loop,
    Nest,
    Phase,
    Sorting,
    Space,
    Stage,
    Store,
)
from jstitch.ir.expr import Atomic, Const, Expr, Number, Ref, call
from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index, Var, add, clamp, const, delinearize, linearize, var
from jstitch.ir.ops.numerics import kernel_name
from jstitch.ir.reason import Reason
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.sort_order import TOP_K, dim_of, kept_of, may_sort, order_of
from jstitch.passes.lower.build_nest import CannotLowerError, NestBuilder
from jstitch.passes.lower.place_tiles import ALIGN
from jstitch.passes.lower.quote_lines import quote_lines
from jstitch.passes.lower.sort_words import HALF, LOW, sort_words
from jstitch.passes.lower.written import Place

ELEMENT, TURN, PAIR = "e", "t", "k"
LONGEST = 1 << 24  # items of a row: 16 bytes for each of them are a program's
WORK = 32  # elements of light work that an item is


def sort_of(ops: Sequence[Op]) -> Op | None:
    """The sort among a pattern's ops."""
    return next((op for op in ops if may_sort(op)), None)


def lower_sort(
    name: str, ops: Sequence[Op], inputs: Sequence[Value], outputs: Sequence[Value], profile: Profile
) -> Kernel:
    """The kernel of a pattern with one sort. Arguments as for `lower_kernel`; raises CannotLowerError."""
    op = sort_of(ops)
    assert op is not None
    _check_types(op)
    length = op.operands[0].shape[dim_of(op)]
    if profile.machine.device is not None:
        raise CannotLowerError("kernels sort on CPUs only")
    if not 2 <= length <= LONGEST or any(v.tensor.size == 0 for v in op.results):
        raise CannotLowerError(
            Reason("sort", "rows of {found} items; kernels sort 2 to {bound}", length, LONGEST)
        )
    if any(v not in op.results for v in outputs):
        raise CannotLowerError("what goes into the sort is wanted besides")
    return _Lowering(name, op, ops, inputs, outputs, profile).kernel()


def _check_types(op: Op) -> None:
    """Raises CannotLowerError for items that kernels do not hold."""
    for v in (*op.operands, *op.results):
        if not isinstance(v.type, TensorType) or kernel_name(v.type.dtype) is None:
            raise CannotLowerError(f"no kernel sorts items of type '{v.type}'")


@dataclass(eq=False)
class _Lowering:
    name: str
    op: Op
    ops: Sequence[Op]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    profile: Profile
    names: Callable[[], str] = field(init=False)

    def __post_init__(self) -> None:
        counter = itertools.count()
        self.names = lambda: f"v{next(counter)}"
        self.shape, self.dim = self.op.operands[0].shape, dim_of(self.op)
        self.length = self.shape[self.dim]
        self.rows = math.prod(self.shape) // self.length
        kind = TensorType((self.length,), DType.U64)
        self.items = Buffer("t0", kind, Space.ARENA)
        self.room = Buffer("t1", kind, Space.ARENA, 1, -(-kind.nbytes // ALIGN) * ALIGN)
        self.args = tuple(Buffer(f"a{n}", v.tensor, Space.ARG, n) for n, v in enumerate(self.inputs))
        self.results = tuple(Buffer(f"o{n}", v.tensor, Space.RESULT, n) for n, v in enumerate(self.outputs))
        self.row = Loop(Var(ROW, self.rows), 0, 1)

    def kernel(self) -> Kernel:
        order = order_of(self.op)
        if isinstance(order, Reason):
            raise CannotLowerError(order)
        words, made = sort_words(self.op, order)
        self.producers = {v: op for op in (*self.ops, *made) if op is not self.op for v in op.results}
        stages = [stage for n, word in enumerate(words) for stage in self.by_word(word, n == 0)]
        work = self.rows * self.length * WORK * len(words)
        programs = max(1, min(self.rows, work // self.profile.program_work, self.profile.max_programs))
        lane = Lane(self.rows, 1, programs, (*stages, self.by_places()), False, work)
        size = self.room.offset + self.room.type.nbytes
        tiles = self.items, self.room
        return Kernel(self.name, self.args, self.results, (), tiles, (Phase((lane,)),), 0, size)

    def builder(self, count: int) -> tuple[NestBuilder, Loop]:
        """For a nest over so many of a row's items."""
        loop = Loop(Var(ELEMENT, count), 0, count)
        places = {v: Place(b) for v, b in zip(self.inputs, self.args, strict=True)}
        depths = {ROW: 1, ELEMENT: 2}
        return NestBuilder(self.producers, places, depths, self.names), loop

    def index(self, place: Index) -> tuple[Index, ...]:
        """Of the row's item there, in the operands."""
        others = (*self.shape[: self.dim], 1, *self.shape[self.dim + 1 :])
        found = delinearize(var(self.row.var), others)
        return (*found[: self.dim], place, *found[self.dim + 1 :])

    def place(self, builder: NestBuilder, loop: Loop) -> Index:
        """Where the item was that is at this place now."""
        item = builder.read(self.items, var(loop.var), 2)
        low = call("and_", item, Const(LOW, DType.U64))
        return clamp(builder.number(builder.let(call("convert_s64", low), 2)), 0, self.length - 1)

    def by_word(self, word: Value, first: bool) -> tuple[Stage, Stage]:
        """Items with the word in front, and these in order."""
        builder, loop = self.builder(self.length)
        place = var(loop.var) if first else self.place(builder, loop)
        key = call("shl", call("convert_u64", builder.value(word, self.index(place))), Const(HALF, DType.U64))
        item = call("or_", key, call("convert_u64", Number(place)))
        builder.store(self.items, var(loop.var), builder.let(item, 2))
        note = "keys and places" if first else "keys in the order found so far"
        return self.stage(builder, loop, note), Stage((self.sorting(),), "sort by the keys")

    def sorting(self) -> Sorting:
        """As what it computes: neighbours are exchanged, as often as there are items."""
        turns = Loop(Var(TURN, self.length), 0, self.length)
        pairs = Loop(Var(PAIR, self.length - 1), 0, self.length - 1)
        here, behind = var(pairs.var), add(var(pairs.var), const(1))
        x, y, swap = (Ref(self.names()) for _ in range(3))
        body = (
            Load(x.name, self.items, here, 3),
            Load(y.name, self.items, behind, 3),
            Let(swap.name, call("lt", _key(y), _key(x)), 3),
            Store(self.items, here, call("select", swap, y, x), 3),
            Store(self.items, behind, call("select", swap, x, y), 3),
        )
        return Sorting((self.row, turns, pairs), (), body, (), items=self.items, room=self.room)

    def by_places(self) -> Stage:
        """The results, read from where the items were."""
        builder, loop = self.builder(kept_of(self.op))
        place, at = self.place(builder, loop), self.index(var(loop.var))
        for v, buffer in zip(self.outputs, self.results, strict=True):
            builder.store(buffer, linearize(at, v.shape), self.result(builder, v, place))
        return self.stage(builder, loop, "what the items are, in order")

    def result(self, builder: NestBuilder, v: Value, place: Index) -> Atomic:
        """The element of a result that was at that place; the place itself is `top_k`'s second one."""
        number = self.op.results.index(v)
        if self.op.name == TOP_K and number > 0:
            return builder.position(v.tensor.dtype, place)
        return builder.value(self.op.operands[number], self.index(place))

    def stage(self, builder: NestBuilder, loop: Loop, note: str) -> Stage:
        lines = quote_lines([self.op], (), {}, {self.op: 0})
        return Stage((Nest((self.row, loop), (), tuple(builder.body), ()),), note, lines=lines)


def _key(item: Expr) -> Expr:
    return call("shr_logical", item, Const(HALF, DType.U64))
