"""The plan of a program in numbers: patterns, launches and bytes before and after, memory, modelled time.

plan_program("step", observe_function(step, (params, batch), {}, options, kernels=False))   ->   ProgramPlan

'XLA' is what the same ops cost as XLA's own kernels, by the model that the gate decides with; ops that no
pattern holds are XLA's on both sides and in no number. A loop's body counts once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from jstitch.frontend.observe import Observed
from jstitch.inspection.call_plan import CallPlan, Cost, FramePlan, PatternPlan, target_name
from jstitch.inspection.json_fields import json_fields
from jstitch.inspection.kernel_facts import KernelFacts, KernelMaker
from jstitch.inspection.labels import Frame, frames_of, source_line
from jstitch.inspection.pin_plan import pin_plan
from jstitch.inspection.shown import Paged, Printed
from jstitch.ir.visible import visible
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason, is_free
from jstitch.passes.chunk.chunk_rows import said_of
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.gate import judge
from jstitch.passes.lower.name_kernel import KernelNames, name_kernel
from jstitch.plan_file import PlanFile
from jstitch.runtime.report import Record

Step = Callable[[str], None]


@dataclass(frozen=True, repr=False)
class ProgramPlan(Paged):
    """Every stitched call of a program. Prints as a table, alike patterns in one line.

    pins: what is saved of it.
    """

    name: str
    target: str
    planner: str
    calls: tuple[CallPlan, ...]
    pins: Callable[[], PlanFile] = field(default=PlanFile.nothing, repr=False, compare=False)

    @property
    def frames(self) -> tuple[FramePlan, ...]:
        return tuple(frame for call in self.calls for frame in call.frames)

    @property
    def patterns(self) -> tuple[PatternPlan, ...]:
        """Those that become kernels."""
        return tuple(p for frame in self.frames for p in frame.patterns if p.kernel is not None)

    @property
    def xla(self) -> Cost:
        """Of the patterns' ops as XLA's kernels."""
        return sum((p.xla for p in self.patterns), Cost())

    @property
    def ours(self) -> Cost:
        return sum((p.ours for p in self.patterns), Cost())

    def to_json(self) -> dict[str, Any]:
        """All of it, and totals, as JSON has them; seconds and bytes.

        {"name", "target", "planner", "totals": {"patterns": number, "xla": cost, "ours": cost},
         "calls": [{"name", "reason": sentence or null, "pinned": [sentence], "frames": [frame]}]}
        cost:    {"launches", "nbytes", "seconds"}
        frame:   {"title", "ops": number, "left": {op: number}, "patterns": [pattern], "chunks": [sentence]}
        pattern: {"name", "ops": {op: number}, "where", "origin", "xla": cost, "ours": cost,
                  "kernel": the fields of `KernelFacts` or null, "refused": why or null}
        why:     {"rule", "reason": a sentence, "found": number or null, "bound": number or null}
        """
        totals = {"patterns": len(self.patterns), "xla": self.xla, "ours": self.ours}
        named = {name: getattr(self, name) for name in ("name", "target", "planner", "calls")}
        return json_fields({**named, "totals": totals})  # type: ignore[no-any-return]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file for `CompileOptions(plan=...)`, as text to read and to compare.

        Raises OSError where it cannot be written; then nothing is. ValueError for what was pickled or copied.
        """
        from jstitch.inspection.write_plan import save_plan

        if "pins" not in self.__dict__:
            raise ValueError("Expected what jstitch.plan returned, found a copy of it; make it again.")
        save_plan(self.pins(), Path(path), self.name)

    def __getstate__(self) -> dict[str, Any]:
        """Without what holds the program."""
        return {name: value for name, value in super().__getstate__().items() if name != "pins"}

    def __rich__(self) -> Printed:
        from jstitch.inspection import table

        found = table.build(self.title, _HEADS, self._rows())
        found.caption = "XLA -> ours, by the cost model; loop bodies count once"
        return found

    def notes(self) -> Iterator[str]:
        """Calls and patterns that stay XLA's, and ops outside patterns, in lines."""
        yield from (f"{call.name}: XLA's own kernels: {call.reason}" for call in self.calls if call.reason)
        for call in self.calls:
            yield from (f"{call.name}: {line}" for line in call.pinned)
        for frame in self.frames:
            for p in frame.patterns:
                if p.refused is not None:
                    yield f"{p.name} stays XLA's: {p.refused.rule}: {p.refused}"
            yield from frame.chunks
        left = sum((Counter(frame.left) for frame in self.frames), Counter[str]())
        if left:
            yield f"in no pattern: {_counts(left.most_common())}"

    @property
    def title(self) -> str:
        ops = sum(frame.ops for frame in self.frames)
        inside = sum(p.size for p in self.patterns)
        ratio = f", {self.xla.seconds / self.ours.seconds:.2f}x" if self.ours.seconds else ""
        return (
            f"{self.name} for {self.target}, planner {self.planner}: {len(self.patterns)} kernels of"
            f" {inside} of {ops} ops{ratio} (modelled)"
        )

    def _rows(self) -> Iterator[tuple[str, ...]]:
        alike: dict[object, list[PatternPlan]] = {}
        for p in self.patterns:
            key = (_counts(p.ops.items()), p.xla, p.ours, p.kernel)
            alike.setdefault(key, []).append(p)
        for same in sorted(alike.values(), key=lambda same: -sum(p.ours.seconds for p in same)):
            yield _row(same)
        counts = str(len(self.patterns)), str(sum(p.size for p in self.patterns))
        yield ("all", *counts, "", *_costs(self.xla, self.ours), "", "")


