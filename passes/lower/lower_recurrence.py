"""A loop and what is around it -> Kernel: elements of carries are rows, of which a program does all turns.

GAE, 128 turns of 64 environments, reversed        sums of 1024 rows of 4096 numbers
    lane: 64 rows, flat                                lane: 1024 rows
      stage 0: for r: c0[r] = 0                          stage 0: for r:  c = 0
      for turn: stage 1: for r: ... c0[r] = v7             for turn: c = c + x[r * 4096 + turn]
                                ys[...] = v7                         ys[r * 4096 + turn] = c

Left: neighbours of a turn are neighbours in memory, all of them or those of a row, and carries are in cache.
Right: neighbours are the turns of one element, whose carry is in a register. What a loop makes of fewer
elements has a lane of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.codegen.kernel_ir import (
    ROW,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Loop,
    Nest,
    Space,
    Stage,
)
from jstitch.codegen.kernel_queries import numbers_each
from jstitch.ir.expr import Ref, index_refs, numbers
from jstitch.ir.graph import Op, Value
from jstitch.ir.index import FloorDiv, Index, Mod, Var, add, atoms, linearize, mul, var
from jstitch.ir.types import TensorType
from jstitch.passes.base.profile import Profile
from jstitch.passes.graph.find_recurrence import TURN, Carry
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.build_turn import TurnBuilder
from jstitch.passes.lower.divide_turns import divide_turns
from jstitch.passes.lower.loop_pattern import LoopPattern, read_pattern
from jstitch.passes.lower.lower_cell import lower_cell
from jstitch.passes.lower.turn_lane import TurnLane, nothing, variables_of
from jstitch.passes.lower.turns_in_registers import ELEMENT, InRegisters

SHARE = 4096  # elements of a program, whose carries are then in its core's first cache
LEAST, PROGRAMS = 512, 8  # elements of a program that shares them with few others; such programs
SHORTEST = 9  # elements of a row; the carries of fewer are better in registers
APART = 7  # cycles of a vector lane that turns wait for, for which an element may be gathered


Held = dict[Buffer, tuple[Value, tuple[Index, ...]]]
"""Memory of what is the same in all turns, and which element of what it has of each row."""


def lower_recurrence(
    name: str,
    ops: Sequence[Op],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    profile: Profile,
    limit: int | None = None,
) -> Kernel:
    """The kernel of a pattern with one loop. Arguments as for `lower_kernel`; raises CannotLowerError."""
    pattern = read_pattern(ops, inputs, outputs, profile)
    if any(v.tensor.size == 0 for v in (*inputs, *outputs, *(c.before for c in pattern.loop.carries))):
        raise CannotLowerError("its turns read nothing, go on from nothing, or leave nothing")
    try:
        return _by_elements(name, pattern)
    except CannotLowerError:
        del pattern.scratch[:]
        return lower_cell(name, pattern, limit)


def _by_elements(name: str, pattern: LoopPattern) -> Kernel:
    """Where a turn needs of each element that element alone."""
    outputs, profile = pattern.outputs, pattern.profile
    sizes = pattern.sizes()
    lanes = []
    for size in dict.fromkeys(sizes.values()):
        wanted = [v for v in outputs if sizes[v] == size]
        if profile.machine.device is not None:
            lanes.append(InRegisters(pattern, size, wanted).by_threads(len(set(sizes.values())) == 1))
            continue
        lanes.append(_in_cache(pattern, size, wanted) or InRegisters(pattern, size, wanted).lane())
    return pattern.kernel(name, lanes)


def _in_cache(pattern: LoopPattern, size: int, wanted: Sequence[Value]) -> Lane | None:
    """With carries in cache, by the longest rows that are neighbours in memory; None where they are short."""
    known = len(pattern.scratch)
    waiting = divide_turns(pattern.loop, pattern.producers, ()).cycles
    best: tuple[int, int] | None = None  # accesses that are apart, rows
    for rows in pattern.row_counts(size):
        if size // rows < SHORTEST or (best is not None and best[0] == 0):
            break
        near, apart = _accesses(_InCache(pattern, size, wanted, rows).lane())
        del pattern.scratch[known:]
        pays = apart <= near or waiting > APART * apart  # in vectors, with accesses one by one
        if pays and (best is None or apart < best[0]):
            best = apart, rows
    return None if best is None else _InCache(pattern, size, wanted, best[1]).lane()


def _accesses(lane: Lane) -> tuple[int, int]:
    """How many accesses, but to carries, have neighbours in memory where rows have; how many have not.

    What is computed from a part of the place in a row counts as one that has not.
    """
    near = apart = 0
    inner = ROW if lane.flat else ELEMENT
    for i in (i for stage in lane.stages if stage.turn for i in stage.nests[0].instructions):
        if isinstance(i, Let):
            apart += any(_divides(e, inner) for e in numbers(i.value))
        elif i.buffer.space is Space.ARG or TURN in variables_of(i.offset):
            step = next((k for a, k in i.offset.terms if isinstance(a, Var) and a.name == inner), 0)
            each = numbers_each(i.buffer)
            near += step == each and not _divides(i.offset, inner)
            apart += step > each or _divides(i.offset, inner)
    return near, apart


def gathers(kernel: Kernel) -> int:
    """Accesses of a turn of a loop's kernel that have no neighbours in memory where rows have."""
    return sum(_accesses(lane)[1] for phase in kernel.phases for lane in phase.lanes)


