"""Whole rounds of CTAs: as many programs for each multiprocessor as it holds at once, or half of them.

    reduce_0.partial[GRID, CTA]     132 multiprocessors     ->     GRID_132, GRID_264, GRID_396, GRID_528

The lowering bounds the programs that add up columns before anybody knows how many of them a multiprocessor
holds: of 198, one at a time, half would wait for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.apply_template import PART
from jstitch.template import Attr, OpSchedule, Scope, Template, Tile

EACH = 2, 1, 3, 4  # programs of a multiprocessor: two fill rounds of one, too
GAIN = 0.03  # that others are to be faster by: registers, and so how many fit, are an estimate


def fill_rounds(template: Template, profile: Profile) -> Iterator[Template]:
    """The template with so many programs where rows are shared by as many as the lowering liked.

    Nothing where no columns are added up, nor on CPUs: there, programs are work for whoever is free.
    """
    device = profile.machine.device
    adds_up = any(s.op.endswith(PART) for s in template.schedules)
    if device is None or not adds_up:
        return
    for each in EACH:
        yield Template(tuple(_with(s, each * device.sms) for s in template.schedules))


def _with(schedule: OpSchedule, programs: int) -> OpSchedule:
    if not schedule.attrs:
        return schedule
    first: Attr = tuple(Tile(Scope.GRID, programs) if t == Tile(Scope.GRID) else t for t in schedule.attrs[0])
    return replace(schedule, attrs=(first, *schedule.attrs[1:]))
