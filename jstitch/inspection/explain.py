"""From what was observed of a program to the reasons: of open edges, of patterns, of opaque ops, of calls.

explain_program("step", inspect_function(step, (params, batch), {}, options))   ->   Explanation
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from jstitch.frontend.observe import Observed
from jstitch.inspection.call_plan import target_name
from jstitch.inspection.explanation import CallStory, EdgeStory, Explanation, OpaqueStory, PatternStory
from jstitch.inspection.inspected import Inspected
from jstitch.inspection.kernel_facts import KernelFacts, KernelMaker
from jstitch.inspection.labels import Frame, frames_of
from jstitch.inspection.opaque import say_which, why_opaque
from jstitch.inspection.remedies import REMEDIES, call_remedy, remedy
from jstitch.inspection.why_kernel import why_schedule, why_schemes, why_tiling
from jstitch.ir.graph import Op
from jstitch.ir.visible import visible
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason, is_free
from jstitch.passes.chunk.chunk_rows import said_of
from jstitch.passes.fuse import gate
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.find_recurrences import find_recurrences
from jstitch.passes.fuse.find_sorts import find_sorts
from jstitch.passes.lower.name_kernel import KernelNames, name_kernel
from jstitch.runtime.report import Record

Step = Callable[[str], None]


def explain_program(name: str, seen: Inspected, step: Step = lambda what: None) -> Explanation:
    """The reasons for all calls, in the order of lowering. step: is told what is looked at next."""
    names = KernelNames()
    records = {r.details["observed"]: r for r in seen.records if "observed" in r.details}
    calls = [_call(call, names, records.get(n), step) for n, call in enumerate(seen.calls)]
    plain = (r for r in seen.records if "observed" not in r.details and r.reason)
    stayed = [CallStory(r.name, reason=r.reason or "", remedy=call_remedy(r.reason or "")) for r in plain]
    return Explanation(visible(name), target_name(seen.calls), (*calls, *stayed))


def _call(seen: Observed, names: KernelNames, record: Record | None, step: Step) -> CallStory:
    edges: list[EdgeStory] = []
    patterns: list[PatternStory] = []
    opaque: list[OpaqueStory] = []
    chunks: list[str] = []
    maker = KernelMaker(seen.context)
    for frame, plan in zip(frames_of(seen), seen.plans, strict=True):
        step(f"{seen.name}: {frame.title}")
        chunks += said_of(plan.frame)
        found = _Frame(frame, plan, seen, maker, names)
        patterns += found.patterns
        edges += found.edges()
        opaque += found.opaque()
    reason = (record.reason if record else None) if seen.stitched is None else None
    return CallStory(
        *(seen.name, tuple(edges), tuple(patterns), tuple(opaque), tuple(chunks)),
        str(record.details.get("divided", "")) if record else "",
        *((reason, call_remedy(reason)) if reason else ("", "")),
        seen.pinned,
    )


@dataclass(eq=False)
class _Frame:
    frame: Frame
    plan: FusionPlan
    seen: Observed
    maker: KernelMaker
    names: KernelNames

    def __post_init__(self) -> None:
        self.refused = dict(self.seen.refused)
        self.owner: dict[Op, PatternStory] = {}
        absorbed = absorb_updates(self.plan, self.seen.context).patterns
        self.patterns = [self._pattern(p) for p in absorbed]
        for pattern, story in zip(absorbed, self.patterns, strict=True):
            made = (
                *pattern.ops,
                *(op for u in pattern.updates for op in (u.op, *(u.chain if u.alone else ()))),
            )
            self.owner.update((op, story) for op in made if not is_free(op))

    # -- patterns -------------------------------------------------------------------------------------

    def _pattern(self, pattern: FusionPattern) -> PatternStory:
        made = self.maker.make(pattern)
        why = self.refused.get(pattern) or (made if isinstance(made, Reason) else None)
        kernel = made if isinstance(made, KernelFacts) else None
        context = self.seen.context
        return PatternStory(
            self.frame.title,
            self.names.unique(name_kernel(pattern, self.seen.name)),
            pattern.origin,
            tuple(self.frame.label(op) for op in pattern.ops if not is_free(op)),
            tuple(why_schemes(kernel, context)) if kernel else (),
            (*why_schedule(kernel, context), *why_tiling(pattern, context)) if kernel else (),
            kernel.schedule if kernel else "",
            _verdict(pattern, context),
            why,
            remedy(why) if why else "",
        )

    # -- edges ----------------------------------------------------------------------------------------

    def edges(self) -> Iterator[EdgeStory]:
        """Every edge between ops that are not constants, in program order."""
        known = {(r.producer, r.consumer): r.why for r in self.plan.refusals}
        producers = self.plan.frame.producers()
        for consumer in self.plan.frame.ops:
            for producer in dict.fromkeys(producers.get(v) for v in consumer.uses):
                if producer is not None and not is_free(producer) and not is_free(consumer):
                    yield self._edge(producer, consumer, known)

    def _edge(self, producer: Op, consumer: Op, known: Mapping[tuple[Op, Op], Reason]) -> EdgeStory:
        labels = self.frame.title, self.frame.label(producer), self.frame.label(consumer)
        both = self.owner.get(producer)
        inside = both is not None and both is self.owner.get(consumer)
        if both is not None and inside and both.refused is None:
            return EdgeStory(*labels, None, pattern=both.name)
        why = both.refused if both is not None and inside else known[producer, consumer]
        assert why is not None
        return EdgeStory(*labels, say_which(why, producer, consumer), remedy(why))

    # -- opaque ops -----------------------------------------------------------------------------------

    def opaque(self) -> Iterator[OpaqueStory]:
        """And loops and sorts that could not be kernels."""
        given = self.plan.frame, self.seen.context
        tried = {**find_recurrences(*given).refused, **find_sorts(*given).refused}
        for op in self.plan.frame.ops:
            at, why = (self.frame.title, self.frame.label(op)), why_opaque(op)
            if op in tried and op not in self.owner:
                yield OpaqueStory(*at, str(tried[op]), remedy(tried[op]))
            elif why is not None and op not in self.owner:
                yield OpaqueStory(*at, why, REMEDIES["opaque"])


def _verdict(pattern: FusionPattern, context: Context) -> str:
    """Both estimates, which the gate compares; and that a race thought otherwise."""
    found = gate.judge(pattern, context.profile)
    ours, xla = found.ours, found.xla
    expected = found.is_within(gate.MARGINS[context.options.tune])
    raced = "; raced: the function is faster with it" if context.bold and not expected else ""
    return (
        f"modelled {found.ours_seconds * 1e6:.1f} us ({ours.nbytes / 1e6:.2f} MB) against XLA's"
        f" {found.xla_seconds * 1e6:.1f} us ({xla.nbytes / 1e6:.2f} MB, {xla.kernels}){raced}"
    )
