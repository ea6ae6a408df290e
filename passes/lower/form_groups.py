"""Cut a pattern into groups of ops that share one row space, and order the groups by levels.

    x [N, C] -> sum over 0 -> [C] -> divide -> mean [C] -> broadcast, subtract from x -> out [N, C]

    group 0 (N rows): partial sums, subtract        level 0: partial sums
    group 1 (1 row):  combine, divide               level 1: combine, divide   (mean is spilled)
                                                    level 2: subtract

An edge inside a group, row to row, stays in the program (register or arena). Any other edge is recomputed in
place when that is cheap, or spilled: written to memory, and read one level later, behind a barrier. So every
pattern of supported ops has groups and levels; whether they pay is for the cost model to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import (
    UNIFORM,
    Access,
    Reduction,
    is_reduction,
    reduction,
    relations,
)
from jstitch.passes.lower.group import (
    Group,
    choose_short_rows,
    choose_steps,
    choose_threads,
    share_long_sums,
    share_partial_sums,
)
from jstitch.passes.lower.lengthen_rows import candidate_rows, fewer_rows, lengthen_rows
from jstitch.passes.lower.raise_levels import RowFlow, raise_levels
from jstitch.passes.lower.recompute_cost import PARTIAL, RECOMPUTE, costs_of, repeated_values
from jstitch.passes.lower.small_parts import SMALL, small_parts, update_costs
from jstitch.passes.lower.spread_rows import spread_rows

HELD = "held"  # attribute of an op that changes nothing: what it reads from memory is worth a tile
APART = "apart"  # attribute of a shape op: its result need not be cut into the rows of its operand

RECOMPUTE_SCALAR = 200.0
REPEATED = 4.0  # the same where it is computed again for every row
PHASES = 4.0  # what a spill must save, in phases


@dataclass(frozen=True)
class Strips:
    """Rows that are strips of so many columns each (own_columns)."""

    count: int
    columns: int


@dataclass(eq=False)
class Grouping:
    """ops: the pattern's, cross reductions replaced by a partial and a combine; in topological order."""

    ops: list[Op]
    group_of: dict[Op, Group]
    level_of: dict[Op, int] = field(default_factory=dict)
    spilled: set[Value] = field(default_factory=set)

    @property
    def levels(self) -> int:
        return len(set(self.level_of.values()))


def form_groups(
    ops: Sequence[Op],
    outputs: Collection[Value],
    profile: Profile,
    fix: Callable[[Mapping[Op, Group]], None] | None = None,
    strips: Mapping[Op, Strips] | None = None,
    longer: bool = True,
) -> Grouping:
    """Groups, levels and spills of a pattern whose ops (in program order) are all supported.

    fix: may set the step, programs and threads of the groups that ops are in. strips: that ops are in, and
    that are not to be cut. longer: a CPU's rows may be as long as it takes to have few levels.
    """
    formed = partial(_form, ops, outputs, profile, fix, strips or {})
    found = formed(None)
    if not longer or fix is not None or strips or not _may_be_longer(found, profile):
        return found
    ways = [found, *(formed(rows) for rows in fewer_rows(ops, profile))]
    return min(ways, key=lambda way: way.levels)


def _may_be_longer(grouping: Grouping, profile: Profile) -> bool:
    """Whether a CPU's programs wait for all of each other's work, and not for sums of it."""
    if profile.machine.device is not None or any(op.name == PARTIAL for op in grouping.ops):
        return False
    largest = max((v.tensor.size for op in grouping.ops for v in op.results), default=0)
    return any(2 * v.tensor.size >= largest for v in grouping.spilled)


def _form(
    ops: Sequence[Op],
    outputs: Collection[Value],
    profile: Profile,
    fix: Callable[[Mapping[Op, Group]], None] | None,
    strips: Mapping[Op, Strips],
    most: int | None,
) -> Grouping:
    """most: rows of a group, None: as many as there can be."""
    groups = _grow_groups(ops, profile, strips, most)
    group_of = {op: g for g in groups for op in g.ops}
    choose_steps(groups)
    choose_short_rows(groups, outputs)
    choose_threads(groups, profile)
    if fix is not None:
        fix(group_of)
    grouping = _split_cross_reductions(ops, group_of)
    once = _moved_once(ops, outputs) if profile.machine.device is None else set()
    return _assign_levels(grouping, once, kept=most is not None)


