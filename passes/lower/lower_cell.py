"""A loop whose turns look at rows of what they go on from -> Kernel: a program does all turns of its rows.

LSTM, 64 turns of a batch of 32, 64 units           lane: 32 rows, 16 a step
  h, c = f(x[turn], h, c);  ys[turn] = h              stage 0:           t0 = h0;  t1 = c0
                                                      for turn: stage 1: t2 = x[turn] * W;  t3 = t0 * U
                                                                stage 2: t0, t1, ys[turn] = f(t2, t3, t1)

The rows of the batch are independent: a row of what a turn leaves needs that row of what was left before,
and what is the same for all. So many rows as that holds for are asked for, down to one. Carries are tiles of
a program, which stay in a core's cache, or in a multiprocessor's shared memory, over all turns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import (
    ROW,
    STEP,
    Kernel,
    Lane,
    Loop,
    Nest,
    Phase,
    Stage,
)
from jstitch.ir.expr import call
from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index, Var, add, delinearize, mul, var
from jstitch.ir.ops import build
from jstitch.ir.ops.numerics import kernel_name
from jstitch.ir.reason import Reason
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.row_access import (
    Access,
    Reduction,
    Relation,
    is_reduction,
    prefix_rank,
    reduction,
    relations,
)
from jstitch.passes.graph.find_recurrence import Carry, Stack, may_recur
from jstitch.passes.lower.build_nest import CannotLowerError, NestBuilder
from jstitch.passes.lower.describe_template import template_of
from jstitch.passes.lower.fit_lane import Arena, LaneFit, names
from jstitch.passes.lower.group import Group, choose_steps, choose_threads
from jstitch.passes.lower.keep_carries import Memory, go_on
from jstitch.passes.lower.loop_pattern import LoopPattern
from jstitch.passes.lower.place_values import LaneView, Placement
from jstitch.passes.lower.quote_lines import quote_lines
from jstitch.passes.lower.rewrite_ops import RewrittenOps, rewrite_ops
from jstitch.passes.lower.schedule import divisors
from jstitch.passes.lower.tile_rows import StepTile
from jstitch.passes.lower.written import InStack, Place

LEAST_ROWS = 2  # of a product's step: fewer wait for each other's sums
LARGEST = 1 << 24  # bytes of a program's tiles: more stay in no cache from turn to turn
TOO_LARGE = "needs {found} bytes per program for what turns go on from and make, {bound} at most"
AROUND = "what is around the loop waits for all of a turn"
MIXED = "a turn needs rows of what the turn before left that no two programs can share"


def lower_cell(name: str, pattern: LoopPattern, limit: int | None) -> Kernel:
    """The kernel, with as many rows as turns leave alone. Raises CannotLowerError where there is none.

    limit: most bytes of a program's tiles; None: as many as it takes.
    """
    cell = _Cell(pattern)
    for rows in cell.row_counts():
        if cell.keeps_rows(rows) and not cell.group(rows).flat:
            return cell.kernel(name, rows, limit)
    raise CannotLowerError(MIXED)


def _leave_no_core_idle(group: Group) -> None:
    """Fewer rows of a product at a time, where a core would have none: turns read weights where they are."""
    machine = group.profile.machine
    if machine.device is not None or not group.products or group.rows // group.step >= machine.units:
        return
    each = [n for n in divisors(group.rows) if LEAST_ROWS <= n <= group.rows // machine.units]
    if each:
        group.step = each[-1]
        group.tiles = (StepTile(group.step), *group.tiles)


@dataclass(eq=False)
class _Cell:
    """The ops of a turn, and which of its carries and stacks are needed."""

    pattern: LoopPattern
    carries: list[Carry] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    after: dict[Carry, Value] = field(default_factory=dict)
    parts: dict[Value, list[tuple[Stack, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        loop, outputs = self.pattern.loop, set(self.pattern.outputs)
        if any(not is_free(op) for op in self.pattern.around):
            raise CannotLowerError(AROUND)
        if not outputs <= {*(s.result for s in loop.stacks), *(c.result for c in loop.carries)}:
            raise CannotLowerError("the loop hands on what it does not make")
        self.ops = [op for op in self.pattern.around if is_free(op)]
        self.ops += [_renamed(op, loop.given) for op in loop.ops if op.results[0] not in loop.numbers]
        self.producers = {v: op for op in self.ops for v in op.results}
        self.stacks = [s for s in loop.stacks if s.result in outputs]
        self.carries = self._needed(outputs)
        self._own_values()
        self.formed = self._rewritten()

    def _needed(self, outputs: Collection[Value]) -> list[Carry]:
        """Carries that some output waits for."""
        loop = self.pattern.loop
        wanted = {c for c in loop.carries if c.result in outputs}
        todo = [leaf.part for s in self.stacks for leaf in s.leaves] + [c.after for c in wanted]
        by_name, seen = {c.before: c for c in loop.carries}, set[Value]()
        while todo:
            v = loop.given.get(todo[-1], todo[-1])
            todo.pop()
            if v in seen or v in loop.numbers:
                continue
            seen.add(v)
            if v in by_name and by_name[v] not in wanted:
                wanted.add(by_name[v])
                todo.append(by_name[v].after)
            todo += self.producers[v].operands if v in self.producers else ()
        return [c for c in loop.carries if c in wanted]

    def _own_values(self) -> None:
        """For each carry, and each part of a stack, a value of a turn that nothing else is."""
        for c in self.carries:
            self.after[c] = self._own(c.after)
        for s in self.stacks:
            for n, leaf in enumerate(s.leaves):
                if leaf.row == 0:
                    v = self._unshaped(leaf.part)
                    v = v if v in self.parts or self._is_made(v) else self._own(v)
                    self.parts.setdefault(v, []).append((s, n))

    def _unshaped(self, v: Value) -> Value:
        """What a part of a stack is another shape of."""
        given = self.pattern.loop.given
        while self._is_made(v := given.get(v, v)) and build.is_reshape(self.producers[v]):
            (v,) = self.producers[v].operands
        return v

    def _own(self, v: Value) -> Value:
        v = self.pattern.loop.given.get(v, v)
        if self._is_made(v) and v not in self.after.values():
            return v
        copy = build.convert(v, v.tensor.dtype)
        self.ops.append(copy)
        self.producers[copy.result] = copy
        return copy.result

    def _is_made(self, v: Value) -> bool:
        return v in self.producers and not is_free(self.producers[v])

    def _rewritten(self) -> RewrittenOps:
        wanted = list(dict.fromkeys((*self.after.values(), *self.parts)))
        carried = [c.before for c in self.carries]
        found = rewrite_ops(self.ops, wanted, self.pattern.profile, (), 0, carried)
        if found.turned or found.strips:
            raise CannotLowerError("a turn is made in strips of columns")
        return found

    # -- rows -------------------------------------------------------------------------------------------

    def row_counts(self) -> list[int]:
        """Numbers of rows that all carries, and what turns leave, can be cut into; the most first."""
        shapes = [v.shape for v in (*self.after.values(), *self.parts)]
        counts = [{math.prod(shape[:k]) for k in range(len(shape) + 1)} for shape in shapes]
        return sorted(set.intersection(*counts) if counts else (), reverse=True)

    def keeps_rows(self, rows: int) -> bool:
        """Whether a row of a turn needs that row of the turn before, and of what the turn makes."""
        return rows == 1 or self.tied(rows) is not None

    def tied(self, rows: int) -> set[Value] | None:
        """Values whose rows belong to the loop's; None where one row needs another."""
        found = {c.before for c in self.carries}
        tied: set[Value] = set(found)
        for op in self.formed.ops:
            if is_reduction(op) and not _is_inner(op, rows):
                return None
            if is_free(op) or tied.isdisjoint(op.operands):
                continue
            reached = () if is_reduction(op) else _reached(op, rows)
            if any(v in tied and r.access is not Access.ROW for v, r in reached):
                return None
            tied.update(op.results)
        wanted = (*self.after.values(), *self.parts)
        return tied if all(prefix_rank(v.shape, rows) is not None for v in wanted) else None

    def apart(self, rows: int) -> frozenset[Value]:
        """Values that some row needs other rows of: none has a tile for its own."""
        wanted = {*self.after.values(), *self.parts}
        by_rows: dict[Value, bool] = {}
        for op in reversed(self.formed.ops):
            here = all(by_rows.get(v, v in wanted) for v in op.results)
            unread = not any(v in by_rows or v in wanted for v in op.results)
            if is_free(op) or unread:
                continue
            if is_reduction(op):
                reached = [(v, here) for v in op.operands]
            else:
                reached = [(v, here and r.access is Access.ROW) for v, r in _reached(op, rows)]
            for v, own in reached:
                by_rows[v] = by_rows.get(v, True) and own
        return frozenset(v for v, own in by_rows.items() if not own and rows > 1)

    # -- the kernel -------------------------------------------------------------------------------------

    def group(self, rows: int) -> Group:
        """All ops, in so many rows. Where it is flat, rows of one element would share tiles of carries."""
        real = {op for op in self.formed.ops if not is_free(op)}
        largest = max((v.tensor.size for op in real for v in (*op.results, *op.operands)), default=1)
        return Group(rows, real, largest, self.pattern.profile)

    def kernel(self, name: str, rows: int, limit: int | None) -> Kernel:
        p, ops, group = self.pattern, list(self.formed.ops), self.group(rows)
        choose_steps([group])
        _leave_no_core_idle(group)
        choose_threads([group], p.profile)
        group.tiles = tuple(tile for tile in group.tiles if not tile.block)
        producers = {v: op for op in ops for v in op.results}
        order = {op: n for n, op in enumerate(ops)}
        written = {v: [self.in_stack(s, n) for s, n in parts] for v, parts in self.parts.items()}
        stored = {*self.after.values(), *self.parts}
        budget = group.arena_bytes if limit is None else limit
        view = LaneView(
            group,
            [op for op in ops if op in group.ops],
            producers,
            order,
            p.places,
            stored,
            budget,
            refused=self.apart(rows),
            numbers=p.loop.numbers,
        )
        fit = _CellFit(
            producers=producers,
            stores={},
            written=written,
            labels=self.formed.labels,
            limit=limit,
            share=True,
            shrink=True,
            narrow=p.profile.narrow_tiles,
            cell=self,
        )
        tiles, schedules = fit.steps(view)
        if tiles.nbytes > LARGEST:
            raise CannotLowerError(Reason("arena", TOO_LARGE, tiles.nbytes, LARGEST))
        phases = (Phase((tiles.lane,)),)
        template = template_of(schedules)
        what = p.args, tuple(p.results.values()), (), tiles.buffers, phases, 0, tiles.nbytes
        return Kernel(name, *what, template=template)

    def in_stack(self, stack: Stack, number: int) -> InStack:
        leaf = stack.leaves[number]
        whole = self.pattern.results[stack.result]
        return InStack(whole, whole.type.shape, leaf.part.shape, stack.dim, leaf.at)

    def programs(self, lane: Lane) -> int:
        """That share a lane of so much work in each turn."""
        profile, work = self.pattern.profile, lane.work * self.pattern.loop.turns
        return max(1, min(lane.rows // lane.step, work // profile.program_work, profile.max_programs))


@dataclass(eq=False, kw_only=True)
class _CellFit(LaneFit):
    """Puts a lane's stages in a loop of turns, between those that begin and end it."""

    cell: _Cell

    def lowered(self, view: LaneView, arena: Arena) -> tuple[Lane, Placement]:
        rows, step = view.group.rows, view.group.step
        memory = {
            c: Memory(arena.keep(c.before, rows, step), arena.keep(c.before, rows, step))
            for c in self.cell.carries
        }
        before = {c.before: m.before for c, m in memory.items()}
        turn = replace(view, places={**view.places, **before})
        written = {v: list(places) for v, places in self.written.items()}
        for c, m in memory.items():
            written.setdefault(self.cell.after[c], []).append(m.after)
        lane, placement = self.written_into(written, turn, arena)
        return self.in_turns(lane, memory, view), placement

    def in_turns(self, lane: Lane, memory: dict[Carry, Memory], view: LaneView) -> Lane:
        p = self.cell.pattern
        turn = Loop(p.loop.turn, 0, p.loop.turns)
        stages, apart = go_on(lane.stages, list(memory.values()))
        rows = _Rows(self.cell, lane, view)
        begins = [rows.begin(c, m.before) for c, m in memory.items()]
        copies = [rows.copied(m.after, m.before) for m in apart]
        ends = [rows.end(c, m.before) for c, m in memory.items() if c.result in p.results]
        lines = quote_lines([op for op in p.ops if may_recur(op)], (), {}, {})
        stages += [Stage(tuple(copies), "what the next turn goes on from", lines=lines)] if copies else []
        before = Stage(tuple(begins), "what the first turn goes on from", lines=lines)
        behind = [Stage(tuple(ends), "what the last turn leaves", lines=lines)] if ends else []
        return replace(
            lane,
            stages=(before, *(replace(stage, turn=turn) for stage in stages), *behind),
            work=lane.work * p.loop.turns,
            programs=self.cell.programs(lane),
        )


@dataclass(eq=False)
class _Rows:
    """Nests over the elements of a step's rows."""

    cell: _Cell
    lane: Lane
    view: LaneView

    def __post_init__(self) -> None:
        self.names = names("m")  # the emitters' numbers of elements are e1, e2, ...

    def begin(self, c: Carry, to: Place) -> Nest:
        loops, place = self.loops(to.slab)
        builder = self.builder(loops)
        value = builder.value(c.initial, delinearize(place, c.before.shape) if c.initial.tensor.rank else ())
        kind = c.after.tensor.dtype.compute
        if c.initial.tensor.dtype.compute is not kind:
            value = builder.let(call(f"convert_{kernel_name(kind)}", value))
        builder.store(to.buffer, builder.tile_offset(place, c.before, to), value)
        return self.nest(loops, builder)

    def copied(self, at: Place, to: Place) -> Nest:
        loops, place = self.loops(to.slab)
        builder = self.builder(loops)
        offset = builder.in_tile(place, to.slab * self.lane.rows, to)
        builder.store(to.buffer, offset, builder.read(at.buffer, offset))
        return self.nest(loops, builder)

    def end(self, c: Carry, at: Place) -> Nest:
        assert c.result is not None
        loops, place = self.loops(at.slab)
        builder = self.builder(loops)
        value = builder.read(at.buffer, builder.tile_offset(place, c.before, at))
        builder.store(self.cell.pattern.results[c.result], place, value)
        return self.nest(loops, builder)

    def loops(self, slab: int) -> tuple[list[Loop], Index]:
        """Around all elements of a step; the number of one in all of the tensor."""
        rows, inner = Var(ROW, self.lane.rows), Var("i", slab)
        around = [Loop(rows, 0, self.lane.step)] if self.lane.rows > 1 else []
        inside = [Loop(inner, 0, slab)] if slab > 1 else []
        return [*around, *inside], add(mul(var(rows), slab), var(inner))

    @staticmethod
    def nest(loops: Sequence[Loop], builder: NestBuilder) -> Nest:
        return Nest(tuple(loops), (), tuple(builder.body), ())

    def builder(self, loops: Sequence[Loop]) -> NestBuilder:
        depths = {loop.var.name: n + 1 for n, loop in enumerate(loops)}
        lane, p = self.lane, self.cell.pattern
        first = (
            mul(var(Var(STEP, lane.rows // lane.step)), lane.step)
            if lane.step > 1
            else var(Var(ROW, lane.rows))
        )
        return NestBuilder(p.producers, p.places, depths, self.names, first_row=first)


def _reached(op: Op, rows: int) -> Iterable[tuple[Value, Relation]]:
    return zip(op.operands, relations(op, rows), strict=True)


def _is_inner(op: Op, rows: int) -> bool:
    """Whether each row has results of its own."""
    whole = all(v.tensor.size % rows == 0 and v.tensor.size for v in op.results)
    return whole and reduction(op, rows) is Reduction.INNER


def _renamed(op: Op, given: Mapping[Value, Value]) -> Op:
    return replace(op, operands=tuple(given.get(v, v) for v in op.operands))
