"""A loop and what is around it -> Kernel: the elements of its carries are rows, a program does all turns of its own.

GAE, 128 turns of 64 environments, reversed        scan over rows of 4096 numbers each
    lane: 64 rows, flat                                lane: 1024 rows
      stage 0: for r: c0[r] = 0                          stage 0: for r:  c = 0
      for turn: stage 1: for r: ... c0[r] = v7                              for turn: c = c + x[r * 4096 + turn]
                                ys[...] = v7                                          ys[r * 4096 + turn] = c

Left: neighbours of a turn are neighbours in memory, and carries are in cache. Right: neighbours are the turns
of one element, whose carry is in a register.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.kernel_ir import (
    ROW,
    Accumulator,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    Loop,
    Nest,
    Phase,
    Space,
    Stage,
    Store,
)
from jstitch.ir.expr import Atomic, Ref, call
from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index, Var, atoms, const, delinearize, linearize, var
from jstitch.ir.ops import lookup
from jstitch.ir.ops.numerics import kernel_name
from jstitch.ir.reason import Reason
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.profile import Profile
from jstitch.passes.graph.find_recurrence import TURN, Carry, Recurrence, Stack, find_recurrence, may_recur
from jstitch.passes.lower.build_nest import CannotLowerError, Place
from jstitch.passes.lower.build_turn import Carried, TurnBuilder
from jstitch.passes.lower.place_tiles import ALIGN
from jstitch.passes.lower.quote_lines import quote_lines

SHARE = 4096  # elements of a program, whose carries are then in its core's first cache
FEW = 8  # elements, whose carries are better in registers


def loop_of(ops: Sequence[Op]) -> Op | None:
    """The recurrence among a pattern's ops."""
    return next((op for op in ops if may_recur(op)), None)


def lower_recurrence(
    name: str, ops: Sequence[Op], inputs: Sequence[Value], outputs: Sequence[Value], profile: Profile
) -> Kernel:
    """The kernel of a pattern with one loop. Arguments as for `lower_kernel`; raises CannotLowerError."""
    op = loop_of(ops)
    assert op is not None
    producers = {v: o for o in ops if o is not op for v in o.results}
    found = find_recurrence(op, producers.get)
    if isinstance(found, Reason):
        raise CannotLowerError(found)
    lowering = _Lowering(name, found, ops, inputs, outputs, profile)
    if lowering.size > FEW:
        kernel = lowering.in_cache()
        if not _is_turned(kernel):
            return kernel
    return _Lowering(name, found, ops, inputs, outputs, profile).in_registers()


def _is_turned(kernel: Kernel) -> bool:
    """Whether neighbours of a turn are apart in memory, more often than not."""
    apart = near = 0
    for *_, i in kernel.instructions():
        if isinstance(i, Let) or not any(isinstance(a, Var) and a.name == TURN for a in atoms([i.offset])):
            continue
        step = dict(i.offset.terms).get(Var(ROW, kernel.phases[0].lanes[0].rows))
        near, apart = near + (step == 1), apart + (step != 1)
    return apart > near