def _moved_once(ops: Sequence[Op], outputs: Collection[Value]) -> set[Value]:
    """Values that nobody reads but an op which moves each of their elements to another place."""
    readers: dict[Value, list[Op]] = {}
    for op in ops:
        for v in op.operands:
            readers.setdefault(v, []).append(op)
    moved = (v for v, users in readers.items() if len(users) == 1 and _only_moves(users[0]))
    return {*moved}.difference(outputs)


def _only_moves(op: Op) -> bool:
    same = len(op.operands) == 1 and op.result.tensor.size == op.operands[0].tensor.size
    return same and lookup(op.name).op_class is OpClass.SHAPE


def _grow_groups(
    ops: Sequence[Op], profile: Profile, strips: Mapping[Op, Strips], most: int | None
) -> list[Group]:
    repeats = [op for op in ops if not is_free(op) and _is_loose(op)]
    loose = {v for op in ops if is_free(op) for v in op.results}.union(*(op.results for op in repeats))
    remaining = {op: None for op in ops if not is_free(op)}
    loops = profile.most_threads == 1
    numbers = {op.result: op for op in ops if loops and lookup(op.name).position is not None}
    for op in repeats:
        del remaining[op]
    users: dict[Value, list[Op]] = {}
    producer: dict[Value, Op] = {}
    for op in remaining:
        producer.update(dict.fromkeys(op.results, op))
        for v in dict.fromkeys(op.operands):
            if v not in loose:
                users.setdefault(v, []).append(op)
    seeds = sorted(
        dict.fromkeys(v for op in remaining for v in (*op.results, *op.operands) if v not in loose),
        key=lambda v: -v.tensor.size,
    )
    crossed: set[Value] = set()
    groups: list[Group] = []
    for seed in seeds:
        while remaining and (producer.get(seed) in remaining or _row_users(seed, users, remaining)):
            found = strips.get(producer[seed]) if seed in producer else None
            group = _grow(seed, users, producer, remaining, numbers, crossed, profile, found, most)
            if group is None or not group.ops:
                break
            groups.append(group)
            for op in group.ops:
                del remaining[op]
                if is_reduction(op) and reduction(op, group.rows) is Reduction.CROSS:
                    crossed.update(op.results)
    for op in (*remaining, *repeats):
        groups.append(Group(1, {op}, max(v.tensor.size for v in (*op.results, *op.operands)), profile))
    return groups


def _is_loose(op: Op) -> bool:
    """A broadcast of one element ties nobody together, each user has its own; nor does a view set apart."""
    if op.attrs.get(APART):
        return True
    is_shape = lookup(op.name).op_class is OpClass.SHAPE
    return is_shape and op.operands[0].tensor.size == 1 < op.result.tensor.size


def _row_users(seed: Value, users: dict[Value, list[Op]], remaining: dict[Op, None]) -> bool:
    return any(
        op in remaining and (is_reduction(op) or op.results[0].tensor.size == seed.tensor.size)
        for op in users.get(seed, ())
    )


def _grow(
    seed: Value,
    users: dict[Value, list[Op]],
    producer: dict[Value, Op],
    remaining: dict[Op, None],
    numbers: Mapping[Value, Op],
    crossed: set[Value],
    profile: Profile,
    strips: Strips | None,
    most: int | None,
) -> Group | None:
    """The largest group around `seed` with the finest rows that all its reductions allow."""

    def walk(rows: int) -> tuple[set[Op], int] | None:
        return spread_rows(seed, rows, users, producer, remaining, numbers)

    for rows in candidate_rows(seed.shape):
        if (strips is not None and rows > strips.count) or (most is not None and rows > most):
            continue
        found = walk(rows)
        if found is None:
            continue
        ops, largest = found
        combines = any(v in crossed for op in ops for v in op.operands)
        if combines and rows > 1 and largest <= profile.combine_whole:
            continue
        if strips is None:
            rows = lengthen_rows(seed, rows, found, profile, walk)
        columns = strips.columns if strips is not None and rows == strips.count else 0
        return Group(rows, ops, largest, profile, columns=columns)
    return None


