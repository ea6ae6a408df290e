"""One loop nest: the loops over a domain, and the instructions of the nodes that share them.

sum over dim 1 of [8, 4096], row r      ->   for i: for j: part += x[r * 4096 + i * 2048 + j]; acc += part
    sum over dim 0, four rows at a time     ->   for i: s[i] += x[q * 4 * n + i] + x[q * 4 * n + n + i] + ...
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from jstitch.codegen.kernel_ir import (
    OTHER,
    PROGRAM,
    ROW,
    STEP,
    Accumulator,
    Buffer,
    Combine,
    Instr,
    Let,
    Load,
    Loop,
    Nest,
    Space,
    Store,
)
from jstitch.ir.expr import Atomic, Const, Expr, Ref, formula
from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index, Var, add, const, delinearize, linearize, mul, var
from jstitch.ir.ops import lookup
from jstitch.passes.base.row_access import data_operands, identities, prefix_rank
from jstitch.passes.lower.build_nest import CannotLowerError, NestBuilder, literal
from jstitch.passes.lower.by_pairs import by_pairs
from jstitch.passes.lower.divide_loops import loop_name, run_name, runs_of
from jstitch.passes.lower.expect_values import ExpectedValues
from jstitch.passes.lower.lane_context import LaneContext
from jstitch.passes.lower.loop_order import block_of_rows, inner_dims, sums_floats
from jstitch.passes.lower.trace_lane import Node

Turns = Mapping[int, int]
"""Elements of a loop's turn, by dimension."""


def inits(op: Op) -> tuple[Value, ...]:
    return op.operands[len(data_operands(op)) :]


