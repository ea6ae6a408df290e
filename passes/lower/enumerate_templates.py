"""Groupings, schedules and launch dimensions worth trying for a pattern (FS-2021 section 4.2).

    reduce_0[GRID_64, CTA]S; exponential_0[GRID_64, CTA]S; divide_0[GRID_64, CTA];      the first choice

    ->  exponential_0 not S: computed again; GRID_32, GRID_128; WARP, CTA_64, CTA_128, ...; all combinations

Reductions are always sub-roots, dear elementwise ops are tried as sub-roots and not, others stay as they are.
Other ops follow the schedules of these. A team of more threads than a row has elements is left out, and so
are single threads for rows that are long.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jstitch.ir.graph import Op
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.apply_template import WARP, RowChoice, row_choice
from jstitch.passes.lower.describe_template import row_attrs
from jstitch.passes.lower.form_pattern import FormedPattern
from jstitch.passes.lower.recompute_cost import PARTIAL
from jstitch.template import Attr, OpSchedule, Scope, Template, Tile

MOST_TOGGLED = 3  # ops whose every combination of S and not is tried; with more of them, one at a time
SHORT = 16  # elements up to which one thread may have a row
SCALES = (1.0, 0.5, 2.0)  # of the number of programs


def enumerate_templates(formed: FormedPattern, first: Template, profile: Profile) -> Iterator[Template]:
    """Templates to try, `first` and what differs least from it before all others; none twice.

    first: the template of the kernel that lowering without one gives.
    """
    seen: dict[Template, None] = {}
    most, threads = _most_programs(formed), profile.most_threads
    teams, groupings = list(_teams(formed, threads)), list(_groupings(formed, first))
    places = itertools.product(range(len(SCALES)), range(len(teams)), range(len(groupings)))
    for scale, team, grouping in sorted(places, key=sum):
        schedules = groupings[grouping].schedules
        said = {s: row_choice(s, threads) for s in schedules}
        changed = (_with(s, r, SCALES[scale], teams[team], most[s.op]) for s, r in said.items())
        template = Template(tuple(changed))
        if template not in seen:
            seen[template] = None
            yield template


def _most_programs(formed: FormedPattern) -> dict[str, int]:
    """Steps of the rows that each op is in."""
    grouping = formed.grouping
    groups = {
        formed.labels[op.results[0]]: g
        for op, g in grouping.group_of.items()
        if op.results[0] in formed.labels
    }
    return {label: group.rows // group.step for label, group in groups.items()}


def _teams(formed: FormedPattern, most: int) -> Iterator[int]:
    """Threads for a row, at most so many; 0: the emitter's choice."""
    yield 0
    slabs = [g.largest // g.rows for g in set(formed.grouping.group_of.values()) if not g.flat and g.rows > 1]
    if most == 1 or not slabs:
        return
    if max(slabs) <= SHORT:
        yield 1
    threads = WARP
    while threads <= min(most, max(slabs)):
        yield threads
        threads *= 2


def _groupings(formed: FormedPattern, first: Template) -> Iterator[Template]:
    dear = list(_dear(formed))
    labels = [s.op for s in dear]
    known = {s.op: s for s in first.schedules}
    order = {label: n for n, label in enumerate(dict.fromkeys(formed.labels.values()))}
    kept = frozenset(s.op for s in first.schedules if s.shared and s.op in labels)
    yield first
    for subset in itertools.islice(_subsets(labels, kept), 1, None):
        chosen = dict(known)
        for schedule in dear:
            label = schedule.op
            if label in subset:
                chosen[label] = replace(known.get(label, schedule), shared=True)
            elif label in kept:
                del chosen[label]
        yield Template(tuple(sorted(chosen.values(), key=lambda s: order.get(s.op, -1))))


def _subsets(labels: Sequence[str], kept: frozenset[str]) -> Iterator[frozenset[str]]:
    """Which of the ops are sub-roots, those of the first choice before the others."""
    yield kept
    if len(labels) <= MOST_TOGGLED:
        sizes = range(len(labels) + 1)
        everything = itertools.chain.from_iterable(itertools.combinations(labels, n) for n in sizes)
        yield from (frozenset(s) for s in everything if frozenset(s) != kept)
    else:
        yield from (kept ^ {label} for label in labels)


def _dear(formed: FormedPattern) -> Iterator[OpSchedule]:
    """Dear elementwise ops whose result could be kept, as sub-roots."""
    grouping = formed.grouping
    for op in grouping.ops:
        group = grouping.group_of.get(op)
        if group is None or group.flat or not _is_dear(op) or op.result.tensor.size <= group.rows:
            continue
        if op.result not in grouping.spilled:
            yield OpSchedule(formed.labels[op.result], row_attrs(group, op.result.shape), True)


def _is_dear(op: Op) -> bool:
    return not is_free(op) and op.name != PARTIAL and lookup(op.name).op_class is OpClass.EXPENSIVE


def _with(schedule: OpSchedule, choice: RowChoice, scale: float, threads: int, most: int) -> OpSchedule:
    """The schedule, which says `choice`, with another number of programs, at most `most`, and of threads."""
    attrs = list(schedule.attrs)
    if choice.programs > 1 and scale != 1.0:
        programs = max(1, min(int(choice.programs * scale), most))
        attrs[0] = tuple(Tile(Scope.GRID, programs) if t.scope is Scope.GRID else t for t in attrs[0])
    if threads and attrs[-1][-1].scope is Scope.CTA:
        attrs = [_by(attr, threads) for attr in attrs]
    return replace(schedule, attrs=tuple(attrs))


def _by(attr: Attr, threads: int) -> Attr:
    names = {1: Tile(Scope.THREAD), WARP: Tile(Scope.WARP)}
    team = names.get(threads, Tile(Scope.CTA, threads))
    return tuple(team if tile.scope is Scope.CTA else tile for tile in attr)
