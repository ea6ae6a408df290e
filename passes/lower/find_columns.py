"""Whether a step's columns can go in blocks: which tiles hold them, which loops run over them, which passes.

    t0 = q * keys;  t1 = max of t0;  t2, t3 = sum, exp(t0 - t1);  t4 = t3 * values      all in pass 0
    t5 = sum of t3 * (t0 - t4)                                       waits for all of t4: in pass 1

What is reduced over columns is a running value, which later nests of the same pass may use where they are
able to change with it (`ColumnValues`); what cannot waits for the next pass, which makes its columns again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import ROW, STEP, Buffer, Instr, Lane, Let, Loop, Nest, Space, Stage, Store
from jstitch.ir.expr import Const, Ref
from jstitch.ir.index import Index, Var, add, mul, var
from jstitch.ir.node_graph import connected_parts
from jstitch.ir.types import DType
from jstitch.passes.lower.column_values import ADDS, MAXIMA, ColumnValues, Update

MOST_PASSES = 3
NEVER = -1


@dataclass(frozen=True, eq=False)
class Site:
    """A nest of a lane. column: its loop over the step's columns, if it has one.

    level: the pass that makes its reductions; NEVER: it waits for no pass. finish: the pass after which what
    is made of these can be stored. memory: the pass that stores columns in memory, if any.
    """

    stage: Stage
    nest: Nest
    column: Loop | None
    updates: Mapping[str, Update] = field(default_factory=dict)
    level: int = NEVER
    finish: int = NEVER
    memory: int = NEVER

    @property
    def depth(self) -> int:
        """Loops around the one over columns."""
        return 0 if self.column is None else self.nest.loops.index(self.column)

    @property
    def is_reduced(self) -> bool:
        """Whether its accumulators go over columns."""
        return self.column is not None and any(a.depth == self.depth for a in self.nest.accumulators)


@dataclass(frozen=True, eq=False)
class Columns:
    """tiles: that hold columns. count: of a row; block: of them at once. values: what nests compute.

    before: nests that need nothing of columns. sites: of columns, and of what is made of their reductions.
    levels: tile of a row -> the pass that makes it.
    """

    lane: Lane
    tiles: frozenset[Buffer]
    count: int
    block: int
    values: ColumnValues
    sites: tuple[Site, ...]
    levels: Mapping[Buffer, int]

    @property
    def passes(self) -> int:
        return 1 + max(max(s.level, s.memory) for s in self.sites)

    def changing(self, site: Site) -> dict[str, tuple[int, ...]]:
        """Accumulator -> its factors that change while the site's pass goes on."""
        found = {}
        for name, update in site.updates.items():
            factors = self.values.factors[update.summand] or ()
            found[name] = tuple(b for b in factors if self.levels[self.values.base(b)] == site.level)
        return found


