"""Numbers of few columns lie in a tile as often as vectors read them.

y [6272, 64, 3] = x * s [3]

    for i1 in 0..64:                                 for i1 in 0..64:              once for all rows
        for i2 in 0..3:                                  for i2 in 0..3:
            y[r * 192 + i1 * 3 + i2] =       ->              e0[i1 * 3 + i2] = s[i2]
                x[r * 192 + i1 * 3 + i2] * s[i2]         for i2 in 0..192:         for every row
                                                             y[r * 192 + i2] = x[r * 192 + i2] * e0[i2]

A vector has elements of one loop, the innermost: three of them fill none. Two loops are one where every index
has both or neither (`merge_loops`), as those of the tile have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from jstitch.codegen.kernel_ir import (
    Buffer,
    Called,
    Instr,
    Kernel,
    Lane,
    Load,
    Loop,
    Nest,
    Phase,
    Space,
    Stage,
    Store,
    StripLane,
)
from jstitch.codegen.merge_loops import merge_loops, telling_apart
from jstitch.codegen.move_indices import Part, changed
from jstitch.ir.expr import Ref
from jstitch.ir.index import Atom, Index, Var, add, atoms, mul, substitute, var
from jstitch.passes.schedule.arena_room import ArenaRoom

VECTOR = 16  # elements that are one
WIDE = 128  # columns, of which a last shorter vector is few
MOST = 1 << 11  # elements of a tile
USES = 4  # of a tile by a program that are worth filling it
BEHIND = "n"  # ends the name of the second loop of two that were one


def repeat_columns(kernel: Kernel) -> Kernel:
    """The kernel with such tiles, and room for them behind its arena."""
    room = ArenaRoom(kernel)
    kept = frozenset(kernel.args).difference(kernel.args[n] for n in kernel.aliases.values())
    phases = tuple(_phase(phase, kept, room) for phase in kernel.phases)
    return room.given(replace(kernel, phases=phases)) if room.tiles else kernel


def _phase(phase: Phase, kept: frozenset[Buffer], room: ArenaRoom) -> Phase:
    """kept: arguments that nobody writes."""
    nests = (nest for lane in phase.lanes for stage in lane.stages for nest in stage.nests)
    instructions = [i for nest in nests for i in nest.instructions]
    written = {i.buffer for i in instructions if isinstance(i, Store)}
    scratch = {i.buffer for i in instructions if isinstance(i, Load) and i.buffer.space is Space.SCRATCH}
    fixed = kept | frozenset(scratch - written)
    return replace(phase, lanes=tuple(_Repeating(lane, fixed, room).lane() for lane in phase.lanes))


@dataclass(frozen=True)
class _Columns:
    """The innermost loop, of few columns, and the one around it are apart for `loads` alone.

    turns: of the outer loop, for which a tile has the columns. size: of a tile.
    """

    loads: tuple[Load, ...]
    turns: int
    size: int


class _Repeating:
    """fixed: buffers of which everything is there before the lane begins."""

    def __init__(self, lane: Lane, fixed: frozenset[Buffer], room: ArenaRoom) -> None:
        self.old, self.fixed, self.room = lane, fixed, room
        self.steps = lane.rows // lane.step // lane.programs
        self.fills: list[Nest] = []
        self.tiles: dict[tuple[Buffer, Index, int], Buffer] = {}

    def lane(self) -> Lane:
        lane = self.old
        if lane.flat or isinstance(lane, StripLane):
            return lane
        stages = tuple(s if s.once else self._stage(s) for s in lane.stages)
        if not self.fills:
            return lane
        fill = Stage(tuple(self.fills), "repeat what few columns have", once=True)
        return replace(lane, stages=(fill, *stages), common=(*lane.common, *self.tiles.values()))

    def _stage(self, stage: Stage) -> Stage:
        return replace(stage, nests=tuple(map(self._nest, stage.nests)))

    def _nest(self, nest: Nest) -> Nest:
        found = None if isinstance(nest, Called) else self._find(nest)
        if found is None:
            return nest
        names = {i.name for i in found.loads}
        nest = _in_two(nest, len(nest.loops) - 2, found.turns)
        body = (self._from_tile(i, nest, found) if _name(i) in names else i for i in nest.body)
        return merge_loops(replace(nest, body=tuple(body)))

    def _find(self, nest: Nest) -> _Columns | None:
        """Where the innermost loop is short, and its columns are repeated in a tile often enough."""
        place = len(nest.loops) - 2
        apart = telling_apart(nest, place) if place >= 0 else None
        if not apart:
            return None
        outer, inner = nest.loops[place:]
        loads = tuple(i for i in apart if isinstance(i, Load) and self._repeats(i, inner))
        turns = max(n for n in range(1, max(2, MOST // inner.hi + 1)) if outer.hi % n == 0)
        columns, size = inner.hi, turns * inner.hi
        fills_none = columns < WIDE and columns % VECTOR > 0 and size >= VECTOR
        uses = self.steps * prod(loop.hi for loop in nest.loops[:-1]) // turns
        if len(loads) < len(apart) or turns == 1 or not fills_none or uses < USES:
            return None
        return _Columns(loads, turns, size)

    def _repeats(self, i: Load, inner: Loop) -> bool:
        """Whether it depends on the inner loop alone."""
        return i.buffer in self.fixed and atoms([i.offset]) == {inner.var}

    def _from_tile(self, i: Instr, nest: Nest, found: _Columns) -> Load:
        """The same load, from a tile that has as many columns as the two innermost loops have turns."""
        assert isinstance(i, Load)
        outer, inner = nest.loops[-2:]
        place = add(mul(var(outer.var), inner.hi), var(inner.var))
        column = Var("j", inner.hi)
        here: dict[Atom, Index] = {inner.var: var(column)}
        offset = substitute(i.offset, here.get)
        key = i.buffer, offset, found.size
        if key not in self.tiles:
            tile = self.tiles[key] = self.room.tile("e", found.size, i.buffer.type.dtype)
            again = Var("i", found.turns)
            loops = tuple(Loop(v, 0, v.extent) for v in (again, column))
            there = add(mul(var(again), inner.hi), var(column))
            body = Load("v0", i.buffer, offset, 2), Store(tile, there, Ref("v0"), 2)
            self.fills.append(Nest(loops, (), body, ()))
        return replace(i, buffer=self.tiles[key], offset=place)


def _name(i: Instr) -> str:
    return "" if isinstance(i, Store) else i.name


def _in_two(nest: Nest, place: int, turns: int) -> Nest:
    """The nest with the loop as two, the inner one of so many turns."""
    loop = nest.loops[place]
    if turns == loop.hi:
        return nest
    first, second = Var(loop.var.name, loop.hi // turns), Var(loop.var.name + BEHIND, turns)
    here: dict[Atom, Index] = {loop.var: add(mul(var(first), turns), var(second))}

    def moved(part: Part) -> Part:
        return changed(part, lambda e: substitute(e, here.get), part.depth + (part.depth > place))

    loops = (Loop(v, 0, v.extent) for v in (first, second))
    return replace(
        nest,
        loops=(*nest.loops[:place], *loops, *nest.loops[place + 1 :]),
        accumulators=tuple(map(moved, nest.accumulators)),
        body=tuple(map(moved, nest.body)),
        after=tuple(map(moved, nest.after)),
    )