def _split_cross_reductions(ops: Sequence[Op], group_of: dict[Op, Group]) -> Grouping:
    """reduce over all rows  ->  partial per program, then a reduce over the programs, in another group."""
    new_ops: list[Op] = []
    new_group = dict(group_of)
    users: dict[Value, list[Op]] = {}
    for op in ops:
        for v in op.operands:
            users.setdefault(v, []).append(op)
    place = {op: n for n, op in enumerate(ops)}
    crossing = {op: g for op, g in group_of.items() if is_reduction(op) and _crosses(op, g)}
    for op, group in crossing.items():
        share_long_sums(op, group)
    for op in ops:
        if op not in crossing:
            new_ops.append(op)
            continue
        group = crossing[op]
        uniform = _uniform_results(op, group)
        programs = share_partial_sums(group)
        partials = tuple(_partial_value(v, programs, n in uniform) for n, v in enumerate(op.results))
        attrs = dict(op.attrs)
        partial = replace(op, name=PARTIAL, results=partials, attrs=attrs)
        spread = {
            n: build.broadcast(v, partials[-1].shape, (0,)).located(op)
            for n, v in enumerate(partials)
            if n in uniform
        }
        parts = tuple(spread[n].result if n in spread else v for n, v in enumerate(partials))
        operands = (*parts, *op.operands[len(op.results) :])
        combine = replace(op, operands=operands, attrs={**attrs, "dimensions": (0,)})
        new_ops += [partial, *spread.values(), combine]
        new_group[partial] = group
        del new_group[op]
        waiting = {user for v in combine.results for user in users.get(v, ())}
        target = _combine_group(combine, sorted(waiting, key=place.__getitem__), group_of, group.profile)
        target.ops.update((*spread.values(), combine))
        new_group.update(dict.fromkeys((*spread.values(), combine), target))
    return Grouping(new_ops, new_group)


def _crosses(op: Op, group: Group) -> bool:
    return reduction(op, group.rows) is Reduction.CROSS


def _uniform_results(op: Op, group: Group) -> tuple[int, ...]:
    """Results of which a program needs one number: nothing is reduced inside a row."""
    kept = op.results[0].tensor.size
    apart = kept > 1 and kept * group.rows == op.operands[0].tensor.size
    return op.attrs.get(UNIFORM, ()) if apart else ()


def _partial_value(result: Value, programs: int, uniform: bool) -> Value:
    t = result.tensor
    return Value(TensorType((programs,) if uniform else (programs, *t.shape), t.dtype.compute))


def _combine_group(combine: Op, users: Sequence[Op], group_of: Mapping[Op, Group], profile: Profile) -> Group:
    """The one-row group that uses the result, if there is one; else a group of its own."""
    for user in users:
        group = group_of.get(user)
        if group is not None and group.rows == 1:
            return group
    return Group(1, set(), max(v.tensor.size for v in combine.operands), profile)


