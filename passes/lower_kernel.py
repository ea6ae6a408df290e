"""Pattern -> Kernel: phases from levels, lanes from groups, stages from depths, nests from domains.

x, sum over dim 1, divide, broadcast, subtract  ->
    phase 0, lane: 2048 rows x 768, step 1
      stage 0: for r: acc = 0; for i0: acc += x[r * 768 + i0]; t0[0] = acc
      stage 1: for r: m = t0[0] / 768; for i0: out[r * 768 + i0] = x[r * 768 + i0] - m
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import (
    PROGRAM,
    ROW,
    STEP,
    Accumulator,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Loop,
    Nest,
    Phase,
    Space,
    Stage,
    Store,
)
from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index, Var, add, const, delinearize, linearize, mul, var
from jstitch.ir.ops import lookup
from jstitch.ir.types import TensorType
from jstitch.passes.build_nest import CannotLowerError, NestBuilder, Place, literal
from jstitch.passes.form_groups import Group, Grouping, form_groups
from jstitch.passes.place_tiles import ALIGN, Tiles, place_tiles, tile_priority
from jstitch.passes.place_values import ARENA_BUDGET, LaneView, Node, last_stage, place_values
from jstitch.passes.plan_shared_memory import DoesNotFit, Priority
from jstitch.passes.row_access import data_operands, prefix_rank
from jstitch.passes.split_reductions import split_reductions

RUN = 8  # elements: runs of a multiple of it are worth an innermost loop of their own
ATTEMPTS = 6  # of fitting a lane's tiles; then everything that can be is computed again


def lower_kernel(
    name: str,
    ops: Sequence[Op],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    arena_bytes: int | None = None,
    *,
    share: bool = True,
) -> Kernel:
    """The kernel that computes `outputs` from `inputs` by `ops` (in program order).

    arena_bytes: most bytes that one program may keep in cache, None = ARENA_BUDGET where there is a choice.
    share: tiles that are never live at once may stand in the same bytes.
    Raises CannotLowerError, with the reason, when a kernel cannot express the pattern.
    """
    grouping = form_groups(split_reductions(ops), outputs)
    return _KernelLowering(name, grouping, inputs, outputs, arena_bytes, share).run()


@dataclass(eq=False)
class _KernelLowering:
    name: str
    grouping: Grouping
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    limit: int | None
    share: bool
    producers: dict[Value, Op] = field(default_factory=dict)
    places: dict[Value, Place] = field(default_factory=dict)
    arena: list[Buffer] = field(default_factory=list)
    arena_bytes: int = 0

    def run(self) -> Kernel:
        self.producers = {v: op for op in self.grouping.ops for v in op.results}
        args = tuple(Buffer(f"a{n}", v.tensor, Space.ARG, n) for n, v in enumerate(self.inputs))
        results = tuple(Buffer(f"o{n}", v.tensor, Space.RESULT, n) for n, v in enumerate(self.outputs))
        scratch, scratch_bytes = self._scratch()
        self.places |= {v: Place(b) for v, b in zip(self.inputs, args, strict=True)}
        self.places |= {v: Place(b) for v, b in zip(self.outputs, results, strict=True)}
        levels = sorted(set(self.grouping.level_of.values()))
        phases = [Phase(tuple(self._lanes(level))) for level in levels]
        return Kernel(
            self.name,
            args,
            results,
            scratch,
            tuple(self.arena),
            tuple(p for p in phases if p.lanes),
            scratch_bytes,
            self.arena_bytes,
        )

    def _scratch(self) -> tuple[tuple[Buffer, ...], int]:
        buffers: list[Buffer] = []
        offset = 0
        for op in self.grouping.ops:
            for v in op.results:
                if v in self.grouping.spilled and v not in self.outputs:
                    t = TensorType(v.shape, v.tensor.dtype.compute)
                    buffers.append(Buffer(f"s{len(buffers)}", t, Space.SCRATCH, len(buffers), offset))
                    self.places[v] = Place(buffers[-1])
                    offset += -(-t.nbytes // ALIGN) * ALIGN
        return tuple(buffers), offset

    def _lanes(self, level: int) -> list[Lane]:
        groups: dict[Group, list[Op]] = {}
        for op in self.grouping.ops:
            if self.grouping.level_of.get(op) == level:
                groups.setdefault(self.grouping.group_of[op], []).append(op)
        lanes = [self._lane(group, ops, level) for group, ops in groups.items()]
        return [lane for lane in lanes if lane.stages]

    def _lane(self, group: Group, ops: list[Op], level: int) -> Lane:
        ready = {v: p for v, p in self.places.items() if self._is_ready(v, level)}
        stored = {v for op in ops for v in op.results if v in self.grouping.spilled or v in self.outputs}
        budget = ARENA_BUDGET if self.limit is None else self.limit
        view = LaneView(group, ops, self.producers, ready, stored, budget)
        tiles = self._fit(view)
        self.arena += tiles.buffers
        self.arena_bytes = max(self.arena_bytes, tiles.nbytes)
        return tiles.lane

    def _fit(self, view: LaneView) -> Tiles:
        """The lane with its tiles in place; values that find no room are refused, and it is lowered anew."""
        for attempt in itertools.count(1):
            arena = _Arena()
            lane = _LaneLowering(view, self.places, arena.keep, _names()).run()
            made = [tile_priority(self.producers[v]) for v in arena.values]
            free = [n for n, p in enumerate(made) if p is not Priority.MUST]
            found = place_tiles(lane, arena.buffers, made, view.budget, share=self.share)
            if isinstance(found, Tiles) and not found.dropped:
                return found
            if not free:
                assert isinstance(found, DoesNotFit)
                if self.limit is not None:
                    raise CannotLowerError(_too_large(found))
                view = replace(view, budget=found.nbytes)
            gone = found.dropped if isinstance(found, Tiles) and attempt < ATTEMPTS else free
            view = replace(view, refused=view.refused | {arena.values[n] for n in gone})
        raise AssertionError("every attempt refuses a value or is the last one")

    def _is_ready(self, v: Value, level: int) -> bool:
        op = self.producers.get(v)
        if op is None:
            return True
        return v in self.grouping.spilled and self.grouping.level_of[op] < level


@dataclass(eq=False)
class _Arena:
    """Tiles of one lane, and the values in them; `place_tiles` gives them their offsets.

    Programs of different lanes never run on one arena at once, so all lanes start at 0.
    """

    buffers: list[Buffer] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def keep(self, v: Value, rows: int, step: int) -> Place:
        """A tile for `step` rows of `v`."""
        slab = v.tensor.size // rows
        t = TensorType((step, slab), v.tensor.dtype.compute)
        buffer = Buffer(f"t{len(self.buffers)}", t, Space.ARENA, len(self.buffers))
        self.buffers.append(buffer)
        self.values.append(v)
        return Place(buffer, slab)


def _names() -> Callable[[], str]:
    counter = itertools.count()
    return lambda: f"v{next(counter)}"


def _too_large(found: DoesNotFit[int]) -> str:
    tiles = ", ".join(f"t{n}: {nbytes}" for n, nbytes in found.remaining.items())
    needs = f"needs {found.nbytes} bytes per program for results of reductions ({tiles})"
    return f"{needs}, arena_bytes is {found.budget}"


@dataclass(eq=False)
class _LaneLowering:
    view: LaneView
    stores: Mapping[Value, Place]
    keep: Callable[[Value, int, int], Place]
    names: Callable[[], str]
    tiles: dict[Value, Place] = field(default_factory=dict)

    def run(self) -> Lane:
        group = self.view.group
        placement = place_values(self.view)
        for node in placement.nodes:
            if node.is_reduction or node.value in placement.kept:
                for v in node.op.results if node.is_reduction else (node.value,):
                    self.tiles[v] = self._accumulator(node, v) or self.keep(v, group.rows, group.step)
        where = last_stage(placement)
        once = [self._zero(n) for n in placement.nodes if n.is_partial]
        stages = [Stage((nest,), "start the partial sums", once=True) for nests in once for nest in nests]
        for key in sorted(set(where.values())):
            nodes = [n for n in placement.nodes if where[n] == key]
            stages.append(self._stage(nodes, key[1]))
        work = sum(math.prod(n.domain) * max(1.0, lookup(n.op.name).cpi) for n in placement.nodes)
        return Lane(group.rows, group.step, group.programs, tuple(stages), group.flat, int(work))

    def _accumulator(self, n: Node, v: Value) -> Place | None:
        """The memory that a reduction's result goes to anyway, when it can accumulate there."""
        place = self.stores.get(v)
        if v not in self.view.stored or place is None or not self._read_modify_write(n):
            return None
        return place if place.buffer.type.dtype is v.tensor.dtype.compute else None

    # -- stages ---------------------------------------------------------------------------------------

    def _stage(self, nodes: list[Node], by_columns: bool) -> Stage:
        domains: dict[tuple[int, ...], list[Node]] = {}
        for n in nodes:
            key = () if self.view.group.flat else n.domain
            domains.setdefault(key, []).append(n)
        nests = [nest for group in domains.values() for nest in self._nests(group, by_columns)]
        return Stage(tuple(nests), ", ".join(dict.fromkeys(_label(n) for n in nodes)))

    def _nests(self, nodes: list[Node], by_columns: bool) -> list[Nest]:
        shape = nodes[0].domain
        first = [self._first_fill(n, shape) for n in nodes if self._read_modify_write(n)]
        fills = [nest for nests in first for nest in nests]
        if self._collapsible(nodes):
            writer = _NestWriter(self, nodes, by_columns, collapse=True)
            nest = writer.write()
            if not writer.builder.modular:
                return [*fills, nest]
        return [*fills, *self._split(nodes, by_columns)]

    def _split(self, nodes: list[Node], by_columns: bool) -> list[Nest]:
        """One nest, or several where a loop is better cut at the seams of a concatenate or pad."""
        writer = _NestWriter(self, nodes, by_columns, collapse=False)
        nest = writer.write()
        runs = writer.runs()
        if runs:
            return [_NestWriter(self, nodes, by_columns, collapse=False, runs=runs).write()]
        cuts = writer.cuts() if not nest.accumulators else None
        if cuts is None:
            return [nest]
        name, points = cuts
        pieces = []
        for lo, hi in itertools.pairwise(points):
            piece = _NestWriter(self, nodes, by_columns, collapse=False, ranges={name: (lo, hi)})
            pieces.append(piece.write())
        return pieces

    def _collapsible(self, nodes: list[Node]) -> bool:
        """Whether the tile's loops may be one: everything inner is kept, or everything is reduced."""
        if self.view.group.flat:
            return False
        inner = _inner_dims(nodes[0].domain, self.view.group.rows)
        if len(inner) < 2:
            return False
        for n in nodes:
            if n.roots:
                dims = set(n.op.attrs["dimensions"])
                reduced = [d for d in inner if d in dims]
                if reduced and len(reduced) != len(inner):
                    return False
        return True

    def _read_modify_write(self, n: Node) -> bool:
        """An inner reduction whose accumulators are in the tile, not only in scalars."""
        return n.is_reduction and loop_order(n, self.view.group.rows).outer

    def _first_fill(self, n: Node, shape: tuple[int, ...]) -> list[Nest]:
        """Set the tile of accumulators to the reduction's initial value."""
        writer = _NestWriter(self, [n], False, collapse=False)
        return [writer.fill(v, init) for v, init in zip(n.op.results, _inits(n.op), strict=True)]

    def _zero(self, n: Node) -> list[Nest]:
        """Set a program's partial results to the monoid's identity."""
        writer = _NestWriter(self, [n], False, collapse=False)
        return [writer.zero(v) for v in n.op.results]


