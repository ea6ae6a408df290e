"""A plan as it is saved: whose each op is, what each kernel is like, and why the rest stays XLA's.

pin_plan(plan.calls, seen)     ->     PlanFile
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap

from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.observe import Observed
from jstitch.frontend.pins import loops_key, options_text
from jstitch.inspection.call_plan import CallPlan, Cost, PatternPlan, target_name
from jstitch.inspection.labels import short_places
from jstitch.inspection.op_owners import Owners, find_owners
from jstitch.passes.base.op_keys import graph_key, pattern_key
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.fuse.absorb_updates import absorb_updates, contracted
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.plan_file import XLA, LeftOps, Line, PinnedCall, PinnedKernel, PlanFile, Share
from jstitch.runtime.versions import version_of
from jstitch.template import Template

WIDTH = 110
NO_BREAK = "\0"


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
    unlike = {(call.name, call.program, call.graph): call for call in made}
    versions = version_of("jstitch"), version_of("jax")
    return PlanFile(*versions, target_name(seen), options, tuple(unlike.values()))


def _call(plan: CallPlan, seen: Observed) -> PinnedCall:
    assert seen.graph is not None
    assert seen.ready is not None
    chosen = list(_chosen(plan, seen))
    why = {op: str(p.refused) for _, taking, p in _all(plan, seen) if p.refused for op in taking.ops}
    owners = find_owners(seen, [c.pattern for c in chosen], why)
    lines = [_lines(owners, n) for n in range(len(chosen) + len(owners.why))]
    left = zip(owners.why, lines[len(chosen) :], strict=True)
    return PinnedCall(
        seen.name,
        graph_key(seen.graph),
        graph_key(seen.ready),
        tuple(_kernel(c, seen, part) for c, part in zip(chosen, lines, strict=False)),
        tuple(LeftOps(short_places(why), part) for why, part in left),
        tuple(_order(owners, lines)),
    )


def _order(owners: Owners, parts: Sequence[Sequence[Line]]) -> Iterator[tuple[int, ...]]:
    places = [(owner, line.at) for owner, part in enumerate(parts) for line in part]
    number = {place: n for n, place in enumerate(places)} | {(XLA, ""): XLA}
    where = [
        tuple(number[(owner, "" if owner == XLA else short_places(op.loc))] for owner in who)
        for op, who in owners.whose.items()
    ]
    yield from ((len(list(same)), *at) for at, same in groupby(where))


def _all(plan: CallPlan, seen: Observed) -> Iterator[tuple[FusionPattern, FusionPattern, PatternPlan]]:
    for frame, of in zip(seen.plans, plan.frames, strict=True):
        yield from zip(frame.patterns, absorb_updates(frame, seen.context).patterns, of.patterns, strict=True)


def _chosen(plan: CallPlan, seen: Observed) -> Iterator[Chosen]:
    yield from (Chosen(*of) for of in _all(plan, seen) if of[2].kernel is not None)


def _lines(owners: Owners, owner: int) -> tuple[Line, ...]:
    """By source lines, in the order in which these come first."""
    found: dict[str, list[str]] = {}
    for op in owners.ops_of(owner):
        found.setdefault(short_places(op.loc), []).append(owners.keys[op])
    return tuple(Line(at, tuple(ops)) for at, ops in found.items())


def _share(cost: Cost) -> Share:
    return Share(cost.launches, round(cost.nbytes / 1e6, 2))


def _kernel(chosen: Chosen, seen: Observed, lines: tuple[Line, ...]) -> PinnedKernel:
    pattern, plan = chosen.taking, chosen.plan
    assert plan.kernel is not None

    def loops(template: Template | None) -> Kernel:
        inputs, _, outputs = contracted(pattern)
        about = pattern.ops, inputs, outputs, seen.context, pattern.updates
        return best_kernel("saved", *about, template)

    first = loops(pattern.template)
    key = loops_key(first)
    templates = (t for t in (first.template, pattern.template) if t is not None)
    schedule = next((t for t in templates if loops_key(loops(t)) == key), None)
    return PinnedKernel(
        *(plan.name, pattern_key(chosen.pattern), plan.origin, key, plan.kernel.schemes),
        *(_share(plan.xla), _share(plan.ours)),
        _wrapped(schedule),
        lines,
    )


def _wrapped(template: Template | None) -> tuple[str, ...]:
    """Its schedules, as many in a line as one reads."""
    words = "" if template is None else " ".join(str(s).replace(" ", NO_BREAK) for s in template.schedules)
    return tuple(line.replace(NO_BREAK, " ") for line in wrap(words, WIDTH, break_on_hyphens=False))