class NestWriter:
    """Loops over one domain, and the instructions of the nodes that share them.

    ranges: where loops are cut, turns of this piece. together: turns of several elements.
    """

    def __init__(
        self,
        lane: LaneContext,
        nodes: list[Node],
        by_columns: bool,
        collapse: bool,
        ranges: Mapping[str, tuple[int, int]] | None = None,
        runs: Mapping[int, int] | None = None,
        together: Turns | None = None,
    ) -> None:
        group = lane.view.group
        self.together = together or {}
        self.lane, self.nodes, self.group = lane, nodes, group
        self.rows, self.shape = group.rows, nodes[0].domain
        self.collapse, self.ranges, self.cut_runs = collapse, ranges or {}, runs or {}
        self.unrolled = by_columns and group.step > 1
        self.loops: list[Loop] = []
        low, high = (0, self.rows) if lane.view.part is None else (lane.view.part.low, lane.view.part.high)
        if not self.unrolled and high - low > 1:
            self.loops.append(Loop(Var(ROW, high - low), 0, group.step))
        self.inner = self._inner_loops()
        depths = {loop.var.name: n + 1 for n, loop in enumerate(self.loops)}
        stepped = group.step > 1
        steps = var(Var(STEP, (high - low) // group.step))
        first = add(mul(steps, group.step), const(low))
        self.row = first if self.unrolled else add(var(Var(ROW, high - low)), const(low))
        self.builder = NestBuilder(
            lane.view.producers,
            {**lane.view.places, **lane.tiles},
            depths,
            lane.names,
            first_row=first if stepped else self.row,
            inner_names=frozenset(loop.var.name for loop in self.loops if loop.var.name != ROW),
            numbers=lane.view.numbers,
        )
        self.accumulators: list[Accumulator] = []
        self.after: list[Instr] = []
        self.combines: list[Combine] = []
        self._running: dict[tuple[Buffer, Index], Ref] = {}
        self._steps: dict[tuple[Node, tuple[Index, ...]], list[list[Atomic]]] = {}

    def again(self, ranges: Mapping[str, tuple[int, int]], together: Turns | None) -> NestWriter:
        """A writer of the same nest, with these pieces of its loops and such turns."""
        return NestWriter(
            self.lane, self.nodes, self.unrolled, self.collapse, ranges, self.cut_runs, together
        )

    # -- indices --------------------------------------------------------------------------------------

    def _inner_loops(self) -> dict[int, Index]:
        """Loops over the tile; the index of each inner dimension (-1: the whole row)."""
        dims = [] if self.group.flat else inner_dims(self.shape, self.rows)
        dims = [*self.lane.orders.get(self.nodes[0], dims)]
        if self.group.profile.kept_first and not self.collapse:
            reduced = {d for n in self.nodes if n.roots for d in n.op.attrs["dimensions"]}
            dims.sort(key=lambda d: d in reduced)
        if self.collapse or dims == [-1]:
            return {-1: self._loop(-1, math.prod(self.shape) // self.rows)}
        return {d: self._loop(d, self.shape[d]) for d in dims}

    def _loop(self, d: int, size: int) -> Index:
        """The loop over a dimension (-1: the whole row) or the piece of it, and the index of its elements."""
        name = loop_name(d)
        lo, hi = self.ranges.get(name, (0, size))
        each = self.together.get(d, 1)
        if d in self.cut_runs:
            return add(self._run_loops(d, hi - lo, each), const(lo))
        turns = (hi - lo) // each
        sums = d >= 0 and each == 1 and name in self.ranges and any(n.roots for n in self.nodes)
        if turns > 1 or sums:
            self.loops.append(Loop(Var(name, turns), 0, turns))
        return add(mul(var(Var(name, turns)), each), const(lo))

    def _run_loops(self, d: int, size: int, each: int) -> Index:
        """A loop over runs, one over the elements of a run."""
        run = self.cut_runs[d]
        outer, inner = Var(loop_name(d), size // run), Var(run_name(d), run // each)
        self.loops += [Loop(outer, 0, size // run), Loop(inner, 0, run // each)]
        return add(mul(var(outer), run), mul(var(inner), each))

    def runs(self) -> dict[int, int]:
        """Dimensions whose index is wanted divided by a number: in runs of it, which are worth a loop."""
        divided = self.builder.divided
        sizes = {d: self.shape[d] if d >= 0 else math.prod(self.shape) // self.rows for d in self.inner}
        found = {d: runs_of(divided, loop_name(d), size) for d, size in sizes.items()}
        return {d: run for d, run in found.items() if run}

    def index(self, shape: tuple[int, ...], row: Index) -> tuple[Index, ...]:
        """The index of the loops' current element in a tensor of the domain's size."""
        slab = math.prod(shape) // self.rows
        if self.group.flat:
            return delinearize(row, shape)
        if -1 in self.inner:
            return delinearize(add(mul(row, slab), self.inner[-1]), shape)
        k = prefix_rank(shape, self.rows)
        assert k is not None
        lead = delinearize(row, shape[:k])
        return (*lead, *(self.inner.get(d, const(0)) for d in range(k, len(shape))))

    def kept(self, op: Op, index: tuple[Index, ...]) -> tuple[Index, ...]:
        dims = op.attrs["dimensions"]
        return tuple(e for d, e in enumerate(index) if d not in dims)

    # -- nodes ----------------------------------------------------------------------------------------

    def write(self) -> Nest:
        rows = range(self.group.step) if self.unrolled else (None,)
        expected = ExpectedValues(len(rows))
        for done, j in enumerate(rows):
            expected.look(done, len(self.builder.memo))
            row = self.row if j is None else add(self.row, const(j))
            for _ in self._turns():
                for n in self.nodes:
                    if n.is_partial or n.is_reduction:
                        self._reduce(n, row)
                    else:
                        self._store(n, row)
        return Nest(
            tuple(self.loops),
            tuple(self.accumulators),
            tuple(self.builder.body),
            tuple(self.after),
            tuple(self.combines),
        )

    def _turns(self) -> Iterator[None]:
        """For each element that one turn of the loops takes together."""
        first = {d: self.inner[d] for d in self.together}
        for places in itertools.product(*map(range, self.together.values())):
            self.inner |= {d: add(first[d], const(k)) for d, k in zip(first, places, strict=True)}
            yield
        self.inner |= first

    def _store(self, n: Node, row: Index) -> None:
        index = self.index(n.value.shape, row)
        values = self.builder.parts(n.value, index, compute=True)
        offset = linearize(index, n.value.shape)
        if n.value in self.lane.view.stored and n.value in self.lane.stores:
            self.builder.store(self.lane.stores[n.value].buffer, offset, *values)
        for block in self.lane.written.get(n.value, ()):
            self.builder.store(block.buffer, self.builder.moved(block, index, n.value.shape), *values)
        if n.value in self.lane.tiles:
            place = self.lane.tiles[n.value]
            self.builder.store(place.buffer, self.builder.tile_offset(offset, n.value, place), *values)

    def _reduce(self, n: Node, row: Index) -> None:
        elements = [self.builder.value(v, self.index(v.shape, row)) for v in data_operands(n.op)]
        kept = self.kept(n.op, self.index(n.op.operands[0].shape, row))
        order = self.lane.loop_order(n)
        depth = len(self.loops) - self._loops(min(order.suffix, 1) if self.collapse else order.suffix)
        if self.group.flat and n.is_partial:
            depth = 0
        if depth == len(self.loops):
            self._update(n, kept, elements)
            return
        if (together := self._added_together(n)) > 1:
            taken = self._of_step(n, kept, elements, together)
            if taken is None:
                return
            elements = taken
        apart = n.is_partial and block_of_rows(n.op, self.group) > 0
        resume = (n.is_partial and not apart) or order.outer or self._goes_on(depth)
        names = self._accumulate(n, kept, elements, depth, resume)
        if apart:
            names = self._add_up(n, kept, names, depth)
        for v, name in zip(n.op.results, names, strict=True):
            for buffer, offset in self._targets(n, v, kept):
                self.after.append(Store(buffer, offset, Ref(name), depth))

    def _add_up(self, n: Node, kept: tuple[Index, ...], names: list[str], depth: int) -> list[str]:
        """What a block of rows comes to, added to what those before it came to."""
        before, total = ([self._name(kind) for _ in names] for kind in ("v", "total"))
        for v, name in zip(n.op.results, before, strict=True):
            self.after.append(Load(name, *self._targets(n, v, kept)[0], depth))
        both = self._combine(n.op, list(map(Ref, before)), list(map(Ref, names)), free=False)
        self.after += [Let(name, new, depth) for name, new in zip(total, both, strict=True)]
        return total

    def _goes_on(self, depth: int) -> bool:
        """Whether what is summed inside `depth` loops began in an earlier piece."""
        return any(self.ranges.get(loop.var.name, (0, 0))[0] > 0 for loop in self.loops[depth:])

    def _loops(self, suffix: int) -> int:
        """Loops over the last `suffix` inner dimensions."""
        return suffix + sum(d in self.cut_runs for d in list(self.inner)[len(self.inner) - suffix :])

    def _accumulate(
        self, n: Node, kept: tuple[Index, ...], elements: list[Atomic], depth: int, resume: bool
    ) -> list[str]:
        """Scalar accumulators over the loops inside `depth`; `resume`: they go on from memory."""
        names = [self._name("acc") for _ in elements]
        for name, v, init in zip(names, n.op.results, inits(n.op), strict=True):
            start: Atomic = self._identity(n.op, v) if n.is_partial else self.builder.value(init, ())
            if resume:
                start = self.builder.read(*self._targets(n, v, kept)[0], depth)
            self.accumulators.append(Accumulator(name, start, depth, v.tensor.dtype.compute))
        inside = len(self.loops)
        self.builder.depth_of.update(dict.fromkeys(names, inside))
        if self.cut_runs and depth < inside - 1 and sums_floats(n.op):
            elements = [self._block_sum(n.op, v, e) for v, e in zip(n.op.results, elements, strict=True)]
            update, inside = self.after, inside - 1
        else:
            update = self.builder.body
        for name, new in zip(names, self._combine(n.op, list(map(Ref, names)), elements), strict=True):
            update.append(Let(name, new, inside))
        self.combines.append(self._across(n, tuple(names)))
        return names

    def _across(self, n: Node, names: tuple[str, ...]) -> Combine:
        """The combination of accumulators with others of the same kind, whatever loops they ran over."""
        op = n.op
        body, self.builder.body = self.builder.body, []
        results = self._combine(op, [Ref(name) for name in names], [Ref(name + OTHER) for name in names])
        lets, self.builder.body = self.builder.body, body
        buffers = tuple(self.lane.stores[v].buffer for v in op.results) if n.is_partial else ()
        return Combine(names, tuple(i for i in lets if isinstance(i, Let)), tuple(results), buffers)

    def _block_sum(self, op: Op, v: Value, element: Atomic) -> Ref:
        """The sum over the innermost loop alone."""
        part, inside = self._name("part"), len(self.loops)
        self.accumulators.append(Accumulator(part, self._identity(op, v), inside - 1, v.tensor.dtype.compute))
        self.builder.depth_of[part] = inside
        self.builder.body.append(Let(part, self._combine(op, [Ref(part)], [element])[0], inside))
        return Ref(part)

    def _program(self, v: Value) -> Index:
        """The place of a program among those that have a part of `v`."""
        part = self.lane.view.part
        own = v.shape[0] if part is None else part.programs
        return add(var(Var(PROGRAM, own)), const(0 if part is None else part.first))

    def _name(self, kind: str) -> str:
        return self.builder.names().replace("v", kind)

    def _combine(
        self, op: Op, left: Sequence[Atomic], right: Sequence[Atomic], free: bool = True
    ) -> list[Expr]:
        """free: of floats, LLVM may add up in another order."""
        monoid = op.attrs.get("monoid")
        if monoid is None:
            return list(self.builder.region(op.regions[0], [*left, *right]))
        rule = lookup(monoid)
        any_order = rule.reassociated if free and op.results[0].tensor.dtype.is_float else None
        own = rule.scalar(op.regions[0].ops[0]) if rule.scalar else None
        combine = formula(any_order) if any_order else own
        if combine is None:
            raise CannotLowerError(f"'{monoid}' has no scalar form for these types")
        return [combine(left[0], right[0])]

    def _identity(self, op: Op, v: Value) -> Const:
        return literal(identities(op)[op.results.index(v)], v.tensor.dtype.compute)

    def _targets(self, n: Node, v: Value, kept: tuple[Index, ...]) -> list[tuple[Buffer, Index]]:
        """Where an accumulator lives: memory it goes on from first, then where else it is wanted."""
        if n.is_partial:
            where = (self._program(v), *kept)
            offset = linearize(where[: v.tensor.rank], v.shape)
            return [(self.lane.stores[v].buffer, offset)]
        place, offset = self.lane.tiles[v], linearize(kept, v.shape)
        in_arena = place.buffer.space is Space.ARENA
        found = [(place.buffer, self.builder.tile_offset(offset, v, place) if in_arena else offset)]
        if in_arena and v in self.lane.view.stored and v in self.lane.stores:
            found.append((self.lane.stores[v].buffer, offset))
        written = self.lane.written.get(v, ())
        found += [(p.buffer, self.builder.moved(p, kept, v.shape)) for p in written]
        return found

    def _added_together(self, n: Node) -> int:
        """Elements of a turn that the node adds up; others have sums of their own."""
        return math.prod(count for d, count in self.together.items() if d in n.op.attrs["dimensions"])

    def _update(self, n: Node, kept: tuple[Index, ...], elements: list[Atomic]) -> None:
        """Accumulators in memory: load, combine, store (once per step where rows are unrolled)."""
        together = self._added_together(n)
        if self.unrolled and not self.together:
            together = self.group.step
        if together > 1 and (self.together or (n.is_partial and sums_floats(n.op))):
            taken = self._of_step(n, kept, elements, together)
            if taken is None:
                return
            elements = taken
        targets = [self._targets(n, v, kept) for v in n.op.results]
        depths = [self._update_depth(n, v) for v in n.op.results]
        goes_on = n.is_partial or (self.lane.loop_order(n).outer and n not in self.lane.at_once)
        places = zip(targets, depths, inits(n.op), strict=True)
        old = [self._running.get(t) or self._before(t, d, init, goes_on) for (t, *_), d, init in places]
        values = zip(self._combine(n.op, old, elements, free=together == 1), depths, strict=True)
        new = [self.builder.let(*placed) for placed in values]
        for found, value in zip(targets, new, strict=True):
            if found[0] in self._running:
                self._drop_stores(found)
            self._running[found[0]] = value
            for target in found:
                self.builder.store(*target, value)
        if n.is_partial and all(t[0][0] not in c.buffers for c in self.combines for t in targets):
            self.combines.append(self._across(n, tuple(self._name("total") for _ in targets)))

    def _before(self, target: tuple[Buffer, Index], depth: int, init: Value, goes_on: bool) -> Atomic:
        return self.builder.read(*target, depth) if goes_on else self.builder.value(init, ())

    def _of_step(self, n: Node, kept: tuple[Index, ...], new: list[Atomic], k: int) -> list[Atomic] | None:
        """k elements as one, before they meet what is large already; None before the last."""
        taken = self._steps.setdefault((n, kept), [])
        taken.append(new)
        return by_pairs(self._steps.pop((n, kept)), partial(self._both, n.op)) if len(taken) == k else None

    def _both(self, op: Op, left: Sequence[Atomic], right: Sequence[Atomic]) -> list[Atomic]:
        return [self.builder.let(e, len(self.loops)) for e in self._combine(op, left, right)]

    def _update_depth(self, n: Node, v: Value) -> int:
        """Loops around an update; one number for a whole program grows once for each row."""
        once = n.is_partial and v.tensor.rank == 1 < n.op.results[-1].tensor.rank
        return sum(loop.var.name == ROW for loop in self.loops) if once else len(self.loops)

    def _drop_stores(self, targets: Sequence[tuple[Buffer, Index]]) -> None:
        """An earlier row's store of the same accumulator is overwritten by this row's."""
        self.builder.body[:] = [
            i for i in self.builder.body if not (isinstance(i, Store) and (i.buffer, i.offset) in targets)
        ]

    # -- initial values -------------------------------------------------------------------------------

    def fill(self, v: Value, init: Value) -> Nest:
        """The tile of `v` set to the reduction's initial value, for every row of the step."""
        place = self.lane.tiles[v]
        slab = v.tensor.size // self.rows
        size = slab * self.group.step
        name = self.builder.value(init, ())
        loop = Loop(Var("i", size), 0, size)
        offset = var(loop.var)
        if place.buffer.space is not Space.ARENA:
            offset = add(offset, mul(self.builder.first_row, slab))
        body = (*self.builder.body, Store(place.buffer, offset, name, 1))
        return Nest((loop,), (), body, ())

    def zero(self, v: Value) -> Nest:
        size = v.tensor.size // v.shape[0]
        loop = Loop(Var("i", size), 0, size)
        offset = add(mul(self._program(v), size), var(loop.var))
        name = self._identity(self.nodes[0].op, v)
        return Nest((loop,), (), (Store(self.lane.stores[v].buffer, offset, name, 1),), ())
