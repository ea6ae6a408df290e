"""Write down the schedules of a lowered pattern as a template.

    lane of 1024 rows, 2 per step, 16 programs: max, exp (kept), sum, divide    ->

    reduce_0[GRID_16-THREAD_2, CTA]S; exponential_0[GRID_16-THREAD_2, CTA]S; divide_0[GRID_16-THREAD_2, CTA];

Lowering the pattern with this template again gives the same kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from jstitch.ir.graph import Value
from jstitch.passes.base.row_access import prefix_rank
from jstitch.passes.lower.apply_template import WARP
from jstitch.passes.lower.group import Group
from jstitch.passes.lower.place_values import Placement
from jstitch.passes.lower.recompute_cost import PARTIAL
from jstitch.template import Attr, OpSchedule, Scope, Template, Tile


def describe_lane(
    group: Group,
    placement: Placement,
    stored: set[Value],
    labels: Mapping[Value, str],
    widths: Mapping[Value, int] = MappingProxyType({}),
) -> Iterator[OpSchedule]:
    """The schedules of one lane's nodes. stored: values in memory. widths: columns of those in blocks."""
    for node in placement.nodes:
        results = set(node.op.results if node.is_reduction else (node.value,))
        on_chip = (node.is_reduction or node.value in placement.kept) and not results & stored
        attrs = row_attrs(group, node.domain)
        if node.value in widths:
            reduced = node.op.attrs["dimensions"] if node.is_reduction else ()
            column = max(d for d in range(len(attrs)) if d not in reduced)
            attrs = tuple(in_blocks(a, widths[node.value]) if d == column else a for d, a in enumerate(attrs))
        yield OpSchedule(labels[node.op.results[0]], attrs, on_chip)


def in_blocks(attr: Attr, columns: int) -> Attr:
    """So many columns at a time, one block after another."""
    return (Tile(Scope.THREAD, columns), attr[-1])


def row_attrs(group: Group, shape: tuple[int, ...]) -> tuple[Attr, ...]:
    """One attribute for each dimension of a tensor that the group's rows divide."""
    inner = (_team(group),)
    if not shape:
        return (inner,)
    split = prefix_rank(shape, group.rows) if group.rows > 1 else 0
    if group.columns and split:
        return _column_attrs(group, split - 1, len(shape) - split - 1)
    grid = [Tile(Scope.GRID, group.programs if _is_counted(group) else None)]
    if group.step > 1:
        grid.append(Tile(Scope.THREAD, group.step))
    if split is None:  # rows cut one dimension
        return ((*grid, *inner), *((inner,) * (len(shape) - 1)))
    outer: tuple[Attr, ...] = (tuple(grid), *(((Tile(Scope.GRID),),) * (split - 1))) if split else ()
    return (*outer, *((inner,) * (len(shape) - split)))


def _column_attrs(group: Group, lead: int, middle: int) -> tuple[Attr, ...]:
    """Of leading dimensions, reduced ones, and the one that is cut into strips."""
    grid = Tile(Scope.GRID, group.programs if _is_counted(group) else None)
    last = grid, Tile(Scope.THREAD, group.columns), _team(group)
    return (*(((Tile(Scope.GRID),),) * lead), *(((_team(group),),) * middle), last)


def _is_counted(group: Group) -> bool:
    """Whether it has so many programs: on a GPU, without partial results, it has as many as rows need."""
    partial = any(op.name == PARTIAL for op in group.ops)
    return group.profile.most_threads == 1 or partial or group.counted


def _team(group: Group) -> Tile:
    if group.profile.most_threads == 1:
        return Tile(Scope.THREAD)
    match group.threads if group.rows > 1 and not group.flat else 0:
        case 0:
            return Tile(Scope.CTA)
        case 1:
            return Tile(Scope.THREAD)
        case n if n == WARP:
            return Tile(Scope.WARP)
    return Tile(Scope.CTA, group.threads)


def template_of(schedules: Iterable[OpSchedule]) -> Template:
    """One schedule for each op: an op that two lanes compute has that of the first."""
    found: dict[str, OpSchedule] = {}
    for schedule in schedules:
        found.setdefault(schedule.op, schedule)
    return Template(tuple(found.values()))