def tile_offset(lane: Lane, columns: int, column: Index) -> Index:
    """The element of a tile of so many columns: of the row in its step, in that column."""
    step = mul(var(Var(STEP, lane.rows // lane.step)), -lane.step * columns)
    return add(add(step, mul(var(Var(ROW, lane.rows)), columns)), column)


def find_columns(lane: Lane, block: int) -> Columns | None:
    """What a pass by blocks of so many columns needs to know; None where columns are of no use apart."""
    found = (_columns(lane, tiles, block) for tiles in _tiles(lane))
    return next((columns for columns in found if columns is not None), None)


def _columns(lane: Lane, tiles: frozenset[Buffer], block: int) -> Columns | None:
    """The same for blocks of these tiles."""
    count = _width(tiles)
    if count % block or block >= count or any(stage.once or stage.turn is not None for stage in lane.stages):
        return None
    search = _Search(lane, tiles, ColumnValues(tiles, count))
    for stage in lane.stages:
        for nest in stage.nests:
            site = search.site(stage, nest)
            if site is None:
                return None
            search.sites.append(site)
    found = Columns(lane, tiles, count, block, search.values, tuple(search.sites), search.levels)
    return found if found.passes <= MOST_PASSES else None


def _tiles(lane: Lane) -> list[frozenset[Buffer]]:
    """Tiles to go through in blocks: all of the widest ones, or those alone that loops go through together.

    Only such as are read column by column.
    """
    loops: list[tuple[Hashable, Hashable]] = []
    apart: set[Buffer] = set()
    for n, nest in enumerate(nest for stage in lane.stages for nest in stage.nests):
        for i in nest.instructions:
            if isinstance(i, Let) or i.buffer.space is not Space.ARENA or i.buffer.type.size == lane.step:
                continue
            loop = _goes_through(i, nest, lane)
            if loop is None:
                apart.add(i.buffer)
            else:
                loops.append((i.buffer, (n, loop.var.name)))
    parts: list[frozenset[Buffer]] = []
    for part in connected_parts((), loops):
        tiles = frozenset(x for x in part if isinstance(x, Buffer))
        if not tiles & apart:
            parts.append(tiles)
    widest = max((_width(tiles) for tiles in parts), default=0)
    alike = [tiles for tiles in parts if _width(tiles) == widest]
    return list(dict.fromkeys((frozenset().union(*alike), *alike))) if alike else []


def _width(tiles: frozenset[Buffer]) -> int:
    return next(iter(tiles)).type.shape[1]


def _goes_through(i: Instr, nest: Nest, lane: Lane) -> Loop | None:
    """The loop that goes through all columns of a tile."""
    assert not isinstance(i, Let)
    columns = i.buffer.type.size // lane.step
    for loop in nest.loops[1:]:
        whole = (loop.lo, loop.hi, loop.var.extent) == (0, columns, columns)
        if whole and i.offset == tile_offset(lane, columns, var(loop.var)):
            return loop
    return None


@dataclass(eq=False)
class _Search:
    lane: Lane
    tiles: frozenset[Buffer]
    values: ColumnValues
    sites: list[Site] = field(default_factory=list)
    levels: dict[Buffer, int] = field(default_factory=dict)

    def site(self, stage: Stage, nest: Nest) -> Site | None:
        """The nest with its passes; None where it does not go by columns, or by rows of a step."""
        if not nest.loops or nest.loops[0].var.name != ROW or nest.loops[0].each != 1:
            return None
        through = {loop for i in self._touches(nest) if (loop := _goes_through(i, nest, self.lane))}
        if len(through) > 1:
            return None
        column = through.pop() if through else None
        plain = Site(stage, nest, column)
        if not self._is_fine(plain):
            return None
        updates, stores = self.values.follow(nest, column)
        if not plain.is_reduced:
            return self._plain(plain, stores)
        level = max(self._level(u) for u in updates.values())
        inside = [n for s, n in stores if s in nest.body and s.buffer.space is not Space.ARENA]
        behind = [n for s, n in stores if s in nest.after]
        memory = max((max(0, self._after(n)) for n in inside), default=NEVER)
        finish = max(level, *(self._after(n) - 1 for n in behind)) if behind else NEVER
        self._learn(site := Site(stage, nest, column, updates, level, finish, memory))
        return site

    def _plain(self, site: Site, stores: list[tuple[Store, int]]) -> Site | None:
        """A site that reduces no columns."""
        depends = frozenset[Buffer]().union(*(self.values.depends[n] for _, n in stores))
        outside = [s.buffer for s, _ in stores if s.buffer not in self.tiles]
        if site.column is not None:
            if any(b.space is Space.ARENA for b in outside):
                return None
            memory = max((self.levels[t] + 1 for t in depends), default=0) if outside else NEVER
            return replace(site, memory=memory)
        finish = max((self.levels[t] for t in depends), default=NEVER)
        if depends:
            self.levels |= {b: finish for b in outside if b.space is Space.ARENA}
            self.values.running |= {b: None for b in outside if b.space is Space.ARENA}
        return replace(site, finish=finish)

    def _touches(self, nest: Nest) -> Iterator[Instr]:
        return (i for i in nest.instructions if not isinstance(i, Let) and i.buffer in self.tiles)

    def _is_fine(self, site: Site) -> bool:
        """Accumulators are of one depth, and combined by rules of their own where they go over columns."""
        nest = site.nest
        depths = {a.depth for a in nest.accumulators}
        if site.column is None:
            return True
        if site.is_reduced:
            named = {name for c in nest.combines if not c.buffers for name in c.names}
            last = site.depth == len(nest.loops) - 1
            known = all(a.name in named and isinstance(a.init, Const) for a in nest.accumulators)
            return len(depths) == 1 and last and known
        return all(depth > site.depth for depth in depths)

    def _level(self, update: Update) -> int:
        """The first pass that can reduce this."""
        factors = self.values.factors[update.summand]
        if factors is None or update.function not in ADDS:
            return self._after(update.summand)
        bases = {self.values.base(b) for b in factors}
        others = self.values.depends[update.summand] - bases
        return max((*(self.levels[t] for t in bases), *(self.levels[t] + 1 for t in others)), default=0)

    def _after(self, number: int) -> int:
        """The first pass in which everything that a value is made of is final."""
        return max((self.levels[tile] + 1 for tile in self.values.depends[number]), default=0)

    def _learn(self, site: Site) -> None:
        """What later nests read of rows."""
        for i in site.nest.after:
            if isinstance(i, Store) and i.buffer.space is Space.ARENA:
                maximum = self._maximum(site, i)
                self.levels[i.buffer] = site.finish if maximum is None else site.level
                self.values.running[i.buffer] = maximum

    def _maximum(self, site: Site, store: Store) -> int | None:
        """What a tile of a row holds the maximum of."""
        for a in site.nest.accumulators:
            update = site.updates[a.name]
            if a.dtype is DType.F32 and update.function in MAXIMA and store.value == Ref(a.name):
                return update.summand
        return None
