"""Give every pattern the schedules that its ops take least time with (FS-2018, sections 4.3 and 5.1).

    softmax of [4096, 1024]     ->     reduce_0[GRID_32, THREAD]S; exponential_0[GRID_32, THREAD]S; ...

`tune_schedule` looks at every schedule that all roots can have, and asks for the time of each op with it: of
the performance library where the context has one, else of the analytic model. What must have memory of its
own (`size_requirements`) is kept on chip. A pattern that no such schedule suits, or whose roots are too many
to look at, keeps the one that lowering chooses.
"""

from __future__ import annotations

from dataclasses import replace

from jstitch.ir.graph import Op
from jstitch.ir.schedule import Schedule, blocks, coordinates
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.cost.op_seconds import op_seconds
from jstitch.passes.fuse.tune_schedule import tune_schedule
from jstitch.passes.lower.apply_template import label_ops
from jstitch.passes.lower.propagate_schedule import Refusal
from jstitch.passes.lower.size_requirements import size_requirements
from jstitch.template import Attr, OpSchedule, Scope, Template, Tile

MOST_ROOTS = 8
MOST_OPS = 300


def choose_schedules(plan: FusionPlan, context: Context) -> FusionPlan:
    """The plan, its patterns with templates."""
    patterns = tuple(replace(p, template=_template(p, context)) for p in plan.patterns)
    return FusionPlan(plan.frame, patterns, plan.refusals)


def _template(pattern: FusionPattern, context: Context) -> Template | None:
    ops = [op for op in pattern.ops if not is_free(op)]
    made = {v: op for op in ops for v in op.results}
    roots = list(dict.fromkeys(made[v] for v in pattern.outputs))
    if len(roots) > MOST_ROOTS or len(ops) > MOST_OPS:
        return None

    def seconds(op: Op, schedule: Schedule) -> float:
        if context.times is not None:
            return context.times(op, schedule)
        return op_seconds(op, schedule, context.machine)

    tuned = tune_schedule(ops, roots, seconds, roots)
    if isinstance(tuned, Refusal):
        return None
    kept = size_requirements(ops, tuned.schedules, roots)
    labels = label_ops(ops)
    alone = context.profile.most_threads == 1
    found = []
    for op in ops:
        schedule = tuned.schedules.get(op)
        if schedule is not None and (op in kept or op in roots) and op.results[0] in labels:
            attrs = schedule_attrs(op, schedule, Tile(Scope.THREAD if alone else Scope.CTA))
            found.append(OpSchedule(labels[op.results[0]], attrs, op in kept))
    return Template(tuple(found)) if found else None


def schedule_attrs(op: Op, schedule: Schedule, team: Tile) -> tuple[Attr, ...]:
    """The schedule of an op's result, on the dimensions that its loops run over. team: who shares a row."""
    result = op.results[0].shape
    reduces = is_reduction(op)
    domain = op.operands[0].shape if reduces else result
    reduced = op.attrs["dimensions"] if reduces else ()
    own = [d for d in range(len(domain)) if d not in reduced]
    if not domain:
        return ((team,),)
    pairs, count = coordinates(result, schedule), Tile(Scope.GRID, blocks(result, schedule))
    cut, wide = [own[d] for d, _ in pairs], [d for d, n in enumerate(domain) if n > 1]
    attrs: list[Attr] = [(team,)] * len(domain)
    if cut == wide[: len(cut)]:  # rows; of one dimension both are the same
        for d in cut:
            attrs[d] = (Tile(Scope.GRID),)
        attrs[0] = (count, team) if len(domain) == 1 else (count,)
    else:
        attrs[cut[-1]] = (count, Tile(Scope.THREAD, pairs[-1][1]), team)
    return tuple(attrs)
