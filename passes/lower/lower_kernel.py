"""Pattern -> Kernel: phases from levels, lanes from groups, stages from depths, nests from domains.

x, sum over dim 1, divide, broadcast, subtract  ->
    phase 0, lane: 2048 rows x 768, step 1
      stage 0: for r: acc = 0; for i0: acc += x[r * 768 + i0]; t0[0] = acc
      stage 1: for r: m = t0[0] / 768; for i0: out[r * 768 + i0] = x[r * 768 + i0] - m
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Phase, Space
from jstitch.codegen.kernel_queries import held
from jstitch.ir.graph import Op, Value
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import Update
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.cut_rows import RowsPart, are_short, cut_rows, rest_apart
from jstitch.passes.lower.describe_template import template_of
from jstitch.passes.lower.fit_lane import LaneFit, Placed
from jstitch.passes.lower.form_groups import Grouping
from jstitch.passes.lower.form_pattern import FormedPattern, form_pattern
from jstitch.passes.lower.group import Group
from jstitch.passes.lower.loop_pattern import loop_of
from jstitch.passes.lower.lower_recurrence import lower_recurrence
from jstitch.passes.lower.lower_sort import lower_sort, sort_of
from jstitch.passes.lower.order_scratch import order_scratch
from jstitch.passes.lower.place_tiles import ALIGN, Tiles, tile_priority
from jstitch.passes.lower.place_values import LaneView
from jstitch.passes.lower.plan_shared_memory import Priority
from jstitch.passes.lower.written import InPlace, InStrips, Place, Written
from jstitch.template import OpSchedule, Template


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
    if sort_of(ops) is not None:
        return lower_sort(name, ops, inputs, outputs, profile)
    if loop_of(ops) is not None:
        if updates:
            raise CannotLowerError("the kernel of a loop writes no part of a larger tensor")
        return lower_recurrence(name, ops, inputs, outputs, profile, arena_bytes)
    bounded = profile if arena_bytes is None else replace(profile, arena_bytes=arena_bytes)
    own = name, inputs, outputs, profile, arena_bytes, share, shrink, updates
    formed = form_pattern(ops, outputs, bounded, updates, template)
    try:
        return _KernelLowering(formed, *own).run()
    except CannotLowerError:
        again = form_pattern(ops, outputs, bounded, updates, template, longer=False)
        if again.grouping.levels == formed.grouping.levels:
            raise
        return _KernelLowering(again, *own).run()


@dataclass(eq=False)
class _KernelLowering:
    formed: FormedPattern
    name: str
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    profile: Profile
    limit: int | None
    share: bool
    shrink: bool
    updates: Sequence[Update]
    schedules: list[OpSchedule] = field(default_factory=list)
    written: dict[Value, list[Written]] = field(default_factory=dict)
    producers: dict[Value, Op] = field(default_factory=dict)
    order: dict[Op, int] = field(default_factory=dict)
    places: dict[Value, Place] = field(default_factory=dict)
    arena: list[Buffer] = field(default_factory=list)
    arena_bytes: int = 0

    @property
    def grouping(self) -> Grouping:
        return self.formed.grouping

    @property
    def fit(self) -> LaneFit:
        return LaneFit(
            producers=self.producers,
            stores=self.places,
            written=self.written,
            labels=self.formed.labels,
            limit=self.limit,
            share=self.share,
            shrink=self.shrink,
            narrow=self.profile.narrow_tiles,
        )

    def run(self) -> Kernel:
        self.producers = {v: op for op in self.grouping.ops for v in op.results}
        self.order = {op: n for n, op in enumerate(self.grouping.ops)}
        args = tuple(held(f"a{n}", v.tensor, Space.ARG, n) for n, v in enumerate(self.inputs))
        results = tuple(held(f"o{n}", v.tensor, Space.RESULT, n) for n, v in enumerate(self.outputs))
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
        lanes = [lane for group, ops in groups.items() for lane in self._group_lanes(group, ops, ready)]
        return [lane for lane in lanes if lane.stages]

    def _group_lanes(self, group: Group, ops: list[Op], ready: Mapping[Value, Place]) -> list[Lane]:
        kept = (self.grouping.spilled, self.places, self.written)
        stored = {v for op in ops for v in op.results if any(v in memory for memory in kept)}
        budget = group.arena_bytes if self.limit is None else self.limit
        apart = rest_apart(group.rows, group.step, group.programs)
        view = LaneView(
            group,
            ops,
            self.producers,
            self.order,
            ready,
            stored,
            budget,
            shared=self.formed.shared,
            part=apart[0] if apart else None,
        )
        tiles, schedules = self.fit.steps(view)
        if view.shared is None and (found := self._reading_less(view, tiles.lane)) is not None:
            tiles, schedules = found
        self.schedules += schedules
        if apart:
            # the rows that fill no step, one at a time
            return self._placed([tiles, self._part(view, replace(group, step=1), apart[1])])
        return self._placed(self._cut(view, tiles) if self.profile.seams and not group.products else [tiles])

    def _cut(self, view: LaneView, tiles: Tiles) -> list[Tiles]:
        """The lane in parts, where that is better."""
        for parts in cut_rows(tiles.lane):
            found = [self._part(view, view.group, part) for part in parts]
            if are_short([each.lane for each in found], tiles.lane):
                return found
        return [tiles]

    def _part(self, view: LaneView, group: Group, part: RowsPart) -> Tiles:
        tiles, _ = self.fit.fit(replace(view, group=group, part=part))
        return tiles

    def _placed(self, found: Sequence[Tiles]) -> list[Lane]:
        """The lanes, with room in the arena."""
        for tiles in found:
            self.arena += tiles.buffers
            self.arena_bytes = max(self.arena_bytes, tiles.nbytes)
        return [tiles.lane for tiles in found]

    def _reading_less(self, view: LaneView, lane: Lane) -> Placed | None:
        """The lane without tiles of what can be computed again, where the rows it reads need their room."""
        reread = None if view.group.products else self.profile.reread_bytes
        before = 0 if reread is None or not self.shrink else reread(lane)
        if reread is None or not before:
            return None
        made = (v for op in view.ops for v in op.results)
        free = {v for v in made if tile_priority(self.producers[v]) is not Priority.MUST}
        tiles, schedules = self.fit.fit(replace(view, refused=view.refused | free))
        return (tiles, schedules) if reread(tiles.lane) < before else None

    def _is_ready(self, v: Value, level: int) -> bool:
        op = self.producers.get(v)
        if op is None:
            return True
        return v in self.grouping.spilled and self.grouping.level_of[op] < level


def _in_place(update: Update, buffer: Buffer) -> InPlace:
    """Offsets of the update's block: each start, clamped as StableHLO says, times its stride."""
    whole, part = update.op.operands[0].shape, update.op.operands[1].shape
    moving = [d for d, (n, m) in enumerate(zip(whole, part, strict=True)) if n > m]
    limits = ((whole[d] - part[d], math.prod(whole[d + 1 :])) for d in moving)
    moves = ((start, *limit) for start, limit in zip(update.starts, limits, strict=True))
    return InPlace(buffer, tuple(moves))
