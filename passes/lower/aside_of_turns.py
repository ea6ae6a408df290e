"""The parts of a row's turns that are done for all turns at once, and the tiles between them and the rest.

early s, late ys   ->   for t: tile0[t] = s    ... x = tile0[t] ... tile1[t] = c    for t: ys[t] = f(tile1[t])
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.kernel_ir import Buffer, Loop, Nest, Stage
from jstitch.ir.expr import Ref
from jstitch.ir.graph import Value
from jstitch.ir.index import Condition, Index, Var, add, const, substitute, var
from jstitch.ir.types import TensorType
from jstitch.passes.graph.find_recurrence import TURN
from jstitch.passes.lower.build_turn import TurnBuilder
from jstitch.passes.lower.divide_loops import without_edges
from jstitch.passes.lower.divide_turns import Divided
from jstitch.passes.lower.turn_lane import TurnLane, nothing

Element = tuple[Value, tuple[Index, ...]]


def _seams(c: Condition) -> Iterator[int]:
    """Turns at which a condition on their number changes."""
    match c.of:
        case Index(base, ((Var(name, extent), 1 | -1 as k),)) if name == TURN and c.step == 1:
            edges = (c.lo - base, c.hi - base) if k == 1 else (base - c.lo + 1, base - c.hi + 1)
            yield from (edge for edge in edges if 0 < edge < extent)


@dataclass(eq=False)
class Aside:
    """Around the turns that `turn` builds, row by row: `begin`, the row's turns, `leave` what is late, `end`.

    before, after: a nest for each row, with its own vectors of turns. rows: loops around that over turns.
    """

    lane: TurnLane
    divided: Divided
    turn: TurnBuilder
    rows: Sequence[Loop]
    before: list[Nest] = field(default_factory=list)
    after: list[Nest] = field(default_factory=list)
    tiles: dict[Element, Buffer] = field(default_factory=dict)

    def begin(self) -> None:
        """Of a row: from now on, the turn reads what is made before it."""
        self._early = self.lane.builder([*self.rows, self.lane.turn], nothing)
        self._stored: list[tuple[Buffer, Element]] = []
        self.turn.keep = self._read_early

    def leave(self, row: Index) -> None:
        """What is late of a row, whose turns are built but for what goes on to the next ones."""
        lane = self.lane
        late = lane.builder([*self.rows, lane.turn], lambda c, index: self._leave(late, c.before, index))
        late.keep = lambda v, index: self._read_late(late, v, index)
        if self.divided.late:
            for v, offset, values in lane.stacks(late, row, set(lane.stacked) - self.divided.late):
                late.store(lane.pattern.results[v], offset, *values)
        if late.body:
            self.after.append(Nest((*self.rows, lane.turn), (), tuple(late.body), ()))

    def end(self) -> None:
        """Of a row: nothing more is asked of it."""
        self.before += self._cut(self._early)

    def stages(self, nests: Sequence[Nest], note: str) -> list[Stage]:
        """One, if there is anything to do."""
        return [Stage(tuple(nests), note, lines=self.lane.pattern.lines)] if nests else []

    def _read_early(self, v: Value, index: tuple[Index, ...]) -> Ref | None:
        return self.turn.read(self._made(v, index), self._place) if v in self.divided.early else None

    def _read_late(self, late: TurnBuilder, v: Value, index: tuple[Index, ...]) -> Ref | None:
        if v in self.divided.early:
            return late.read(self._made(v, index), self._place)
        return self._leave(late, v, index) if v in self.divided.core and v not in late.carries else None

    def _made(self, v: Value, index: tuple[Index, ...]) -> Buffer:
        """The tile of an early value."""
        if (v, index) not in self.tiles:
            self.tiles[v, index] = self._tile(v)
            self._early.store(self.tiles[v, index], self._place, self._early.value(v, index))
            self._stored.append((self.tiles[v, index], (v, index)))
        return self.tiles[v, index]

    def _cut(self, whole: TurnBuilder) -> list[Nest]:
        """What is stored before the turns: a loop for each side of a seam, in which no element is asked."""
        if not whole.body:
            return []
        points = without_edges(sorted({0, self.lane.loop.turns}.union(*map(_seams, whole.conditions))))
        if len(points) <= 2:
            return [Nest((*self.rows, self.lane.turn), (), tuple(whole.body), ())]
        return [self._piece(low, high) for low, high in itertools.pairwise(points)]

    def _piece(self, low: int, high: int) -> Nest:
        """The same for turns [low, high)."""
        turn = Loop(Var(TURN, high - low), 0, high - low)
        loops = [*self.rows, turn] if high - low > 1 else [*self.rows]
        here = add(var(turn.var), const(low))

        def moved(e: Index) -> Index:
            return substitute(e, lambda a: here if isinstance(a, Var) and a.name == TURN else None)

        builder = self.lane.builder(loops, nothing)
        builder.numbers = {v: moved(e) for v, e in self.lane.loop.numbers.items()}
        for tile, (v, index) in self._stored:
            builder.store(tile, here, builder.value(v, tuple(map(moved, index))))
        return Nest(tuple(loops), (), tuple(builder.body), ())

    def _leave(self, late: TurnBuilder, v: Value, index: tuple[Index, ...]) -> Ref:
        """What a turn has of the value, read behind all turns."""
        if (v, index) not in self.tiles:
            value = self.turn.value(v, index)
            self.tiles[v, index] = self._tile(v)
            self.turn.store(self.tiles[v, index], self._place, value)
        return late.read(self.tiles[v, index], self._place)

    def _tile(self, v: Value) -> Buffer:
        kind = TensorType((self.lane.loop.turns,), v.tensor.dtype.compute)
        return self.lane.pattern.new_tile(kind)

    @property
    def _place(self) -> Index:
        return var(self.lane.turn.var)