@dataclass(eq=False)
class _Lowering:
    name: str
    loop: Recurrence
    ops: Sequence[Op]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    profile: Profile
    homes: dict[Value, tuple[Index, ...]] = field(default_factory=dict)
    scratch: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.args = tuple(Buffer(f"a{n}", v.tensor, Space.ARG, n) for n, v in enumerate(self.inputs))
        self.results = {
            v: Buffer(f"o{n}", v.tensor, Space.RESULT, n) for n, v in enumerate(self.outputs)
        }
        around = [op for op in self.ops if not may_recur(op)]
        self.producers = {v: op for op in (*around, *self.loop.ops) for v in op.results}
        counter = itertools.count()
        self.names: Callable[[], str] = lambda: f"v{next(counter)}"
        carried = (c.before.tensor.size for c in self.loop.carries)
        self.size = max((*carried, *(s.part.tensor.size for s in self.loop.stacks)), default=0)
        self.row = var(Var(ROW, self.size))
        self._find_homes(around)

    # -- where elements are ---------------------------------------------------------------------------

    def home(self, v: Value) -> tuple[Index, ...]:
        """The index of the element of a turn's value that belongs to the row."""
        if v.tensor.size not in (1, self.size):
            raise CannotLowerError(f"a turn makes values of {self.size} and of {v.tensor.size} elements")
        return delinearize(self.row if v.tensor.size > 1 else const(0), v.shape)

    def _find_homes(self, around: Sequence[Op]) -> None:
        """Of what the loop gives, and of what is made of that: the element that a turn, or the end, makes."""
        for s in self.loop.stacks:
            index = self.home(s.part)
            if s.part.tensor.size < self.size:
                raise CannotLowerError("a turn's elements are summed up, or all alike")
            self.homes[s.result] = (*index[: s.dim], s.start, *index[s.dim + 1 :])
        for c in self.loop.carries:
            if c.result is not None:
                self.homes[c.result] = self.home(c.before)
        for op in around:
            known = [v for v in op.operands if v in self.homes]
            if known:
                self.homes[op.results[0]] = self._moved(op, known)

    def _moved(self, op: Op, known: Sequence[Value]) -> tuple[Index, ...]:
        """Where the elements of an op's result are that belong to those of its operands."""
        definition, (result, *more) = lookup(op.name), op.results
        index = self.homes[known[0]]
        if definition.op_class.is_elementwise and not more:
            if all(v.shape == result.shape and self.homes[v] == index for v in known):
                return index
        elif "permutation" in op.attrs:
            return tuple(index[d] for d in op.attrs["permutation"])
        raise CannotLowerError(f"'{op.name}' of what a loop makes waits for all of it")

    def ends(self) -> list[Value]:
        """Outputs that are there after the last turn, not one by one."""
        return [v for v in self.outputs if not self._is_stacked(v)]

    def _is_stacked(self, v: Value) -> bool:
        if v not in self.homes:
            raise CannotLowerError("the loop counts what is wanted behind it")
        return any(isinstance(a, Var) and a.name == TURN for a in atoms(self.homes[v]))

    # -- carries in memory ----------------------------------------------------------------------------

    def in_cache(self) -> Kernel:
        """Turns around loops over a program's elements; carries are in memory that stays in cache."""
        memory = [self._memory(c) for c in self.loop.carries]
        stages = (self._start(memory), self._turn(memory), self._end(memory))
        programs = -(-self.size // SHARE)
        programs = max(programs, min(int(2 * self.profile.machine.cores), self._work // self.profile.program_work))
        lane = Lane(self.size, 1, min(programs, -(-self.size // 64)), stages, True, self._work)
        return self._kernel(lane, memory)

    def _memory(self, c: Carry) -> Buffer:
        """A carry's: that of the result, where it is as wide."""
        kind = c.after.tensor.dtype.compute
        result = self.results.get(c.result) if c.result is not None else None
        if result is not None and result.type.dtype is kind and result.type.size == self.size:
            return result
        last = self.scratch[-1] if self.scratch else None
        offset = 0 if last is None else last.offset + -(-last.type.nbytes // ALIGN) * ALIGN
        number = len(self.scratch)
        self.scratch.append(
            Buffer(f"s{number}", TensorType((self.size,), kind), Space.SCRATCH, number, offset)
        )
        return self.scratch[-1]

    def _start(self, memory: Sequence[Buffer]) -> Stage:
        builder, loops = self._builder(self._rows())
        for c, buffer in zip(self.loop.carries, memory, strict=True):
            builder.store(buffer, self.row, self._first(c, builder))
        return self._stage("what the first turn goes on from", builder, loops)

    def _turn(self, memory: Sequence[Buffer]) -> Stage:
        builder, loops = self._builder(self._rows())
        for c, buffer in zip(self.loop.carries, memory, strict=True):
            builder.carried[c.before] = Carried(builder.read(buffer, self.row), self.row)
        after = [builder.value(c.after, self.home(c.after)) for c in self.loop.carries]
        self._store_stacks(builder)
        for buffer, value in zip(memory, after, strict=True):
            builder.store(buffer, self.row, value)
        turn = Loop(self.loop.turn, 0, self.loop.turns)
        return self._stage("a turn", builder, loops, turn)

    def _end(self, memory: Sequence[Buffer]) -> Stage:
        builder, loops = self._builder(self._rows())
        for c, buffer in zip(self.loop.carries, memory, strict=True):
            wanted = [v for v in self.ends() if self.results[v] is not buffer]
            if c.result is not None and wanted:
                builder.finals[c.result] = Carried(builder.read(buffer, self.row), self.row)
        for v in self.ends():
            if self.results[v] not in memory:
                if v.tensor.size < self.size:
                    raise CannotLowerError("a number of the whole loop is wanted behind it")
                builder.store(self.results[v], self.row, builder.value(v, self.homes[v]))
        return self._stage("what is left", builder, loops)

    # -- carries in registers -------------------------------------------------------------------------

    def in_registers(self) -> Kernel:
        """All turns of an element, one element after the other."""
        turn = Loop(self.loop.turn, 0, self.loop.turns)
        rows = self._rows()
        builder, loops = self._builder([*rows, turn])
        inside = len(loops)
        first = [self._first(c, builder) for c in self.loop.carries]
        accumulators = []
        for c, init in zip(self.loop.carries, first, strict=True):
            name, kind = builder.names().replace("v", "acc"), c.after.tensor.dtype.compute
            accumulators.append(Accumulator(name, init, len(rows), kind))
            builder.depth_of[name] = inside
            builder.carried[c.before] = Carried(Ref(name), self.row)
        after = [builder.let(builder.value(c.after, self.home(c.after)), inside) for c in self.loop.carries]
        self._store_stacks(builder)
        builder.body += [Let(a.name, v, inside) for a, v in zip(accumulators, after, strict=True)]
        nest = Nest(tuple(loops), tuple(accumulators), tuple(builder.body), tuple(self._after(accumulators)))
        stage = Stage((nest,), "all turns", lines=self._lines())
        most = min(self.size, self._work // self.profile.program_work, self.profile.max_programs)
        lane = Lane(self.size, 1, max(1, most), (stage,), False, self._work)
        return self._kernel(lane, ())

    def _after(self, accumulators: Sequence[Accumulator]) -> list[Instr]:
        """What is stored behind the last turn of an element."""
        builder, loops = self._builder(self._rows())
        for c, a in zip(self.loop.carries, accumulators, strict=True):
            builder.depth_of[a.name] = len(loops)
            if c.result is not None:
                builder.finals[c.result] = Carried(Ref(a.name), self.row)
        for v in self.ends():
            if v.tensor.size < self.size:
                raise CannotLowerError("a number of the whole loop is wanted behind it")
            builder.store(self.results[v], self.row, builder.value(v, self.homes[v]))
        at = len(loops)
        return [_at_depth(i, at) for i in builder.body]

    # -- both -----------------------------------------------------------------------------------------

    def _rows(self) -> list[Loop]:
        return [Loop(Var(ROW, self.size), 0, 1)] if self.size > 1 else []

    def _builder(self, loops: Sequence[Loop]) -> tuple[TurnBuilder, Sequence[Loop]]:
        depths = {loop.var.name: n + 1 for n, loop in enumerate(loops)}
        places = {v: Place(b) for v, b in zip(self.inputs, self.args, strict=True)}
        return TurnBuilder(self.producers, places, depths, self.names, loop=self.loop), loops

    def _first(self, c: Carry, builder: TurnBuilder) -> Atomic:
        """What the first turn goes on from, as wide as what it leaves."""
        value = builder.value(c.initial, self.home(c.initial) if c.initial.tensor.rank else ())
        kind = c.after.tensor.dtype.compute
        if c.initial.tensor.dtype.compute is kind:
            return value
        return builder.let(call(f"convert_{kernel_name(kind)}", value))

    def _store_stacks(self, builder: TurnBuilder) -> None:
        """What the turn leaves of outputs that have a part of each turn."""
        stored = [v for v in self.outputs if self._is_stacked(v)]
        values = [builder.value(v, self.homes[v]) for v in stored]
        for v, value in zip(stored, values, strict=True):
            builder.store(self.results[v], linearize(self.homes[v], v.shape), value)

    def _stage(
        self, note: str, builder: TurnBuilder, loops: Sequence[Loop], turn: Loop | None = None
    ) -> Stage:
        lines = self._lines() if turn is not None else ()
        return Stage((Nest(tuple(loops), (), tuple(builder.body), ()),), note, lines=lines, turn=turn)

    def _lines(self) -> tuple[str, ...]:
        order = {op: n for n, op in enumerate((*self.loop.ops, *self.ops))}
        return quote_lines(self.loop.ops, (), {}, order)

    @property
    def _work(self) -> int:
        cycles = sum(max(1.0, lookup(op.name).cpi) for op in self.loop.ops if not is_free(op))
        return int(self.size * self.loop.turns * max(1.0, cycles))

    def _kernel(self, lane: Lane, memory: Sequence[Buffer]) -> Kernel:
        last = self.scratch[-1] if self.scratch else None
        nbytes = 0 if last is None else last.offset + -(-last.type.nbytes // ALIGN) * ALIGN
        stages = tuple(s for s in lane.stages if s.nests[0].instructions)
        results, scratch = tuple(self.results.values()), tuple(self.scratch)
        lane = Lane(lane.rows, 1, lane.programs, stages, lane.flat, lane.work)
        return Kernel(self.name, self.args, results, scratch, (), (Phase((lane,)),), nbytes, 0)


def _at_depth(i: Instr, depth: int) -> Instr:
    """Behind the loop over turns."""
    match i:
        case Load(name, buffer, offset, _):
            return Load(name, buffer, offset, depth)
        case Let(name, value, _):
            return Let(name, value, depth)
        case Store(buffer, offset, value, _):
            return Store(buffer, offset, value, depth)
