"""What patterns save against the kernels that XLA would run for the frame (FS-2019 section 4.3, model based).

    f(P) = sum of K(op) over the ops of P - K(P)

The paper's K(op) is the time of op as a kernel of its own; here that of XLA's fused kernel which ends in op,
and nothing for ops that XLA fuses into others. What patterns save then adds up, whatever their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free, make_pattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost.cost_model import CostEstimate, kernel_cost, xla_kernels, xla_makes
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.gate import judge, saved_copies
from jstitch.passes.fuse.pack_patterns import SMALL
from jstitch.passes.fuse.plan_layers import partition_reason

CONE = 300  # values that a kernel of XLA's is made of, at most
Evaluate = Callable[[FusionPattern], float]


@dataclass(frozen=True)
class Savings:
    """evaluate: seconds that a pattern saves, f(P).

    charges: op (its place in the frame) -> seconds in which XLA makes its result after all, when a pattern
    reads it; for ops that XLA would fuse into all that read them.
    """

    evaluate: Evaluate
    charges: Mapping[int, float] = field(default_factory=dict)


def modelled_savings(
    frame: Graph, profile: Profile, shares: tuple[float, ...] = (1.0,)
) -> tuple[Savings, ...]:
    """By the cost model, on a target.

    shares: how much of its launches a small pattern is charged with, one result for each: packed with others,
    it does not pay for all of them.
    """
    fusible, machine = [op for op in frame.ops if _is_fusible(op)], profile.machine
    whole = make_pattern(frame, fusible, "xla")
    kernels = xla_kernels(whole, machine, CONE)
    seconds = {op: sum(kernels[v].seconds(machine) for v in op.results if v in kernels) for op in fusible}
    fused = {n: op for n, op in enumerate(frame.ops) if seconds.get(op) == 0 and not is_free(op)}
    made = xla_makes(whole, machine, (op.results[0] for op in fused.values()), CONE)
    charges = {n: made[op.results[0]].seconds(machine) for n, op in fused.items()}
    return tuple(Savings(_evaluate(seconds, share, profile), charges) for share in shares)


def _evaluate(seconds: Mapping[Op, float], share: float, profile: Profile) -> Evaluate:
    def evaluate(pattern: FusionPattern) -> float:
        cost = kernel_cost(pattern, profile)
        if cost.seconds(profile.machine) < SMALL:
            cost = replace(cost, launches=share * cost.launches)
        return sum(seconds[op] for op in pattern.ops) - cost.seconds(profile.machine)

    return evaluate


def _is_fusible(op: Op) -> bool:
    return is_free(op) or partition_reason(op) is None


def modelled_seconds(plan: FusionPlan, context: Context) -> float:
    """Of the plan's kernels, and of XLA's for all other ops that a kernel could hold.

    Updates that no kernel takes over are not counted; those that one does are, as saved.
    """
    ours = (
        judge(p, context.profile).ours_seconds - saved_copies(p).seconds(context.machine)
        for p in absorb_updates(plan, context).patterns
    )
    return sum(ours) + rest_seconds(plan, context)


def rest_seconds(plan: FusionPlan, context: Context) -> float:
    """Of XLA's kernels for the ops that a kernel could hold, and none of the plan's does."""
    return sum(cost.seconds(context.machine) for cost in rest_costs(plan, context))


def rest_costs(plan: FusionPlan, context: Context) -> Collection[CostEstimate]:
    """The same kernels, one by one."""
    owned = {op for p in plan.patterns for op in p.ops if not is_free(op)}
    rest = [op for op in plan.frame.ops if op not in owned and _is_fusible(op)]
    return xla_kernels(make_pattern(plan.frame, rest, "xla"), context.machine, CONE).values()