def _divides(e: Index, name: str) -> bool:
    parts = (a.of for a in atoms([e]) if isinstance(a, FloorDiv | Mod))
    return any(name in variables_of(part) for part in parts)


@dataclass(eq=False)
class _InCache(TurnLane):
    """Turns around a loop over elements; carries are in memory that stays in a core's cache.

    count: rows that programs take one by one; 1: a program has a share of the elements.
    """

    count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.row = var(Var(ROW, self.size))
        if self.count > 1:
            slab = self.size // self.count
            self.rows = [Loop(Var(ROW, self.count), 0, 1), Loop(Var(ELEMENT, slab), 0, slab)]
            self.row = add(mul(var(Var(ROW, self.count)), slab), var(Var(ELEMENT, slab)))

    def lane(self) -> Lane:
        row = self.row
        memory: dict[Carry, Buffer] = {}
        turn = self.builder(self.rows, lambda c, index: turn.read(self.memory(c, index, row, memory), row))
        held: Held = {}
        turn.hold = lambda v, index: self.hold(v, index, turn, held)
        stored = self.stacks(turn, row)
        end = self.builder(self.rows, lambda c, index: self.at_end(c, index, turn, end, memory), at_end=True)
        homes = self.homes(row)
        last = [(v, end.parts(v, homes[v])) for v in self.ends]
        after = self.afters(turn)
        for v, offset, values in stored:
            turn.store(self.pattern.results[v], offset, *values)
        for c, value in after.items():
            turn.store(memory[c], row, value)
        for v, values in last:
            if self.pattern.results[v] not in memory.values():
                end.store(self.pattern.results[v], linearize(homes[v], v.shape), *values)
        stages = [
            *self.stage("what the first turn goes on from", self.start(turn, row, memory, held)),
            *self.stage("a turn", turn.body, self.turn),
            *self.stage("what the last turn leaves", end.body if self.ends else []),
        ]
        work = self.pattern.work(self.size)
        if self.count > 1:
            return Lane(self.count, 1, self.pattern.programs(self.count, work), tuple(stages), False, work)
        programs = max(1, -(-self.size // SHARE), min(PROGRAMS, self.size // LEAST))
        return Lane(self.size, 1, programs, tuple(stages), True, work)

    def memory(self, c: Carry, index: tuple[Index, ...], row: Index, known: dict[Carry, Buffer]) -> Buffer:
        """A carry's: that of the loop's result, where it is as wide."""
        kind = c.after.tensor.dtype.compute
        own = (self.pattern.results[v] for v in self.ends if v is c.result)
        result = next(own, None)
        if result is not None and result.type.dtype is kind and linearize(index, c.before.shape) == row:
            known[c] = result
        else:
            known[c] = self.pattern.new_scratch(TensorType((self.size,), kind))
        return known[c]

    def at_end(
        self,
        c: Carry,
        index: tuple[Index, ...],
        turn: TurnBuilder,
        end: TurnBuilder,
        memory: dict[Carry, Buffer],
    ) -> Ref:
        """A carry behind the last turn, which goes on from it."""
        turn.value(c.before, index)
        return end.read(memory[c], self.row)

    def hold(
        self,
        v: Value,
        index: tuple[Index, ...],
        turn: TurnBuilder,
        held: Held,
    ) -> Ref | None:
        """What all turns read, apart for neighbours: copied side by side before the first one."""
        offset = linearize(index, v.shape)
        inner = ROW if self.count == 1 else ELEMENT
        if TURN in variables_of(offset) or not _divides(offset, inner) or index_refs(offset):
            return None
        buffer = self.pattern.new_scratch(TensorType((self.size,), v.tensor.dtype.compute))
        held[buffer] = v, index
        return turn.read(buffer, self.row)

    def start(
        self,
        turn: TurnBuilder,
        row: Index,
        memory: dict[Carry, Buffer],
        held: Held,
    ) -> list[Instr]:
        builder = self.builder(self.rows, nothing)
        for buffer, (v, index) in held.items():
            builder.store(buffer, row, builder.value(v, index))
        for c, buffer in memory.items():
            builder.store(buffer, row, self.first(c, turn.carried[c][1], builder))
        return builder.body

    def stage(self, note: str, body: Sequence[Instr], turn: Loop | None = None) -> list[Stage]:
        """None where there is nothing to do."""
        lines = self.pattern.lines if turn is not None else ()
        nest = Nest(tuple(self.rows), (), tuple(body), ())
        return [Stage((nest,), note, lines=lines, turn=turn)] if body else []
