"""Columns of a step's rows go in blocks: tiles hold one, what is reduced over columns is a running value.

    t0 = q * keys            [64, 4096]         for turn0 in [0, 32):
    t1 = max of t0                                t0 = q * 128 keys                    [64, 128]
    t2, t3 = sum, exp(t0 - t1)          ->        t1 = max(old t1, max of t0);  c = exp(old t1 - t1)
    t4 = t3 * values         [64, 64]             t3 = exp(t0 - t1);  t2 = old t2 * c + sum of t3
                                                  t4 = t4 * c + t3 * 128 values

The softmax of M. Milakov, N. Gimelshein and of FlashAttention, and any other reduction: which values change
with a maximum, and how, is read off what they are made of (`find_columns`). What cannot use a value before
all of it is there has its columns made again in another pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import (
    OTHER,
    Accumulator,
    Buffer,
    Combine,
    Instr,
    Lane,
    Let,
    Load,
    Loop,
    Nest,
    Space,
    Stage,
    Store,
    Turns,
)
from jstitch.ir.expr import Call, Const, Expr, Ref, call, index_refs, move_numbers, refs, replace_refs
from jstitch.ir.index import Index, Var, add, linearize, mul, substitute, var
from jstitch.ir.types import DType, TensorType
from jstitch.passes.lower.column_values import RUNNING
from jstitch.passes.lower.find_columns import NEVER, Columns, Site, find_columns, tile_offset
from jstitch.passes.lower.find_masked import find_masked

LOWEST = Const(-3.4028234663852886e38, DType.F32)
"""Where nothing but -inf has been met, a maximum that differences can be taken from."""


@dataclass(frozen=True)
class Blocked:
    """A lane with its columns in blocks, and all its tiles, by number."""

    lane: Lane
    tiles: tuple[Buffer, ...]


def block_columns(lane: Lane, tiles: Sequence[Buffer], block: int) -> Blocked | None:
    """The lane with `block` columns at a time; None where they cannot be so. tiles: its tiles, by number."""
    found = find_columns(lane, block)
    if found is None:
        return None
    passes = _Passes(found, list(tiles))
    stages = [stage for number in range(NEVER, found.passes) for stage in passes.stages(number)]
    return Blocked(replace(lane, stages=tuple(stages)), tuple(passes.tiles))


@dataclass
class _Running:
    """A reduction over columns: its value before the block, and after it."""

    site: Site
    name: str
    before: Buffer
    now: Buffer


@dataclass
class _Passes:
    """One loop over all blocks after another. tiles: of the lane; running: by nest and accumulator."""

    found: Columns
    tiles: list[Buffer]
    number: int = NEVER
    running: dict[tuple[Site, str], _Running] = field(default_factory=dict)
    names: Iterator[str] = field(default_factory=lambda: (f"run{n}" for n in itertools.count()))

    def stages(self, number: int) -> Iterator[Stage]:
        """Of the pass, and of what waits for it and has no columns."""
        self.number = number
        if number != NEVER:
            yield from self._loop_stages()
        for site in self.found.sites:
            if site.finish == number and site.column is None:
                yield replace(site.stage, nests=(site.nest,))
            elif site.finish == number and site.is_reduced:
                yield from self._finish(site)

    def _loop_stages(self) -> Iterator[Stage]:
        own = [s for s in self.found.sites if s.is_reduced and s.level == self.number]
        for site in own:
            self.running |= {(site, a.name): self._kept(site, a) for a in site.nest.accumulators}
        first = [nest for site in own for nest in self._first(site)]
        if first:
            yield Stage(tuple(first), "start what columns are reduced to")
        turn = [s for site, stores in self._wanted() for s in self._in_loop(site, stores)]
        copies = [self._copy(r) for site in own for r in self._runs(site) if r.before is not r.now]
        if copies:
            turn.append(Stage(tuple(copies), "the next block goes on from here"))
        for loop in self._loops():
            yield from (replace(stage, turn=loop) for stage in turn)

    def _loops(self) -> Sequence[Loop]:
        """Over the pass's blocks; apart over those that are masked."""
        masked = find_masked(self.found, self.number)
        if masked is None:
            return [self.turn]
        whole = self.turn.var, self.turn.lo, self.turn.hi
        return [Turns(*whole, first=masked.first), Turns(*whole, first=masked.first, unless=masked.unless)]

    @property
    def turn(self) -> Loop:
        """The loop over the pass's blocks."""
        turns = self.found.count // self.found.block
        return Loop(Var(f"turn{self.number}", turns), 0, turns)

    def _new_tile(self, kind: TensorType) -> Buffer:
        number = len(self.tiles)
        self.tiles.append(Buffer(f"t{number}", kind, Space.ARENA, number))
        return self.tiles[-1]

    # -- which nests ----------------------------------------------------------------------------------

    def _wanted(self) -> list[tuple[Site, list[Store]]]:
        """The nests of the loop, in order, with what they store column by column."""
        needed: set[Buffer] = set()
        found: list[tuple[Site, list[Store]]] = []
        for site in reversed(self.found.sites):
            if site.column is None:
                continue
            reduces = site.is_reduced and site.level == self.number
            stores = [
                i for i in site.nest.instructions if isinstance(i, Store) and self._is_stored(i, site, needed)
            ]
            if not stores and not reduces:
                continue
            totals = {a.name for a in site.nest.accumulators} if reduces or not site.is_reduced else set()
            used = _needed(site.nest, stores, totals)
            needed |= {i.buffer for i in used if isinstance(i, Load) and i.buffer in self.found.tiles}
            found.append((site, stores))
        return found[::-1]

    def _is_stored(self, i: Store, site: Site, needed: set[Buffer]) -> bool:
        if i.buffer in self.found.tiles:
            return i.buffer in needed
        inside = not site.is_reduced or i in site.nest.body
        return inside and i.buffer.space is not Space.ARENA and site.memory == self.number

    # -- nests of a block -----------------------------------------------------------------------------

    def _in_loop(self, site: Site, stores: Sequence[Store]) -> Iterator[Stage]:
        nest = site.nest
        own = site.is_reduced and site.level == self.number
        totals = {a.name for a in nest.accumulators} if own or not site.is_reduced else set()
        body = _needed(nest, stores, totals)
        behind = [i for i in nest.after if i in body and not site.is_reduced]
        part = replace(
            nest,
            loops=tuple(map(self._loop(site), nest.loops)),
            accumulators=tuple(a for a in nest.accumulators if a.name in totals),
            body=tuple(self._floored([self._moved(i, site) for i in nest.body if i in body])),
            after=tuple(self._moved(i, site) for i in behind),
            combines=tuple(c for c in nest.combines if totals.issuperset(c.names)),
        )
        if not own:
            yield replace(site.stage, nests=(part,))
        elif site.depth == 1:
            yield replace(site.stage, nests=(self._of_rows(site, part),))
        else:
            yield from self._of_elements(site, part)

    def _of_rows(self, site: Site, part: Nest) -> Nest:
        """Its totals join those of the blocks before."""
        before, after = self._joined(site, 1)
        stores = [Store(r.now, self._row(), Ref(after[1][r.name]), 1) for r in self._runs(site)]
        return replace(part, body=(*before, *part.body), after=(*after[0], *stores))

    def _of_elements(self, site: Site, part: Nest) -> Iterator[Stage]:
        """A product: the block's own one, then the sum."""
        outer = site.nest.loops[: site.depth]
        tiles = {}
        stores = []
        for r in self._runs(site):
            tiles[r.name] = self._new_tile(r.now.type)
            stores.append(Store(tiles[r.name], self._place(outer), Ref(r.name), site.depth))
        yield replace(site.stage, nests=(replace(part, after=tuple(stores)),))
        before, (joins, names) = self._joined(site, site.depth)
        loads = [Load(r.name, tiles[r.name], self._place(outer), site.depth) for r in self._runs(site)]
        ends = [Store(r.now, self._place(outer), Ref(names[r.name]), site.depth) for r in self._runs(site)]
        yield Stage((Nest(outer, (), (*before, *loads, *joins, *ends), ()),), "with the blocks before")

    def _joined(self, site: Site, depth: int) -> tuple[list[Instr], tuple[list[Instr], dict[str, str]]]:
        """What totals become together with those of the blocks before: loads and factors first."""
        first: list[Instr] = []
        changed: dict[str, str] = {}
        outer = site.nest.loops[: site.depth]
        bases = self.found.changing(site)
        factors = {b: next(self.names) for b in dict.fromkeys(b for found in bases.values() for b in found)}
        for b, name in factors.items():
            first += self._factor(b, name)
        for r in self._runs(site):
            old = next(self.names)
            first.append(Load(old, r.before, self._place(outer), depth))
            for b in bases[r.name]:
                first.append(Let(scaled := next(self.names), call("mul", Ref(old), Ref(factors[b])), depth))
                old = scaled
            changed[r.name] = old
        joins: list[Instr] = []
        names: dict[str, str] = {}
        for c in _combines(site.nest):
            fresh = {let.name: next(self.names) for let in c.lets}
            value = {**{n: changed[n] for n in c.names}, **{n + OTHER: n for n in c.names}, **fresh}
            renamed = lambda name, value=value: Ref(value[name]) if name in value else None  # noqa: E731
            joins += [Let(fresh[t.name], replace_refs(t.value, renamed), depth) for t in c.lets]
            for name, result in zip(c.names, c.results, strict=True):
                names[name] = next(self.names)
                joins.append(Let(names[name], replace_refs(result, renamed), depth))
        return first, (joins, names)

    def _factor(self, base: int, name: str) -> list[Instr]:
        """exp(old base - base), of a row."""
        tile = self.found.values.base(base)
        run = next(r for r in self.running.values() if r.now is tile)
        found: list[Instr] = []
        ends: list[str] = []
        for buffer in (run.before, run.now):
            loaded, low = next(self.names), next(self.names)
            found.append(Load(loaded, buffer, self._row(), 1))
            found.append(Let(low, call("maximum", Ref(loaded), LOWEST), 1))
            found.append(Let(end := next(self.names), self._expression(base, Ref(low)), 1))
            ends.append(end)
        apart = call("sub", *map(Ref, ends))
        same = call("eq", *map(Ref, ends))
        one = Const(1.0, DType.F32)
        found.append(Let(moved := next(self.names), call("exp", apart), 1))
        found.append(Let(name, call("select", same, one, Ref(moved)), 1))
        return found

    def _expression(self, number: int, maximum: Expr) -> Expr:
        """The value with something else for the maximum that it is made of."""
        keys = self.found.values.keys
        needed, todo = {number}, [number]
        while todo:
            function, *operands = keys[todo.pop()]
            more = set() if function in (RUNNING, "const") else set(operands) - needed
            needed |= more
            todo += more
        made: dict[int, Expr] = {}
        for n in sorted(needed):
            function, *operands = keys[n]
            if function == RUNNING:
                made[n] = maximum
            else:
                made[n] = (
                    operands[0] if function == "const" else Call(function, tuple(made[k] for k in operands))
                )
        return made[number]

    def _floored(self, body: Sequence[Instr]) -> list[Instr]:
        """With maxima of this pass that are numbers."""
        found: list[Instr] = []
        low: dict[str, str] = {}
        maxima = {r.now for r in self._maxima() if r.site.level == self.number}
        for i in body:
            renamed = lambda name: Ref(low[name]) if name in low else None  # noqa: E731
            found.append(i if isinstance(i, Load) else replace(i, value=replace_refs(i.value, renamed)))
            if isinstance(i, Load) and i.buffer in maxima:
                low[i.name] = next(self.names)
                found.append(Let(low[i.name], call("maximum", Ref(i.name), LOWEST), i.depth))
        return found

    # -- running values -------------------------------------------------------------------------------

    def _maxima(self) -> Iterator[_Running]:
        """Running maxima that nests of their own pass read."""
        running = self.found.values.running
        return (r for r in self.running.values() if running.get(r.now) is not None)

    def _runs(self, site: Site) -> list[_Running]:
        return [self.running[site, a.name] for a in site.nest.accumulators]

    def _kept(self, site: Site, a: Accumulator) -> _Running:
        """A tile for rows, of which old values are kept besides; for a product's elements, one for both."""
        sizes = [loop.hi for loop in site.nest.loops[1 : site.depth]]
        kind = TensorType((self.found.lane.step, math.prod(sizes)), a.dtype)
        own = [i.buffer for i in site.nest.after if isinstance(i, Store) and i.value == Ref(a.name)]
        maximum = next((b for b in own if self.found.values.running.get(b) is not None), None)
        now = maximum or self._new_tile(kind)
        return _Running(site, a.name, now if site.depth > 1 else self._new_tile(kind), now)

    def _first(self, site: Site) -> Iterator[Nest]:
        outer = site.nest.loops[: site.depth]
        for a in site.nest.accumulators:
            r = self.running[site, a.name]
            yield Nest(outer, (), (Store(r.before, self._place(outer), a.init, site.depth),), ())

    def _copy(self, r: _Running) -> Nest:
        rows = r.site.nest.loops[:1]
        name = next(self.names)
        copied = Load(name, r.now, self._row(), 1), Store(r.before, self._row(), Ref(name), 1)
        return Nest(rows, (), copied, ())

    def _finish(self, site: Site) -> Iterator[Stage]:
        """What the nest makes of its totals, which are whole now."""
        outer = site.nest.loops[: site.depth]
        maxima = {r.now for r in self._maxima()}
        stores = [i for i in site.nest.after if isinstance(i, Store) and i.buffer not in maxima]
        if not stores:
            return
        used = _needed(site.nest, stores, set())
        before = [i for i in site.nest.body if i in used and i.depth <= site.depth]
        loads: list[Instr] = []
        for r in self._runs(site):
            loads += self._whole(r, outer, site.depth)
        behind = [i for i in site.nest.after if i in used]
        yield replace(site.stage, nests=(Nest(outer, (), (*before, *loads, *behind), ()),))

    def _whole(self, r: _Running, outer: Sequence[Loop], depth: int) -> Iterator[Instr]:
        """A total, not a number where a maximum that it depends on is none."""
        bases = self.found.changing(r.site)[r.name]
        name = next(self.names) if bases else r.name
        yield Load(name, r.before, self._place(outer), depth)
        for k, b in enumerate(bases):
            tile = self.found.values.base(b)
            yield Load(loaded := next(self.names), tile, self._row(), 1)
            yield Let(base := next(self.names), self._expression(b, Ref(loaded)), 1)
            yield Let(nothing := next(self.names), call("sub", Ref(base), Ref(base)), 1)
            last = k == len(bases) - 1
            yield Let(
                own := r.name if last else next(self.names), call("add", Ref(name), Ref(nothing)), depth
            )
            name = own

    # -- places ---------------------------------------------------------------------------------------

    def _loop(self, site: Site) -> Callable[[Loop], Loop]:
        block = self.found.block
        return lambda loop: Loop(Var(loop.var.name, block), 0, block) if loop == site.column else loop

    def _moved(self, i: Instr, site: Site) -> Instr:
        """For the columns of the block."""
        assert site.column is not None
        column = Var(site.column.var.name, self.found.block)
        here = add(mul(var(self.turn.var), self.found.block), var(column))

        def moved(e: Index) -> Index:
            return substitute(e, lambda atom: here if atom == site.column.var else None)  # type: ignore[union-attr]

        if not isinstance(i, Load):
            i = replace(i, value=move_numbers(i.value, moved))
        if isinstance(i, Let):
            return i
        if i.buffer in self.found.tiles:
            return replace(
                i,
                buffer=self._narrow(i.buffer),
                offset=tile_offset(self.found.lane, self.found.block, var(column)),
            )
        return replace(i, offset=moved(i.offset))

    def _narrow(self, tile: Buffer) -> Buffer:
        """The tile for a block."""
        if self.tiles[tile.number] is tile:
            kind = TensorType((self.found.lane.step, self.found.block), tile.type.dtype)
            self.tiles[tile.number] = replace(tile, type=kind)
        return self.tiles[tile.number]

    def _row(self) -> Index:
        return tile_offset(self.found.lane, 1, Index())

    def _place(self, outer: Sequence[Loop]) -> Index:
        inner = outer[1:]
        column = linearize([var(loop.var) for loop in inner], [loop.hi for loop in inner])
        return tile_offset(self.found.lane, math.prod([loop.hi for loop in inner]), column)


def _combines(nest: Nest) -> list[Combine]:
    names = {a.name for a in nest.accumulators}
    return [c for c in nest.combines if names.issuperset(c.names)]


def _needed(nest: Nest, stores: Sequence[Store], totals: set[str]) -> list[Instr]:
    """The stores, what updates the totals, and what makes all of that."""
    wanted = {name for s in stores for name in (*refs(s.value), *index_refs(s.offset))} | totals
    found: list[Instr] = []
    for i in reversed(nest.instructions):
        if isinstance(i, Store):
            found += [i] if i in stores else []
        elif i.name in wanted:
            found.append(i)
            wanted.update(refs(i.value) if isinstance(i, Let) else index_refs(i.offset))
    return found
