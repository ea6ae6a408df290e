"""What a report shows, as JSON has it: from what was observed of a program, its plan, and its explanation.

{"calls": [{"frames": [...]}], "kernels": [...], "reasons": [...], "strings": [...], "totals": {...}}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jstitch.frontend.graph_picture import COLOURS
from jstitch.frontend.observe import Observed
from jstitch.inspection.call_plan import CallPlan
from jstitch.inspection.explain import explain_program
from jstitch.inspection.explanation import CallStory
from jstitch.inspection.inspected import Inspected
from jstitch.inspection.json_fields import json_fields
from jstitch.inspection.labels import frames_of
from jstitch.inspection.plan_diff import plan_diff
from jstitch.inspection.program_plan import ProgramPlan, plan_program
from jstitch.inspection.remedies import remedy
from jstitch.inspection.report.frame_data import frame_data
from jstitch.inspection.report.kernel_data import kernel_data, kernels_by_ops, schedules_of
from jstitch.inspection.report.texts import Strings, shorten, source_lines
from jstitch.ir.graph import Op
from jstitch.ir.visible import visible
from jstitch.passes.base.plan import FusionPattern, Reason, is_free
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.plan_file import PlanFile

SCHEMA = 1
Step = Callable[[str], None]


def report_data(
    name: str,
    seen: Inspected,
    *,
    lines: bool = False,
    saved: PlanFile | None = None,
    step: Step = lambda what: None,
) -> dict[str, Any]:
    """The data of a page about these calls, which were observed with their kernels.

    lines: show lines of the files that ops name as their source; only for programs whose author may have
    them read. saved: a plan that this one is compared with. step: is told what is looked at next.
    """
    plan = plan_program(name, seen.calls, seen.records, step)
    stories = explain_program(name, seen, step).calls
    made = _Made()
    calls = [_call(*of, made, step) for of in zip(seen.calls, plan.calls, stories, strict=False)]
    calls += [_described(story, []) for story in stories[len(calls) :]]
    shown = {
        "schema": SCHEMA,
        "version": _version(),
        "name": visible(name),
        "target": plan.target,
        "planner": plan.planner,
        "colours": list(COLOURS),
        "totals": _totals(plan),
        "calls": calls,
        "kernels": made.kernels,
        "reasons": made.reasons,
        "strings": made.strings.all,
        "lines": _lines(made.strings.all) if lines else {},
        "saved": [] if saved is None else [*_saved(plan, saved)],
    }
    return {key: finite(value) for key, value in shown.items()}


@dataclass(eq=False)
class _Made:
    """What all frames share, by number."""

    kernels: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[dict[str, Any]] = field(default_factory=list)
    strings: Strings = field(default_factory=Strings)
    numbers: dict[Reason, int] = field(default_factory=dict)

    def reason(self, why: Reason) -> int:
        if why not in self.numbers:
            self.numbers[why] = len(self.reasons)
            said = {"rule": why.rule, "reason": shorten(str(why)), "remedy": remedy(why)}
            self.reasons.append({**json_fields(why), **said})
        return self.numbers[why]


def _call(seen: Observed, plan: CallPlan, story: CallStory, made: _Made, step: Step) -> dict[str, Any]:
    built, stories = kernels_by_ops(seen.built), iter(story.patterns)
    frames = []
    for frame, planned, of in zip(frames_of(seen), seen.plans, plan.frames, strict=True):
        step(f"{seen.name}: drawing {frame.title}")
        owner: dict[Op, int] = {}
        schedules: dict[Op, str] = {}
        for pattern, p in zip(absorb_updates(planned, seen.context).patterns, of.patterns, strict=True):
            data = kernel_data(pattern, p, next(stories), built.get(pattern.ops), seen.profile)
            if p.kernel is not None:
                schedules.update(schedules_of(pattern, p.kernel.schedule, seen.profile))
            owner.update(dict.fromkeys(_held(pattern), len(made.kernels)))
            made.kernels.append({"number": len(made.kernels), **data})
        why = {r: made.reason(r.why) for r in planned.refusals}
        frames.append(frame_data(frame, planned, owner, schedules, why, made.strings))
    return _described(story, frames)


def _described(story: CallStory, frames: list[dict[str, Any]]) -> dict[str, Any]:
    """frames: none of a call that did not get as far as the pipeline."""
    return {"name": shorten(story.name), "reason": story.reason, "remedy": story.remedy, "frames": frames}


def _held(pattern: FusionPattern) -> Iterator[Op]:
    """Ops that the pattern's kernel makes, updates included, and that nobody else has a copy of."""
    made = (op for u in pattern.updates for op in (u.op, *(u.chain if u.alone else ())))
    yield from (op for op in (*pattern.ops, *made) if not is_free(op))


def _totals(plan: ProgramPlan) -> dict[str, Any]:
    """Of the patterns that become kernels; launches and bytes of other ops are XLA's either way."""
    xla, ours = plan.xla, plan.ours
    return {
        "kernels": len(plan.patterns),
        "inside": sum(p.size for p in plan.patterns),
        "ops": sum(frame.ops for frame in plan.frames),
        "xla": json_fields(xla),
        "ours": json_fields(ours),
        "ratio": xla.seconds / ours.seconds if ours.seconds else None,
    }


def _lines(strings: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    found = ((text, source_lines(text)) for text in strings)
    return {text: lines for text, lines in found if lines}


def _saved(plan: ProgramPlan, saved: PlanFile) -> Iterator[str]:
    """What became of a saved plan, and what differs from it."""
    yield from (f"{call.name}: {line}" for call in plan.calls for line in call.pinned)
    yield from plan_diff(saved, plan.pins()) or ("the plan is the saved one",)


def _version() -> str:
    try:
        return version("jstitch")
    except PackageNotFoundError:
        return ""


def finite(value: Any) -> Any:
    """Numbers that JSON does not have become null."""
    match value:
        case dict():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