def _assign_levels(grouping: Grouping, once: Collection[Value], kept: bool) -> Grouping:
    """The level of every op: one more than that of any spill it reads, directly or by inlining.

    once: values that are computed where they are read, and nowhere else, however dear they are. kept: what is
    read at several places of a row is in a tile.
    """
    level, group_of, spilled = grouping.level_of, grouping.group_of, grouping.spilled
    maker: dict[Value, Op] = {}
    cost: dict[Value, float] = {}  # cycles per element to compute it again from inputs and spills
    ready: dict[Value, int] = {}  # the first level at which that is possible
    rows: dict[Op, list[Op]] = {}  # what reads the rows of an op inside one program
    op_cost = costs_of(grouping.group_of.values())
    repeated = repeated_values(grouping.ops, op_cost)

    def edge_level(op: Op, value: Value, access: Access) -> int:
        source = maker.get(value)
        if source is None or is_free(source):
            return 0
        same = group_of[source] is group_of[op] and source.name != PARTIAL
        again = value in repeated and lookup(op.name).op_class is OpClass.SHAPE
        if same and access is Access.ROW and (kept or not again):
            rows.setdefault(source, []).append(op)
            return level[source]
        bound = math.inf if value in once else _bound(value, op, group_of[op])
        if value not in spilled and cost[value] >= bound and not again:
            if parts := small_parts(value, bound, maker, cost, spilled, op_cost):
                spilled.update(parts)
                cost.update(dict.fromkeys(parts, 1.0))
                ready.update((v, level[maker[v]] + 1) for v in parts)
                update_costs(value, maker, spilled, cost, ready, op_cost)
        if value not in spilled and cost[value] < bound and not again:
            return ready[value]
        spilled.add(value)
        cost[value], ready[value] = 1.0, level[source] + 1
        return ready[value]

    def is_dear(value: Value) -> bool:
        op = maker[value]
        return cost[value] >= _bound(value, op, group_of[op])

    for op in grouping.ops:
        if not is_free(op):
            found = _accesses(op, group_of[op].rows)
            edges = zip(op.operands, found, strict=True)
            level[op] = max((edge_level(op, v, a) for v, a in edges), default=0)
        for v in op.results:
            maker[v] = op
            cost[v] = op_cost(op, cost)
            ready[v] = max((ready.get(u, 0) for u in op.operands), default=0)
    raise_levels(RowFlow(grouping.ops, level, rows, spilled, is_dear))
    _spill_between_levels(grouping)
    return grouping


def _spill_between_levels(grouping: Grouping) -> None:
    """Row-to-row edges that cross levels: what is dear to compute again, even from spills, is spilled too."""
    level, group_of, spilled = grouping.level_of, grouping.group_of, grouping.spilled
    op_cost = costs_of(grouping.group_of.values())
    cost: dict[Value, float] = {}
    maker: dict[Value, Op] = {}
    for op in grouping.ops:
        accesses = () if is_free(op) else _accesses(op, group_of[op].rows)
        for v, access in zip(op.operands, accesses, strict=False):
            source = maker.get(v)
            if source is None or is_free(source) or access is not Access.ROW:
                continue
            crosses = group_of[source] is group_of[op] and level[source] < level[op]
            if crosses and cost[v] >= _bound(v, op, group_of[op]):
                parts = small_parts(v, _bound(v, op, group_of[op]), maker, cost, spilled, op_cost) or [v]
                spilled.update(parts)
                cost.update(dict.fromkeys(parts, 1.0))
                update_costs(v, maker, spilled, cost, {}, op_cost)
        for v in op.results:
            maker[v] = op
            cost[v] = 1.0 if v in spilled else op_cost(op, cost)


def _bound(value: Value, user: Op, group: Group) -> float:
    """Cycles up to which a value is computed again rather than spilled.

    A scalar is computed once a nest. A CPU, whose arithmetic no memory hides, also spills what it would
    compute for every row, where that does not part a group whose ops read their rows together.
    """
    if value.tensor.size == 1:
        return RECOMPUTE_SCALAR
    machine = group.profile.machine
    elements = max((v.tensor.size for v in user.results), default=0)
    saved = (RECOMPUTE - REPEATED) * elements * machine.lane_cycle
    if machine.device is not None or elements < SMALL * value.tensor.size or saved < PHASES * machine.launch:
        return RECOMPUTE
    sums = any(op.name == PARTIAL or is_reduction(op) for op in group.ops)
    return RECOMPUTE if sums else REPEATED


def _accesses(op: Op, rows: int) -> tuple[Access, ...]:
    if op.name == PARTIAL or is_reduction(op):
        inits = len(op.operands) - len(op.results)
        return (Access.ROW,) * len(op.results) + (Access.FREE,) * inits
    return tuple(r.access for r in relations(op, rows))