_HEADS = ("kernel", "times", "ops", "schemes", "launches", "MB", "us", "arena", "occupancy")


def _row(same: Sequence[PatternPlan]) -> tuple[str, ...]:
    """One of several that are alike; times and bytes of all."""
    first, kernel = same[0], same[0].kernel
    assert kernel is not None
    xla, ours = sum((p.xla for p in same), Cost()), sum((p.ours for p in same), Cost())
    held = "-" if kernel.occupancy is None else f"{kernel.occupancy:.0%}"
    memory = kernel.shared_bytes if kernel.launches else kernel.arena_bytes
    schemes = " ".join(kernel.schemes)
    head = (first.name, str(len(same)), str(first.size), schemes)
    return (*head, *_costs(xla, ours), str(memory), held)


def _costs(xla: Cost, ours: Cost) -> tuple[str, str, str]:
    return (
        f"{xla.launches} -> {ours.launches}",
        f"{xla.nbytes / 1e6:,.2f} -> {ours.nbytes / 1e6:,.2f}",
        f"{xla.seconds * 1e6:,.1f} -> {ours.seconds * 1e6:,.1f}",
    )


def _counts(items: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {name.rpartition('.')[2]}" for name, count in items)


# -- making one -------------------------------------------------------------------------------------------


def plan_program(
    name: str,
    seen: Sequence[Observed],
    records: Sequence[Record] = (),
    step: Step = lambda what: None,
) -> ProgramPlan:
    """The plan of all calls that were observed. records: of calls that may not have got so far.

    step: is told what is looked at next.
    """
    names = KernelNames()
    calls = [_call(call, names, step) for call in seen]
    stayed = [CallPlan(r.name, (), r.reason) for r in records if "observed" not in r.details and r.reason]
    planner = seen[0].options.planner if seen else "none"
    pins = partial(pin_plan, calls, tuple(seen))
    return ProgramPlan(visible(name), target_name(seen), planner, (*calls, *stayed), pins)


def _call(seen: Observed, names: KernelNames, step: Step) -> CallPlan:
    maker, refused = KernelMaker(seen.context), dict(seen.refused)
    frames = []
    for frame, plan in zip(frames_of(seen), seen.plans, strict=True):
        step(f"{seen.name}: {frame.title}")
        patterns = absorb_updates(plan, seen.context).patterns
        made = tuple(_pattern(p, names, seen.name, maker, refused.get(p)) for p in patterns)
        frames.append(_frame(frame, plan, made))
    failed = "the pipeline did not end" if seen.stitched is None else None
    return CallPlan(seen.name, tuple(frames), failed, seen.pinned)


def _frame(frame: Frame, plan: FusionPlan, patterns: tuple[PatternPlan, ...]) -> FramePlan:
    inside = {op for p in plan.patterns for op in p.ops}
    left = Counter(op.name for op in plan.frame.ops if op not in inside and not is_free(op))
    ops = sum(not is_free(op) for op in plan.frame.ops)
    return FramePlan(frame.title, ops, dict(left.most_common()), patterns, said_of(plan.frame))


def _pattern(
    pattern: FusionPattern, names: KernelNames, call: str, maker: KernelMaker, refused: Reason | None
) -> PatternPlan:
    made, verdict = maker.make(pattern), judge(pattern, maker.context.profile)
    kernel = made if isinstance(made, KernelFacts) else None
    why = refused or (made if isinstance(made, Reason) else None)
    launches = 0 if kernel is None else max(1, len(kernel.launches))
    xla, ours = verdict.xla, verdict.ours
    ops = Counter(op.name for op in pattern.ops if not is_free(op))
    return PatternPlan(
        names.unique(name_kernel(pattern, call)),
        dict(ops.most_common()),
        source_line(pattern.ops),
        pattern.origin,
        Cost(round(xla.launches), xla.nbytes, verdict.xla_seconds),
        Cost(launches, ours.nbytes, verdict.ours_seconds),
        kernel if why is None else None,
        why,
    )
