"""Kernel packing: small patterns that do not depend on each other share one kernel (FS-2021 section 5.2).

    p0, m0, v0 = adamw(...)  |  p1, m1, v1 = adamw(...)  |  ...     ->     one kernel, a lane for each

Patterns of one depth (longest path from the frame's inputs, patterns contracted) cannot reach each other, so
any of them may be packed and the plan stays acyclic.
"""

from __future__ import annotations

from collections.abc import Sequence

from jstitch.ir.graph import Op, Value
from jstitch.ir.node_graph import connected_parts
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free, make_patterns
from jstitch.passes.cost.cost_model import kernel_cost, wide_sums

SMALL = 2e-4  # modelled seconds up to which a pattern is packed


def pack_patterns(plan: FusionPlan, context: Context, *, remote: bool = True) -> FusionPlan:
    """The plan with small independent patterns packed; without `remote`, only those that read one tensor."""
    depth = _depths(plan)
    by_depth: dict[int, list[FusionPattern]] = {}
    alone: list[FusionPattern] = []
    for pattern in plan.patterns:
        first = next(op for op in pattern.ops if not is_free(op))
        cost = kernel_cost(pattern, context.profile)
        if cost.seconds(context.machine) < SMALL and not wide_sums(pattern, context.profile):
            by_depth.setdefault(depth[first], []).append(pattern)
        else:
            alone.append(pattern)
    near = [
        near for patterns in by_depth.values() for near in ([patterns] if remote else _adjacent(patterns))
    ]
    packs = [pack for patterns in near for pack in _bounded(patterns, context.profile.max_buffers)]
    alone += [pack[0] for pack in packs if len(pack) == 1]
    together = [pack for pack in packs if len(pack) > 1]
    joined = [[op for p in pack for op in p.ops] for pack in together]
    for pack, union in zip(together, make_patterns(plan.frame, joined, "pack_patterns"), strict=True):
        # a pattern that owns columns may own them only where it is alone
        alone += pack if wide_sums(union, context.profile) else [union]
    return FusionPlan(plan.frame, tuple(alone), plan.refusals)


def _adjacent(patterns: Sequence[FusionPattern]) -> list[list[FusionPattern]]:
    """Patterns that read a common tensor, directly or by way of others."""
    numbers: Sequence[int | Value] = range(len(patterns))
    shared = ((numbers[n], v) for n, pattern in enumerate(patterns) for v in pattern.inputs)
    parts = connected_parts(numbers, shared)
    return [[patterns[n] for n in sorted(m for m in part if isinstance(m, int))] for part in parts]


def _bounded(patterns: Sequence[FusionPattern], most: int) -> list[list[FusionPattern]]:
    """Packs of at most so many inputs and outputs."""
    packs: list[list[FusionPattern]] = []
    room = 0
    for pattern in patterns:
        buffers = len(pattern.inputs) + len(pattern.outputs)
        if not packs or buffers > room:
            packs.append([])
            room = most
        packs[-1].append(pattern)
        room -= buffers
    return packs


def _depths(plan: FusionPlan) -> dict[Op, int]:
    """Longest path to every op, all ops of a pattern at one depth."""
    owner = {op: n for n, p in enumerate(plan.patterns) for op in p.ops if not is_free(op)}
    producers = plan.frame.producers()
    node = {op: owner.get(op, -1 - k) for k, op in enumerate(plan.frame.ops)}
    before: dict[int, set[int]] = {n: set() for n in node.values()}
    for op in plan.frame.ops:
        for v in op.uses:
            maker = producers.get(v)
            if maker is not None and not is_free(maker) and node[maker] != node[op]:
                before[node[op]].add(node[maker])
    depth = _longest_paths(before)
    return {op: depth[n] for op, n in node.items()}


def _longest_paths(before: dict[int, set[int]]) -> dict[int, int]:
    """Depth of every node of a DAG given as predecessors (iterative: graphs may be deep)."""
    after: dict[int, list[int]] = {n: [] for n in before}
    waiting = {n: len(sources) for n, sources in before.items()}
    for n, sources in before.items():
        for m in sources:
            after[m].append(n)
    depth = dict.fromkeys(before, 0)
    ready = [n for n, count in waiting.items() if count == 0]
    while ready:
        n = ready.pop()
        for m in after[n]:
            depth[m] = max(depth[m], depth[n] + 1)
            waiting[m] -= 1
            if waiting[m] == 0:
                ready.append(m)
    return depth