def _inits(op: Op) -> tuple[Value, ...]:
    return op.operands[len(data_operands(op)) :]


def _inner_dims(shape: tuple[int, ...], rows: int) -> list[int]:
    """Dimensions of size > 1 inside a row; [-1] stands for a row that is cut out of one dimension."""
    k = prefix_rank(shape, rows)
    if k is None:
        return [-1]
    return [d for d in range(k, len(shape)) if shape[d] > 1]


@dataclass(frozen=True)
class LoopOrder:
    """suffix: innermost loops that are all reduced. outer: whether a reduced loop is outside a kept one."""

    suffix: int
    outer: bool


def loop_order(n: Node, rows: int) -> LoopOrder:
    """How a reduction's kept and reduced loops are nested, in memory order."""
    inner = _inner_dims(n.domain, rows)
    if inner == [-1]:
        return LoopOrder(1, False)
    dims = set(n.op.attrs["dimensions"])
    flags = [d in dims for d in inner]
    suffix = next((k for k, f in enumerate(reversed(flags)) if not f), len(flags))
    return LoopOrder(suffix, any(flags[: len(flags) - suffix]))


def _label(n: Node) -> str:
    kind = n.op.name.rpartition(".")[2]
    if n.op.attrs.get("monoid"):
        return f"{kind} {n.op.attrs['monoid'].rpartition('.')[2]}"
    return kind


