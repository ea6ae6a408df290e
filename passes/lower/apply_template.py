"""Lower a pattern as a template says: programs, rows of a step, threads of a row, values kept on chip.

    exponential_0[GRID_16-THREAD_2, WARP]S;     ->      the rows that exponential_0 is in: 16 programs, 2 rows
                                                        a step, 32 threads a row; its result kept on chip

What a template does not mention is chosen as without one; of the ops that it mentions, those without S are
computed again where they are needed, except for reductions, which are always kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jstitch.errors import JstitchError
from jstitch.ir.graph import Op, Value
from jstitch.ir.ops.build import grows
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.base.row_access import ROWS, Reduction, is_reduction, reduction
from jstitch.passes.lower.group import Group
from jstitch.passes.lower.recompute_cost import PARTIAL
from jstitch.template import Attr, OpSchedule, Scope, Template

WARP = 32
PART = ".partial"  # ends the label of a program's part of a reduction over rows


class TemplateError(JstitchError, ValueError):
    """A template that does not fit the pattern."""


@dataclass(frozen=True)
class RowChoice:
    """How the rows of a group are shared; 0: not said."""

    programs: int
    step: int
    threads: int


def is_of_columns(schedule: OpSchedule) -> bool:
    """Whether programs own columns: the last of several dimensions is cut, and threads share the others."""
    last = schedule.attrs[-1]
    return len(schedule.attrs) > 1 and last[0].scope is Scope.GRID and len(last) > 1


def asked_columns(template: Template | None) -> int | None:
    """Columns of a strip that the template asks for; 0: rows; None: it does not say."""
    if template is None:
        return None
    found = {
        s.attrs[-1][1].count or 0 if is_of_columns(s) else 0 for s in template.schedules if len(s.attrs) > 1
    }
    if len(found) > 1:
        raise TemplateError("one width of strips for all ops", " and ".join(map(str, sorted(found))))
    return next(iter(found), None)


def label_ops(ops: Sequence[Op]) -> dict[Value, str]:
    """Result -> the name of its op in templates: reduce_0, exponential_0, exponential_1."""
    counts: dict[str, int] = {}
    labels: dict[Value, str] = {}
    for op in ops:
        if is_free(op):
            continue
        name = (PRODUCT if ROWS in op.attrs and is_reduction(op) else op.name).rpartition(".")[2]
        n = counts[name] = counts.get(name, -1) + 1
        labels.update(dict.fromkeys(op.results, f"{name}_{n}"))
    return labels


def names_of(template: Template) -> set[str]:
    """The ops that the template names."""
    return {s.op.removesuffix(PART) for s in template.schedules}


def label_partials(ops: Sequence[Op], labels: Mapping[Value, str]) -> dict[Value, str]:
    """`labels`, and those of the partial results that ops with labels combine."""
    parts = {v: op for op in ops if op.name == PARTIAL for v in op.results}
    makers = {v: op for op in ops for v in op.results}
    found = dict(labels)
    for op in ops:
        for v in op.operands if op.results and op.results[0] in labels else ():
            # one number of a program stands for all elements that are kept: it is repeated first
            source = makers[v].operands[0] if v in makers and grows(makers[v]) else v
            if source in parts:
                found.update(dict.fromkeys(parts[source].results, labels[op.results[0]] + PART))
    return found


def fix_groups(template: Template, labels: Mapping[Value, str], group_of: Mapping[Op, Group]) -> None:
    """Set what the template says of the groups. Raises TemplateError."""
    schedules = {s.op: s for s in template.schedules}
    _check_known(schedules, labels)
    said: dict[int, tuple[OpSchedule, RowChoice]] = {}
    for op, group in group_of.items():
        if group.columns and group.rows == 1:
            continue  # what is left over behind the strips is one program's
        for schedule in _schedules(op, group, labels, schedules):
            choice = row_choice(schedule, group.profile.most_threads, group.columns > 0)
            known = said.setdefault(id(group), (schedule, choice))
            if known[1] != choice:
                raise TemplateError(f"one way to share the rows of '{known[0]}'", f"'{schedule}'")
            _fix(group, schedule, choice)
            _fix_block(group, schedule)


def shared_values(template: Template, labels: Mapping[Value, str]) -> frozenset[Value]:
    """The values whose schedules say S."""
    shared = {s.op for s in template.schedules if s.shared}
    return frozenset(v for v, label in labels.items() if label in shared)


def row_choice(schedule: OpSchedule, most_threads: int, strips: bool = False) -> RowChoice:
    """What the attributes say: of the first dimension programs and step, of the last one threads.

    most_threads: of the target; where it is one, none are said. strips: rows are strips of columns: it is the
    last dimension that programs share.
    """
    first, last = schedule.attrs[-1 if strips else 0], schedule.attrs[-1]
    grid = next((t.count for t in first if t.scope is Scope.GRID), None)
    step = None if strips else next((t.count for t in first[1:] if t.scope is Scope.THREAD), None)
    return RowChoice(grid or 0, step or 0, _threads(last) if most_threads > 1 else 0)


def _threads(attr: Attr) -> int:
    match attr[-1]:
        case tile if tile.scope is Scope.WARP:
            return WARP
        case tile if tile.scope is Scope.CTA:
            return tile.count or 0
        case tile if tile.scope is Scope.THREAD and len(attr) == 1:
            return 1
    return 0


def block_of(schedule: OpSchedule) -> int:
    """Columns of a block: of a dimension behind the first, so many at a time, before a team; 0: all."""
    found = (attr[0] for attr in schedule.attrs[1:] if len(attr) > 1 and attr[0].scope is Scope.THREAD)
    return next((tile.count for tile in found if tile.count is not None), 0)


def _schedules(
    op: Op, group: Group, labels: Mapping[Value, str], schedules: Mapping[str, OpSchedule]
) -> Iterator[OpSchedule]:
    """Those that speak of this group: of a reduction over its rows, the program's part."""
    if is_free(op) or not op.results:
        return
    crosses = is_reduction(op) and reduction(op, group.rows) is Reduction.CROSS
    label = labels[op.results[0]] + (PART if crosses else "")
    if label in schedules:
        yield schedules[label]


def _check_known(schedules: Mapping[str, OpSchedule], labels: Mapping[Value, str]) -> None:
    known = set(labels.values())
    for name in schedules:
        if name.removesuffix(PART) not in known:
            hint = f"the pattern has {', '.join(sorted(known))}"
            raise TemplateError("the name of an op of the pattern", f"'{name}'", hint=hint)


def _fix_block(group: Group, schedule: OpSchedule) -> None:
    """Columns of a block: those that one op of the group says, or whole rows."""
    block = block_of(schedule)
    if not group.products:
        return
    if group.block and block and group.block != block:
        raise TemplateError(f"blocks of {group.block} columns", str(block), where=str(schedule))
    group.block = block or group.block or 0


def _fix(group: Group, schedule: OpSchedule, choice: RowChoice) -> None:
    step = choice.step or 1
    group.fixed = choice.programs
    if (group.rows % step and not group.may_rest) or choice.programs > group.rows // step:
        parts = f"{choice.programs} programs of {step} rows a step"
        raise TemplateError(f"at most {group.rows} rows, in whole steps", parts, where=str(schedule))
    most = group.profile.most_threads
    if choice.threads & (choice.threads - 1) or choice.threads > most:
        wanted = f"a power of two of threads, at most {most}"
        raise TemplateError(wanted, str(choice.threads), where=str(schedule))
    group.step = step
    group.threads = choice.threads
    group.exact = choice.threads > 0
