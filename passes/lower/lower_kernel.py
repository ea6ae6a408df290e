"""Pattern -> Kernel: phases from levels, lanes from groups, stages from depths, nests from domains.

x, sum over dim 1, divide, broadcast, subtract  ->
    phase 0, lane: 2048 rows x 768, step 1
      stage 0: for r: acc = 0; for i0: acc += x[r * 768 + i0]; t0[0] = acc
      stage 1: for r: m = t0[0] / 768; for i0: out[r * 768 + i0] = x[r * 768 + i0] - m
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Phase, Space
from jstitch.ir.graph import Op, Value
from jstitch.ir.reason import Reason
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import Update
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.apply_template import TemplateError
from jstitch.passes.lower.block_columns import block_columns
from jstitch.passes.lower.build_nest import CannotLowerError, InPlace, InStrips, Place
from jstitch.passes.lower.describe_template import describe_lane, template_of
from jstitch.passes.lower.form_groups import Grouping
from jstitch.passes.lower.form_pattern import FormedPattern, form_pattern
from jstitch.passes.lower.group import Group
from jstitch.passes.lower.learn_room import Room
from jstitch.passes.lower.loop_pattern import loop_of
from jstitch.passes.lower.lower_lane import LaneLowering
from jstitch.passes.lower.lower_recurrence import lower_recurrence
from jstitch.passes.lower.order_scratch import order_scratch
from jstitch.passes.lower.place_tiles import ALIGN, Tiles, place_tiles, tile_priority
from jstitch.passes.lower.place_values import LaneView, Placement
from jstitch.passes.lower.plan_shared_memory import DoesNotFit, Priority
from jstitch.passes.lower.tile_rows import StepTile
from jstitch.passes.lower.write_products import CONVERT
from jstitch.template import OpSchedule, Template

NO_ROOM = "kept values take {found} bytes of an arena of {bound}, and shrinking is switched off"
PANELS = 1 << 15  # bytes of shared memory for right operands, at least
ATTEMPTS = 6  # of fitting a lane's tiles; then everything that can be is computed again


def lower_kernel(
    name: str,
    ops: Sequence[Op],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    profile: Profile,
    arena_bytes: int | None = None,
    *,
    share: bool = True,
    updates: Sequence[Update] = (),
    template: Template | None = None,
    shrink: bool = True,
) -> Kernel:
    """The kernel that computes `outputs` from `inputs` by `ops` (in program order).

    profile: of the target. arena_bytes: most bytes that one program may keep in cache, None = the profile's
    where there is a choice.
    share: tiles that are never live at once may stand in the same bytes. updates: whose results are among
    the outputs, and whose operands and starts, if not made here, among the inputs. template: schedules.
    shrink: values that find no room in the arena may be computed again instead.
    Raises CannotLowerError, with the reason, when a kernel cannot express the pattern, and TemplateError.
    """
    if loop_of(ops) is not None:
        if updates:
            raise CannotLowerError("the kernel of a loop writes no part of a larger tensor")
        return lower_recurrence(name, ops, inputs, outputs, profile)
    formed = form_pattern(ops, outputs, profile, updates, template)
    return _KernelLowering(name, formed, inputs, outputs, profile, arena_bytes, share, shrink, updates).run()


Placed = tuple[Tiles, Iterable[OpSchedule]]
"""A lane with its tiles in place, and its schedules."""


@dataclass(eq=False)
class _KernelLowering:
    name: str
    formed: FormedPattern
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    profile: Profile
    limit: int | None
    share: bool
    shrink: bool
    updates: Sequence[Update]
    schedules: list[OpSchedule] = field(default_factory=list)
    written: dict[Value, list[InPlace | InStrips]] = field(default_factory=dict)
    producers: dict[Value, Op] = field(default_factory=dict)
    order: dict[Op, int] = field(default_factory=dict)
    places: dict[Value, Place] = field(default_factory=dict)
    arena: list[Buffer] = field(default_factory=list)
    arena_bytes: int = 0

    @property
    def grouping(self) -> Grouping:
        return self.formed.grouping

    def run(self) -> Kernel:
        self.producers = {v: op for op in self.grouping.ops for v in op.results}
        self.order = {op: n for n, op in enumerate(self.grouping.ops)}
        args = tuple(Buffer(f"a{n}", v.tensor, Space.ARG, n) for n, v in enumerate(self.inputs))
        results = tuple(Buffer(f"o{n}", v.tensor, Space.RESULT, n) for n, v in enumerate(self.outputs))
        scratch, scratch_bytes = self._scratch()
        self.places |= {v: Place(b) for v, b in zip(self.inputs, args, strict=True)}
        by_result = {u.op.result: u for u in self.updates}
        aliases: dict[int, int] = {}
        for n, (v, b) in enumerate(zip(self.outputs, results, strict=True)):
            if v in by_result:
                aliases[n] = list(self.inputs).index(by_result[v].op.operands[0])
                self.written.setdefault(by_result[v].value, []).append(_in_place(by_result[v], b))
            elif v in self.formed.turned:
                for part in self.formed.turned[v]:
                    place = InStrips(b, part.strides, part.first)
                    self.written.setdefault(part.value, []).append(place)
            else:
                self.places[v] = Place(b)
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
            aliases,
            frozenset(aliases),
            template_of(self.schedules),
        )

    def _scratch(self) -> tuple[tuple[Buffer, ...], int]:
        buffers: list[Buffer] = []
        offset = 0
        for v in order_scratch(self.grouping, self.outputs):
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
        ready = {v: p for v, p in self.places.items() if self._is_ready(v, level)}
        lanes = [self._lane(group, ops, ready) for group, ops in groups.items()]
        return [lane for lane in lanes if lane.stages]

    def _lane(self, group: Group, ops: list[Op], ready: Mapping[Value, Place]) -> Lane:
        kept = (self.grouping.spilled, self.places, self.written)
        stored = {v for op in ops for v in op.results if any(v in memory for memory in kept)}
        budget = group.arena_bytes if self.limit is None else self.limit
        view = LaneView(
            group, ops, self.producers, self.order, ready, stored, budget, shared=self.formed.shared
        )
        tiles, schedules = self._fit_steps(view)
        if view.shared is None and (found := self._reading_less(view, tiles.lane)) is not None:
            tiles, schedules = found
        self.schedules += schedules
        self.arena += tiles.buffers
        self.arena_bytes = max(self.arena_bytes, tiles.nbytes)
        return tiles.lane

    def _reading_less(self, view: LaneView, lane: Lane) -> Placed | None:
        """The lane without tiles of what can be computed again, where the rows it reads need their room."""
        reread = None if view.group.products else self.profile.reread_bytes
        before = 0 if reread is None or not self.shrink else reread(lane)
        if reread is None or not before:
            return None
        made = (v for op in view.ops for v in op.results)
        free = {v for v in made if tile_priority(self.producers[v]) is not Priority.MUST}
        tiles, schedules = self._fit(replace(view, refused=view.refused | free))
        return (tiles, schedules) if reread(tiles.lane) < before else None

    def _fit_steps(self, view: LaneView) -> Placed:
        """With rows of a step, and columns between products, as a template says, or as they are quickest."""
        group = view.group
        if group.block is None:
            return self._fit_tiles(view, group.tiles) if group.tiles else self._fit(view)
        found = self._fit_blocked(view, group.block, self._whole(view)) if group.block else self._fit(view)
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
            return self._fit(view)
        if tile.rows not in whole:
            whole[tile.rows] = self._whole(view)
        found = self._fit_blocked(view, tile.block, whole[tile.rows])
        if found is not None:
            room.learn(tile, found.nbytes if isinstance(found, DoesNotFit) else found[0].nbytes)
        return found

    def _whole(self, view: LaneView) -> _Whole:
        arena = _Arena(self._is_rounded)
        lowering = self._lowering(view, arena)
        return _Whole(lowering.run(), arena, lowering.placement)

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
        return found, describe_lane(view.group, whole.placement, view.stored, self.formed.labels, widths)

    def _lowering(self, view: LaneView, arena: _Arena) -> LaneLowering:
        return LaneLowering(
            view=view, stores=self.places, names=_names(), written=self.written, keep=arena.keep
        )

    def _fit(self, view: LaneView) -> Placed:
        """The lane with its tiles in place; values that find no room are refused, and it is lowered anew."""
        for attempt in itertools.count(1):
            arena = _Arena(self._is_rounded)
            lowering = self._lowering(view, arena)
            lane = lowering.run()
            made = [tile_priority(self.producers[v]) for v in arena.values]
            free = [n for n, p in enumerate(made) if p is not Priority.MUST]
            lane = replace(lane, shares=self.share)
            found = place_tiles(lane, arena.buffers, made, view.budget)
            if isinstance(found, Tiles) and not found.dropped:
                placed = lowering.placement
                return found, describe_lane(view.group, placed, view.stored, self.formed.labels)
            if not free:
                assert isinstance(found, DoesNotFit)
                if self.limit is not None:
                    raise CannotLowerError(_too_large(found))
                view = replace(view, budget=found.nbytes)
            elif not self.shrink:
                kept = sum(b.type.nbytes for b in arena.buffers)
                raise CannotLowerError(Reason("shrinking", NO_ROOM, kept, view.budget))
            gone = found.dropped if isinstance(found, Tiles) and attempt < ATTEMPTS else free
            view = replace(view, refused=view.refused | {arena.values[n] for n in gone})
        raise AssertionError("every attempt refuses a value or is the last one")

    def _is_rounded(self, v: Value) -> bool:
        return self.profile.narrow_tiles and self.producers[v].name == CONVERT

    def _is_ready(self, v: Value, level: int) -> bool:
        op = self.producers.get(v)
        if op is None:
            return True
        return v in self.grouping.spilled and self.grouping.level_of[op] < level


@dataclass(eq=False)
class _Arena:
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


def _in_place(update: Update, buffer: Buffer) -> InPlace:
    """Offsets of the update's block: each start, clamped as StableHLO says, times its stride."""
    whole, part = update.op.operands[0].shape, update.op.operands[1].shape
    moving = [d for d, (n, m) in enumerate(zip(whole, part, strict=True)) if n > m]
    limits = ((whole[d] - part[d], math.prod(whole[d + 1 :])) for d in moving)
    moves = ((start, *limit) for start, limit in zip(update.starts, limits, strict=True))
    return InPlace(buffer, tuple(moves))


def _names() -> Callable[[], str]:
    counter = itertools.count()
    return lambda: f"v{next(counter)}"


def _too_large(found: DoesNotFit[int]) -> Reason:
    tiles = ", ".join(f"t{n}: {nbytes}" for n, nbytes in found.remaining.items())
    needs = f"needs {{found}} bytes per program for results of reductions ({tiles}; at multiples of {ALIGN})"
    return Reason("arena", f"{needs}, arena_bytes is {{bound}}", found.nbytes, found.budget)


@dataclass(frozen=True)
class _Whole:
    """A lane with whole rows, the tiles that it has, and what is in them."""

    lane: Lane
    arena: _Arena
    placement: Placement
