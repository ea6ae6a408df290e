"""Find out that a turn of a loop is several of the same turns, one after another: `lax.scan(..., unroll=k)`.

    %b = dynamic_slice %xs, %i, 0    [1, 2, 8] of [n, 2, 8]
    %v = add %c, %b[0];  %w = add %v, %b[1]                          ->   2 copies of: c = add c, x
    dynamic_update_slice %ys, concatenate(%v, %w), %i, 0; carry %w              leaves c in ys

What a turn reads from a stack, and leaves in one, are `count` parts of the same shape. Its other ops are in
so many segments, of which each does with what the one before left what the first one does with what the turn
began with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.ops.build import is_broadcast, is_reshape, splat_value
from jstitch.passes.base.rewrite import Producer
from jstitch.passes.base.same_ops import are_same
from jstitch.passes.fuse.unroll_loops import Evaluation
from jstitch.passes.graph.count_turns import Counter, count_turns

READ, WRITE = "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"
SLICE, JOIN = "stablehlo.slice", "stablehlo.concatenate"


@dataclass(frozen=True)
class Stack:
    """What turns read a block of, or leave one in.

    place: among what is carried. backwards: the last block first. parts: of one, in the order of the copies.
    """

    place: int
    backwards: bool
    parts: tuple[Value, ...]


@dataclass(frozen=True)
class Copies:
    """count: of them. same: ops that are the same in all turns. ops: of the first copy.

    after: what that leaves, of what is carried and no stack: by place.
    """

    counter: Counter
    count: int
    reads: Sequence[Stack]
    writes: Sequence[Stack]
    same: Sequence[Op]
    ops: Sequence[Op]
    after: dict[int, Value]


def find_copies(loop: Op, producer: Producer) -> Copies | None:
    """None where turns are not seen to be several ones."""
    counter = count_turns(loop, producer)
    if counter is None or (counter.start, counter.step) != (0, 1) or counter.trips < 2:
        return None
    reader = _Reader(loop, counter, producer)
    return reader.copies() if reader.count > 1 and reader.stacks() else None


@dataclass(eq=False)
class _Reader:
    """count: of copies. about: ops that only move parts, or count. parts: part -> the read's number, copy."""

    loop: Op
    counter: Counter
    producer: Producer
    reads: list[Stack] = field(default_factory=list)
    writes: list[Stack] = field(default_factory=list)
    about: set[Op] = field(default_factory=set)
    parts: dict[Value, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.body: Graph = self.loop.regions[1]
        self.inside = self.body.producers()
        self.place = {v: n for n, v in enumerate(self.body.inputs)}
        self.kept = {n for n, v in enumerate(self.body.inputs) if self.body.outputs[n] is v}
        ends = ((n, self._write(n, v)) for n, v in enumerate(self.body.outputs))
        self.written = {n: op for n, op in ends if op is not None}
        self.count = self._count()

    def _write(self, place: int, v: Value) -> Op | None:
        op = self.inside.get(v)
        own = op is not None and op.name == WRITE and op.operands[0] is self.body.inputs[place]
        return op if own else None

    def _read(self) -> Iterator[tuple[int, Op]]:
        """Ops that read stacks, which nothing changes."""
        for op in self.body.ops:
            place = self.place.get(op.operands[0]) if op.name == READ else None
            if place is not None and place in self.kept:
                yield place, op

    def _count(self) -> int:
        """The second dimension of every stack; 0 where there is none."""
        places = {*self.written, *(place for place, _ in self._read())}
        shapes = [self.body.inputs[place].shape for place in places]
        counts = {shape[1] if len(shape) > 1 and shape[0] == self.counter.trips else 0 for shape in shapes}
        return counts.pop() if len(counts) == 1 else 0

    # -- stacks -----------------------------------------------------------------------------------------

    def stacks(self) -> bool:
        """Whether all of them have blocks of as many parts as there are copies."""
        for place, op in self._read():
            backwards = self._direction(op.operands[1:])
            parts = self._parts_of(op)
            if backwards is None or parts is None or not self._is_block(op.results[0]):
                return False
            ordered = parts[::-1] if backwards else parts
            self.parts |= {v: (len(self.reads), n) for n, v in enumerate(ordered)}
            self.reads.append(Stack(place, backwards, ordered))
        for place, op in self.written.items():
            backwards = self._direction(op.operands[2:])
            joined = self._joined(op.operands[1])
            if backwards is None or joined is None or not self._is_block(op.operands[1]):
                return False
            self.about.add(op)
            self.writes.append(Stack(place, backwards, joined[::-1] if backwards else joined))
        return True

    def _is_block(self, v: Value) -> bool:
        """Whether it is one element of a stack, of all its copies."""
        return v.tensor.rank > 1 and v.shape[:2] == (1, self.count)

    def _direction(self, starts: Sequence[Value]) -> bool | None:
        """Whether blocks are gone through backwards; None for anything but one after another."""
        first, *others = starts
        if any(self._number(v) != 0 for v in others):
            return None
        last = self.counter.trips - 1
        asked = sorted({0, 1, last // 2, last})
        found = [self._at(first, turn) for turn in asked]
        if found == asked:
            return False
        return True if found == [last - turn for turn in asked] else None

    def _number(self, v: Value) -> int | None:
        value = splat_value(self.inside.get(v) or self.producer(v))
        return None if value is None else int(value)

    def _at(self, v: Value, turn: int) -> int | None:
        """A number that counts, in that turn."""
        counts = self.body.inputs[self.counter.place]
        known = {counts: np.asarray(turn, counts.tensor.dtype.numpy)}
        found = Evaluation(self.body, known, self.producer).value(v)
        return None if found is None else int(found)

    def _parts_of(self, read: Op) -> tuple[Value, ...] | None:
        """The parts of a block, which are all that is taken from it: by slices, reshapes in between."""
        whole = read.results[0]
        size = whole.tensor.size // self.count
        if size == 0:
            return None
        begins = {whole: 0}
        found: dict[int, Value] = {}
        self.about.add(read)
        for op in self.body.ops:
            if op is read or not any(v in begins for v in op.operands):
                continue
            begin = _begin(op)
            if begin is None:
                return None
            begin += begins[op.operands[0]]
            v = op.results[0]
            if v.tensor.size > size:
                begins[v] = begin
            elif v.tensor.size < size or begin % size or begin // size in found:
                return None
            else:
                found[begin // size] = v
            self.about.add(op)
        types = {v.type for v in found.values()}
        complete = set(found) == set(range(self.count)) and len(types) == 1
        return tuple(found[n] for n in range(self.count)) if complete else None

    def _joined(self, v: Value) -> tuple[Value, ...] | None:
        """The parts that a block is made of."""
        op = self.inside.get(v)
        while op is not None and _moves_nothing(op):
            self.about.add(op)
            op = self.inside.get(op.operands[0])
        if op is None or op.name != JOIN or len(op.operands) != self.count:
            return None
        self.about.add(op)
        size = v.tensor.size // self.count
        if any(part.tensor.size != size for part in op.operands) or len({p.type for p in op.operands}) > 1:
            return None
        if math.prod(op.operands[0].shape[: op.attrs["dimension"]]) != 1:
            return None
        return tuple(map(self._unwrapped, op.operands))

    def _unwrapped(self, part: Value) -> Value:
        """Without the shape that it was given to be joined."""
        op = self.inside.get(part)
        if op is None or not _moves_nothing(op):
            return part
        self.about.add(op)
        return op.operands[0]

    # -- segments ---------------------------------------------------------------------------------------

    def copies(self) -> Copies | None:
        same, ops = self._classes()
        if ops is None or not ops or len(ops) % self.count:
            return None
        length = len(ops) // self.count
        segments = [ops[n : n + length] for n in range(0, len(ops), length)]
        matcher = _Matcher(self, segments)
        if not matcher.match():
            return None
        stacks = self.reads, self.writes
        return Copies(self.counter, self.count, *stacks, same, segments[0], matcher.after())

    def _classes(self) -> tuple[list[Op], list[Op] | None]:
        """Ops that are the same in all turns, and those of the copies; None where one of these counts."""
        inputs = self.body.inputs
        counts, stacks = {inputs[self.counter.place]}, {inputs[s.place] for s in (*self.reads, *self.writes)}
        varies = {v for n, v in enumerate(inputs) if n not in self.kept}.union(self.parts) - counts - stacks
        hidden = {v for op in self.about for v in op.results}.union(stacks) - varies
        same: list[Op] = []
        ops: list[Op] = []
        for op in self.body.ops:
            if op in self.about:
                continue
            uses = set(op.uses)
            if uses & varies:
                if uses & (counts | hidden):
                    return same, None
                ops.append(op)
                varies |= set(op.results)
            elif uses & counts:
                counts |= set(op.results)
            elif uses & hidden:
                return same, None
            else:
                same.append(op)
        return same, ops


class _Matcher:
    """Whether segments do the same, each with what the one before left."""

    def __init__(self, reader: _Reader, segments: Sequence[Sequence[Op]]) -> None:
        self.r, self.segments = reader, segments
        self.own = {
            v: (n, (i, k))
            for n, ops in enumerate(segments)
            for i, op in enumerate(ops)
            for k, v in enumerate(op.results)
        }
        stacks = {*reader.written, *(s.place for s in reader.reads), reader.counter.place}
        body = reader.body
        self.carried = [n for n in range(len(body.inputs)) if n not in stacks and n not in reader.kept]
        self.left: list[dict[int, Value]] = [{n: body.inputs[n] for n in self.carried}]

    def match(self) -> bool:
        if not self._follow():
            return False
        pairs = (
            (n, one, other)
            for n in range(1, len(self.segments))
            for one, other in zip(self.segments[0], self.segments[n], strict=True)
        )
        if not all(are_same(a, b) and self._all_alike(a.uses, b.uses, n) for n, a, b in pairs):
            return False
        left = ((s.parts[0], v, n) for s in self.r.writes for n, v in enumerate(s.parts))
        return all(self._are_alike(*one) for one in left)

    def after(self) -> dict[int, Value]:
        """What the first copy leaves."""
        return self.left[1]

    def _all_alike(self, one: Sequence[Value], other: Sequence[Value], copy: int) -> bool:
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(self._are_alike(a, b, copy) for a, b in pairs)

    def _are_alike(self, first: Value, v: Value, copy: int) -> bool:
        """Whether v is in that copy what `first` is in the first one."""
        if first in self.own:
            number, place = self.own[first]
            return number == 0 and self.own.get(v) == (copy, place)
        if first in self.r.parts:
            stack, number = self.r.parts[first]
            return number == 0 and self.r.parts.get(v) == (stack, copy)
        place_ = self.r.place.get(first)
        if place_ in self.left[0]:
            return self.left[copy][place_] is v
        return first is v or self._are_constants(first, v)

    def _are_constants(self, one: Value, other: Value) -> bool:
        a, b = (self.r.inside.get(v) for v in (one, other))
        if a is None or b is None or a.operands or b.operands:
            return False
        return lookup(a.name).op_class is OpClass.CONSTANT and are_same(a, b)

    def _follow(self) -> bool:
        """What each copy leaves: as the last one does, an op's result, a part, or what another place had."""
        ends = {n: self.r.body.outputs[n] for n in self.carried}
        last = self.r.count - 1
        rows: list[dict[int, Value]] = [dict(self.left[0]), *({} for _ in range(self.r.count))]
        waiting = dict(ends)
        while waiting:
            known = [n for n, v in waiting.items() if self._step(n, v, last, rows)]
            if not known:
                return False
            for n in known:
                del waiting[n]
        self.left = rows
        return all(rows[-1][n] is v for n, v in ends.items())

    def _step(self, place: int, end: Value, last: int, rows: list[dict[int, Value]]) -> bool:
        """Fill in what the copies leave there, if that can be told already."""
        if end in self.own and self.own[end][0] == last:
            i, k = self.own[end][1]
            made = [segment[i].results[k] for segment in self.segments]
        elif end in self.r.parts and self.r.parts[end][1] == last:
            made = list(self.r.reads[self.r.parts[end][0]].parts)
        else:
            other = next((n for n in self.carried if rows[last].get(n) is end), None)
            if other is None or any(other not in row for row in rows[: last + 1]):
                return False
            made = [row[other] for row in rows[: last + 1]]
        for row, v in zip(rows[1:], made, strict=True):
            row[place] = v
        return True


def _begin(op: Op) -> int | None:
    """Where in its operand, element by element, the result begins, if that is a run of it."""
    if is_reshape(op):
        return 0
    if op.name != SLICE or any(step != 1 for step in op.attrs["strides"]):
        return None
    shape, begins, ends = op.operands[0].shape, op.attrs["start_indices"], op.attrs["limit_indices"]
    cut = [d for d, n in enumerate(shape) if ends[d] - begins[d] != n]
    if any(ends[d] - begins[d] != 1 for d in range(cut[-1])) if cut else False:
        return None
    return sum(int(begin) * math.prod(shape[d + 1 :]) for d, begin in enumerate(begins))


def _moves_nothing(op: Op) -> bool:
    """Whether the result has the operand's elements in the same order, in another shape."""
    grows = is_broadcast(op) and op.operands[0].tensor.size == op.results[0].tensor.size
    if not grows:
        return is_reshape(op)
    dims = list(op.attrs["broadcast_dimensions"])
    return dims == sorted(dims)
