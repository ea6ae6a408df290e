"""A plan as it is saved: whose each op is, what each kernel is like, and why the rest stays XLA's.

    pin_plan(plan.calls, seen)     ->     PlanFile
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import jax

from jstitch.frontend.observe import Observed
from jstitch.frontend.pins import loops_key, options_text
from jstitch.inspection.call_plan import CallPlan, Cost, PatternPlan, target_name
from jstitch.inspection.op_owners import Owners, find_owners
from jstitch.passes.base.op_keys import graph_key, pattern_key
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.fuse.absorb_updates import absorb_updates, contracted
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.plan_file import LeftOps, Line, PinnedCall, PinnedKernel, PlanFile, Share
from jstitch.runtime.versions import own_version


@dataclass(frozen=True, eq=False)
class Chosen:
    """A pattern that becomes a kernel. taking: it, with the updates that the kernel takes over."""

    pattern: FusionPattern
    taking: FusionPattern
    plan: PatternPlan


def pin_plan(calls: Sequence[CallPlan], seen: Sequence[Observed]) -> PlanFile:
    """calls: the plans of those that were seen. Calls that are alike are saved once."""
    both = zip(calls, seen, strict=False)
    made = [_call(plan, of) for plan, of in both if of.graph is not None and of.ready is not None]
    options = options_text(seen[0].options) if seen else {}
    return PlanFile(own_version(), jax.__version__, target_name(seen), options, tuple(_unlike(made)))


def _unlike(calls: Sequence[PinnedCall]) -> Iterator[PinnedCall]:
    """The first of those of one name that are one program."""
    yield from {(call.name, call.program): call for call in reversed(calls)}.values()


def _call(plan: CallPlan, seen: Observed) -> PinnedCall:
    assert seen.graph is not None
    assert seen.ready is not None
    chosen = list(_chosen(plan, seen))
    why = {op: str(p.refused) for _, taking, p in _all(plan, seen) if p.refused for op in taking.ops}
    owners = find_owners(seen, [c.pattern for c in chosen], why)
    return PinnedCall(
        seen.name,
        graph_key(seen.graph),
        graph_key(seen.ready),
        tuple(_kernel(c, seen, _lines(owners, n)) for n, c in enumerate(chosen)),
        tuple(LeftOps(why, _lines(owners, n)) for n, why in enumerate(owners.why, len(chosen))),
        tuple((len(list(same)), *who) for who, same in groupby(owners.whose.values())),
    )


def _all(plan: CallPlan, seen: Observed) -> Iterator[tuple[FusionPattern, FusionPattern, PatternPlan]]:
    for frame, of in zip(seen.plans, plan.frames, strict=True):
        yield from zip(frame.patterns, absorb_updates(frame, seen.context).patterns, of.patterns, strict=True)


def _chosen(plan: CallPlan, seen: Observed) -> Iterator[Chosen]:
    yield from (Chosen(*of) for of in _all(plan, seen) if of[2].kernel is not None)


def _lines(owners: Owners, owner: int) -> tuple[Line, ...]:
    groups = groupby(owners.ops_of(owner), key=lambda op: op.loc)
    return tuple(Line(at, tuple(owners.keys[op] for op in same)) for at, same in groups)


def _share(cost: Cost) -> Share:
    return Share(cost.launches, round(cost.nbytes / 1e6, 2))


def _kernel(chosen: Chosen, seen: Observed, lines: tuple[Line, ...]) -> PinnedKernel:
    """With its schedule, where lowering by that makes it again."""
    pattern, plan = chosen.taking, chosen.plan
    assert plan.kernel is not None
    inputs, _, outputs = contracted(pattern)
    about = pattern.ops, inputs, outputs, seen.context, pattern.updates
    first = best_kernel("saved", *about, pattern.template)
    loops = loops_key(first)
    again = loops == loops_key(best_kernel("saved", *about, first.template))
    schedule = str(first.template or "").splitlines() if again else []
    return PinnedKernel(
        plan.name,
        pattern_key(chosen.pattern),
        plan.origin,
        loops,
        plan.kernel.schemes,
        _share(plan.xla),
        _share(plan.ours),
        tuple(schedule),
        lines,
    )