class _NestWriter:
    """Loops over one domain, and the instructions of the nodes that share them."""

    def __init__(
        self,
        lane: _LaneLowering,
        nodes: list[Node],
        by_columns: bool,
        collapse: bool,
        ranges: Mapping[str, tuple[int, int]] | None = None,
        runs: Mapping[int, int] | None = None,
    ) -> None:
        group = lane.view.group
        self.lane, self.nodes, self.group = lane, nodes, group
        self.rows, self.shape = group.rows, nodes[0].domain
        self.collapse, self.ranges, self.cut_runs = collapse, ranges or {}, runs or {}
        self.unrolled = by_columns and group.step > 1
        self.loops: list[Loop] = []
        if not self.unrolled and self.rows > 1:
            self.loops.append(Loop(Var(ROW, self.rows), 0, group.step))
        self.inner = self._inner_loops()
        depths = {loop.var.name: n + 1 for n, loop in enumerate(self.loops)}
        stepped = group.step > 1
        first = mul(var(Var(STEP, self.rows // group.step)), group.step)
        self.row = first if self.unrolled else var(Var(ROW, self.rows))
        self.builder = NestBuilder(
            lane.view.producers,
            {**lane.view.places, **lane.tiles},
            depths,
            lane.names,
            first_row=first if stepped else self.row,
            inner_names=frozenset(loop.var.name for loop in self.loops if loop.var.name != ROW),
        )
        self.accumulators: list[Accumulator] = []
        self.after: list[Instr] = []
        self._running: dict[tuple[Buffer, Index], str] = {}

    # -- indices --------------------------------------------------------------------------------------

    def _inner_loops(self) -> dict[int, Index]:
        """Loops over the tile; the index of each inner dimension (-1: the whole row)."""
        dims = [] if self.group.flat else _inner_dims(self.shape, self.rows)
        if self.collapse or dims == [-1]:
            size = math.prod(self.shape) // self.rows
            lo, hi = self.ranges.get("i", (0, size))
            if hi - lo > 1:
                self.loops.append(Loop(Var("i", hi - lo), 0, hi - lo))
            return {-1: add(var(Var("i", hi - lo)), const(lo))}
        found: dict[int, Index] = {}
        for d in dims:
            name = f"i{d}"
            if d in self.cut_runs:
                found[d] = self._run_loops(name, self.shape[d], self.cut_runs[d])
                continue
            lo, hi = self.ranges.get(name, (0, self.shape[d]))
            if hi - lo > 1:
                self.loops.append(Loop(Var(name, hi - lo), 0, hi - lo))
            found[d] = add(var(Var(name, hi - lo)), const(lo))
        return found

    def _run_loops(self, name: str, size: int, run: int) -> Index:
        """A loop over runs, one over the elements of a run."""
        outer, inner = Var(name, size // run), Var(name.replace("i", "j"), run)
        self.loops += [Loop(outer, 0, size // run), Loop(inner, 0, run)]
        return add(mul(var(outer), run), var(inner))

    def runs(self) -> dict[int, int]:
        """Dimensions whose index is wanted divided by a number: in runs of it, which are worth a loop."""
        found: dict[int, int] = {}
        for d in self.inner:
            run = self.builder.divisors.get(f"i{d}", 0)
            if run and run % RUN == 0 and run < self.shape[d] and self.shape[d] % run == 0:
                found[d] = run
        return found

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
        for j in rows:
            row = self.row if j is None else add(self.row, const(j))
            for n in self.nodes:
                if n.is_partial or n.is_reduction:
                    self._reduce(n, row)
                else:
                    self._store(n, row)
        return Nest(tuple(self.loops), tuple(self.accumulators), tuple(self.builder.body), tuple(self.after))

    def _store(self, n: Node, row: Index) -> None:
        index = self.index(n.value.shape, row)
        name = self.builder.value(n.value, index, compute=True)
        offset = linearize(index, n.value.shape)
        if n.value in self.lane.view.stored:
            self.builder.store(self.lane.stores[n.value].buffer, offset, name)
        if n.value in self.lane.tiles:
            place = self.lane.tiles[n.value]
            self.builder.store(place.buffer, self.builder.tile_offset(offset, n.value, place), name)

    def _reduce(self, n: Node, row: Index) -> None:
        elements = [self.builder.value(v, self.index(v.shape, row)) for v in data_operands(n.op)]
        kept = self.kept(n.op, self.index(n.op.operands[0].shape, row))
        order = loop_order(n, self.rows)
        depth = len(self.loops) - (min(order.suffix, 1) if self.collapse else self._loops(order.suffix))
        if self.group.flat and n.is_partial:
            depth = 0
        if depth == len(self.loops):
            self._update(n, kept, elements)
            return
        names = self._accumulate(n, kept, elements, depth, n.is_partial or order.outer)
        for v, name in zip(n.op.results, names, strict=True):
            for buffer, offset in self._targets(n, v, kept):
                self.after.append(Store(buffer, offset, name, depth))

    def _loops(self, suffix: int) -> int:
        """Loops over the last `suffix` inner dimensions."""
        return suffix + sum(d in self.cut_runs for d in list(self.inner)[len(self.inner) - suffix :])

    def _accumulate(
        self, n: Node, kept: tuple[Index, ...], elements: list[str], depth: int, resume: bool
    ) -> list[str]:
        """Scalar accumulators over the loops inside `depth`; `resume`: they go on from memory."""
        names = [self.builder.names().replace("v", "acc") for _ in elements]
        for name, v, init in zip(names, n.op.results, _inits(n.op), strict=True):
            start = self.builder.value(init, ())
            if resume:
                start = self.builder.read(*self._targets(n, v, kept)[0], depth)
            self.accumulators.append(Accumulator(name, start, depth))
        inside = len(self.loops)
        self.builder.depth_of.update(dict.fromkeys(names, inside))
        for name, new in zip(names, self._combine(n.op, names, elements), strict=True):
            self.builder.body.append(Let(name, new, inside))
        return names

    def _combine(self, op: Op, left: Sequence[str], right: Sequence[str]) -> list[str]:
        monoid = op.attrs.get("monoid")
        if monoid is None:
            return list(self.builder.region(op.regions[0], [*left, *right]))
        rule = lookup(monoid)
        free = rule.reassociated if op.results[0].tensor.dtype.is_float else None
        template = free or (rule.scalar(op.regions[0].ops[0]) if rule.scalar else None)
        if template is None:
            raise CannotLowerError(f"'{monoid}' has no scalar form for these types")
        return [template.format(left[0], right[0])]

    def _identity(self, op: Op, v: Value) -> str:
        identity = lookup(op.attrs["monoid"]).identity
        assert identity is not None
        return literal(identity(v.tensor.dtype.compute), v.tensor.dtype.compute)

    def _targets(self, n: Node, v: Value, kept: tuple[Index, ...]) -> list[tuple[Buffer, Index]]:
        """Where an accumulator lives: memory it goes on from first, then where else it is wanted."""
        if n.is_partial:
            offset = linearize((var(Var(PROGRAM, v.shape[0])), *kept), v.shape)
            return [(self.lane.stores[v].buffer, offset)]
        place, offset = self.lane.tiles[v], linearize(kept, v.shape)
        if place.buffer.space is not Space.ARENA:
            return [(place.buffer, offset)]
        found = [(place.buffer, self.builder.tile_offset(offset, v, place))]
        if v in self.lane.view.stored:
            found.append((self.lane.stores[v].buffer, offset))
        return found

    def _update(self, n: Node, kept: tuple[Index, ...], elements: list[str]) -> None:
        """Accumulators in memory: load, combine, store (once per step where rows are unrolled)."""
        targets = [self._targets(n, v, kept) for v in n.op.results]
        inside = len(self.loops)
        if n.is_partial or loop_order(n, self.rows).outer:
            old = [self._running.get(t[0]) or self.builder.read(*t[0], inside) for t in targets]
        else:
            old = [self.builder.value(init, ()) for init in _inits(n.op)]
        new = [self.builder.let(t, [*old, *elements], inside) for t in self._combine(n.op, old, elements)]
        for found, name in zip(targets, new, strict=True):
            if found[0] in self._running:
                self._drop_stores(found)
            self._running[found[0]] = name
            for target in found:
                self.builder.store(*target, name)

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
        offset = add(mul(var(Var(PROGRAM, v.shape[0])), size), var(loop.var))
        name = self._identity(self.nodes[0].op, v)
        return Nest((loop,), (), (Store(self.lane.stores[v].buffer, offset, name, 1),), ())

    # -- seams ----------------------------------------------------------------------------------------

    def cuts(self) -> tuple[str, list[int]] | None:
        """A loop variable and the points at which conditions on it change, for at most four pieces."""
        points: dict[str, set[int]] = {}
        for c in self.builder.conditions:
            match c.of:
                case Index(base, ((Var(name, extent), 1),)) if name != ROW and c.step == 1:
                    for edge in (c.lo - base, c.hi - base):
                        if 0 < edge < extent:
                            points.setdefault(name, {0, extent}).add(edge)
        for name, found in points.items():
            if name not in self.ranges and len(found) <= 5:
                return name, sorted(found)
        return None
