"""Lower a lane until its tiles find room: with fewer rows of a step, or fewer values in tiles.

softmax, rows of 100,000        t0  exp, 400,000 bytes     refused: stage 2 computes it again
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import Buffer, Lane, Space
from jstitch.ir.graph import Op, Value
from jstitch.ir.reason import Reason
from jstitch.ir.types import TensorType
from jstitch.passes.lower.apply_template import TemplateError
from jstitch.passes.lower.block_columns import block_columns
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.describe_template import describe_lane
from jstitch.passes.lower.learn_room import Room
from jstitch.passes.lower.lower_lane import LaneLowering
from jstitch.passes.lower.place_tiles import ALIGN, Tiles, place_tiles, tile_priority
from jstitch.passes.lower.place_values import LaneView, Placement
from jstitch.passes.lower.plan_shared_memory import DoesNotFit, Priority
from jstitch.passes.lower.tile_rows import StepTile
from jstitch.passes.lower.write_products import CONVERT
from jstitch.passes.lower.written import Place, Written
from jstitch.template import OpSchedule

NO_ROOM = "kept values take {found} bytes of an arena of {bound}, and shrinking is switched off"
PANELS = 1 << 15  # bytes of shared memory for right operands, at least
ROOM = 1 << 26  # bytes of a program's tiles on a CPU, where these may leave the near cache
ATTEMPTS = 6  # of fitting a lane's tiles; then everything that can be is computed again

Placed = tuple[Tiles, Iterable[OpSchedule]]
"""A lane with its tiles in place, and its schedules."""


@dataclass(eq=False, kw_only=True)
class LaneFit:
    """stores, written: memory of outputs and spills, as lanes have it. labels: names of ops in templates.

    limit: most bytes of a program's tiles; None: as many as it takes. share: tiles that are never live at
    once may stand in the same bytes. shrink: values that find no room may be computed again. narrow: tiles
    of conversions are as narrow as their elements.
    """

    producers: Mapping[Value, Op]
    stores: Mapping[Value, Place]
    written: Mapping[Value, Sequence[Written]]
    labels: Mapping[Value, str]
    limit: int | None
    share: bool
    shrink: bool
    narrow: bool

    def steps(self, view: LaneView) -> Placed:
        """With rows of a step, and columns between products, as a template says, or as they are quickest."""
        group = view.group
        if group.block is None:
            return self._fit_tiles(view, group.tiles) if group.tiles else self.fit(view)
        found = self._fit_blocked(view, group.block, self._whole(view)) if group.block else self.fit(view)
        if found is None or isinstance(found, DoesNotFit):
            raise TemplateError("blocks that divide a row's columns, and find room", f"{group.block} columns")
        return found

    def _fit_tiles(self, view: LaneView, tiles: Sequence[StepTile]) -> Placed:
        """As the first of them that finds room; where masks leave blocks out, as the first in blocks."""
        tried = next((tile for tile in tiles if tile.block), None)
        whole: dict[int, _Whole] = {}
        room = Room(view.budget - PANELS)
        blocked = None if tried is None else self._fit_tile(view, tried, whole, room)
        if blocked is None:
            tiles = [tile for tile in tiles if not tile.block]
        elif not isinstance(blocked, DoesNotFit) and blocked[0].lane.leaves_out:
            return blocked
        for tile in tiles:
            if tile.block and tile != tried and room.is_short(tile):
                continue
            found = blocked if tile == tried else self._fit_tile(view, tile, whole, room)
            if found is not None and not isinstance(found, DoesNotFit):
                return found
        raise AssertionError("whole rows are among the tilings")

    def _fit_tile(
        self, view: LaneView, tile: StepTile, whole: dict[int, _Whole], room: Room
    ) -> Placed | DoesNotFit[int] | None:
        """whole: lanes by the rows of a step, which are the same for all blocks of columns."""
        view.group.step = tile.rows
        if not tile.block:
            return self.fit(view)
        if tile.rows not in whole:
            whole[tile.rows] = self._whole(view)
        found = self._fit_blocked(view, tile.block, whole[tile.rows])
        if found is not None:
            room.learn(tile, found.nbytes if isinstance(found, DoesNotFit) else found[0].nbytes)
        return found

    def _whole(self, view: LaneView) -> _Whole:
        arena = Arena(self._is_rounded)
        return _Whole(*self.lowered(view, arena), arena)

    def _fit_blocked(self, view: LaneView, block: int, whole: _Whole) -> Placed | DoesNotFit[int] | None:
        """The lane with its columns in blocks; None where they cannot be."""
        arena = whole.arena
        blocked = block_columns(whole.lane, arena.buffers, block)
        if blocked is None:
            return None
        kept = [Priority.MUST] * len(blocked.tiles)
        lane = replace(blocked.lane, shares=self.share)
        found = place_tiles(lane, blocked.tiles, kept, view.budget - PANELS)
        if isinstance(found, DoesNotFit):
            return found
        narrow = zip(arena.values, arena.buffers, blocked.tiles, strict=False)
        widths = {v: b.type.shape[1] for v, a, b in narrow if a.type != b.type}
        return found, describe_lane(view.group, whole.placement, view.stored, self.labels, widths)

    def lowered(self, view: LaneView, arena: Arena) -> tuple[Lane, Placement]:
        """The lane with tiles that have no places yet, and what is kept in it."""
        return self.written_into(self.written, view, arena)

    def written_into(
        self, written: Mapping[Value, Sequence[Written]], view: LaneView, arena: Arena
    ) -> tuple[Lane, Placement]:
        lowering = LaneLowering(
            view=view, stores=self.stores, names=names(), written=written, keep=arena.keep
        )
        return lowering.run(), lowering.placement

    def fit(self, view: LaneView) -> Placed:
        """The lane with its tiles in place; values that find no room are refused, and it is lowered anew."""
        for attempt in itertools.count(1):
            arena = Arena(self._is_rounded)
            lane, placed = self.lowered(view, arena)
            made = [self._priority(v) for v in arena.values]
            free = [n for n, p in enumerate(made) if p is not Priority.MUST]
            lane = replace(lane, shares=self.share)
            found = place_tiles(lane, arena.buffers, made, view.budget)
            if isinstance(found, DoesNotFit):
                if self.limit is not None:
                    raise CannotLowerError(_too_large(found))
                if free and not self.shrink:
                    raise _no_room(arena.buffers, view)
                found = place_tiles(lane, arena.buffers, made, _enough(found.nbytes, arena.buffers, view))
                assert isinstance(found, Tiles)
            if not found.dropped:
                return found, describe_lane(view.group, placed, view.stored, self.labels)
            if not self.shrink:
                raise _no_room(arena.buffers, view)
            gone = found.dropped if attempt < ATTEMPTS else free
            view = replace(view, refused=view.refused | {arena.values[n] for n in gone})
        raise AssertionError("every attempt refuses a value or is the last one")

    def _priority(self, v: Value) -> Priority:
        return tile_priority(self.producers[v]) if v in self.producers else Priority.MUST

    def _is_rounded(self, v: Value) -> bool:
        return self.narrow and v in self.producers and self.producers[v].name == CONVERT


@dataclass(eq=False)
class Arena:
    """Tiles of one lane, and the values in them; `place_tiles` gives them their offsets.

    Programs of different lanes never run on one arena at once, so all lanes start at 0. is_rounded: whether
    a value's elements are of its own type, where kernels compute with a wider one.
    """

    is_rounded: Callable[[Value], bool]
    buffers: list[Buffer] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def keep(self, v: Value, rows: int, step: int) -> Place:
        """A tile for `step` rows of `v`, as narrow as its elements where nothing is lost by it."""
        slab = v.tensor.size // rows
        t = TensorType((step, slab), v.tensor.dtype if self.is_rounded(v) else v.tensor.dtype.compute)
        buffer = Buffer(f"t{len(self.buffers)}", t, Space.ARENA, len(self.buffers))
        self.buffers.append(buffer)
        self.values.append(v)
        return Place(buffer, slab)


def _enough(least: int, tiles: Iterable[Buffer], view: LaneView) -> int:
    """Bytes for tiles of which those that are kept leave a CPU's near cache: so may the rest, made once."""
    if view.group.profile.machine.device is not None:
        return least
    return max(least, min(ROOM, sum(-(-b.type.nbytes // ALIGN) * ALIGN for b in tiles)))


def _no_room(tiles: Iterable[Buffer], view: LaneView) -> CannotLowerError:
    kept = sum(b.type.nbytes for b in tiles)
    return CannotLowerError(Reason("shrinking", NO_ROOM, kept, view.budget))


def names(kind: str = "v") -> Callable[[], str]:
    """Of a lane's values, one after the other."""
    counter = itertools.count()
    return lambda: f"{kind}{next(counter)}"


def _too_large(found: DoesNotFit[int]) -> Reason:
    tiles = ", ".join(f"t{n}: {nbytes}" for n, nbytes in found.remaining.items())
    needs = f"needs {{found}} bytes per program for results of reductions ({tiles}; at multiples of {ALIGN})"
    return Reason("arena", f"{needs}, arena_bytes is {{bound}}", found.nbytes, found.budget)


@dataclass(frozen=True)
class _Whole:
    """A lane with whole rows, the tiles that it has, and what is in them."""

    lane: Lane
    placement: Placement
    arena: Arena
