"""Lower a pattern by one template after another and keep the best kernel (FS-2019, Algorithm 3).

    for template in templates:  plan memory, emit loops  ->  latency-evaluator  ->  the fastest

A template that leads to no kernel (its tiles find no room, its rows cannot be shared so) is passed over.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.kernel_ir import Kernel, StripLane
from jstitch.ir.graph import Op, Value
from jstitch.ir.reason import Reason
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import F32_BYTES
from jstitch.passes.base.plan import Update
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.apply_template import TemplateError
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.enumerate_templates import enumerate_templates
from jstitch.passes.lower.fill_rounds import GAIN, fill_rounds
from jstitch.passes.lower.fit_lane import ROOM
from jstitch.passes.lower.form_pattern import form_pattern
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.rewrite_ops import speaks_of
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.passes.schedule.latency import kernel_latency
from jstitch.template import Template, parse_template

ROOMY = 0.7  # times as long, from which on tiles may leave the near cache: they take memory
ROWS = 0.35  # times as long, from which on rows replace strips that are usually quicker than modelled

Lower = Callable[[Template], Kernel]
Evaluate = Callable[[Kernel], float]


@dataclass(frozen=True, eq=False)
class Choice:
    """The best kernel, its modelled seconds and those of the first choice, and how many were tried."""

    kernel: Kernel
    seconds: float
    first_seconds: float
    tried: int


def choose_template(
    first: Kernel,
    templates: Iterable[Template],
    lower: Lower,
    evaluate: Evaluate,
    limit: int,
    gain: float = 0.0,
) -> Choice:
    """The best of `first` and of at most `limit` kernels in all; ties go to the earlier one.

    gain: the share of the earlier one's seconds by which a later one is to be faster.
    evaluate: seconds of a kernel; may raise NoRoom or CannotBuildError for one that does not fit the target.
    """
    seconds = _seconds(first, evaluate)
    best = Choice(first, seconds, seconds, 1)
    others = (t for t in templates if t != first.template)
    for tried, template in enumerate(itertools.islice(others, max(0, limit - 1)), 2):
        found = _try(template, lower, evaluate)
        kernel, cost = found or (best.kernel, best.seconds)
        if cost >= (1 - gain) * best.seconds:
            kernel, cost = best.kernel, best.seconds
        best = Choice(kernel, cost, seconds, tried)
    return best


def _as_asked(template: Template, lower: Lower) -> Kernel:
    """The kernel with exactly these schedules. Raises CannotLowerError, by the first it has not."""
    try:
        kernel = lower(template)
    except TemplateError as error:
        raise CannotLowerError(Reason("template", str(error))) from None
    made = {s.op: s for s in kernel.template.schedules} if kernel.template else {}
    for asked in template.schedules:
        found = made.get(asked.op)
        if found != asked:
            text = f"it would be {found}" if found else f"{asked.op} has no loops of its own"
            raise CannotLowerError(Reason("template", f"{asked} is asked for, {text}"))
    return kernel


def _try(template: Template, lower: Lower, evaluate: Evaluate) -> tuple[Kernel, float] | None:
    try:
        kernel = lower(template)
    except (CannotLowerError, TemplateError):
        return None
    return kernel, _seconds(kernel, evaluate)


def _seconds(kernel: Kernel, evaluate: Evaluate) -> float:
    try:
        return evaluate(kernel)
    except (NoRoom, CannotBuildError):
        return math.inf


def _by_columns_or_rows(
    lower: Callable[[], Kernel], in_rows: Callable[[], Kernel], evaluate: Evaluate, trusted: bool
) -> Kernel:
    """The kernel, or the one of rows where that of columns finds no room for its strips, or takes longer.

    trusted: whether the evaluator can tell small differences. On CPUs it cannot: measured, strips are the
    faster of the two nearly wherever `choose_columns` finds any, rows where they are modelled far quicker.
    """
    try:
        kernel = lower()
    except CannotLowerError:
        return in_rows()
    if not _owns_columns(kernel):
        return kernel
    seconds = _seconds(kernel, evaluate) * (1.0 if trusted else ROWS)
    try:
        rows = in_rows()
    except CannotLowerError:
        return kernel
    return rows if _seconds(rows, evaluate) < seconds else kernel


def _with_more_room(
    kernel: Kernel, lower: Callable[[], Kernel], profile: Profile, evaluate: Evaluate
) -> Kernel:
    """The kernel, or the one that keeps what finds no room in a core's cache in memory, where that pays."""
    lanes = (lane for phase in kernel.phases for lane in phase.lanes)
    if all(lane.work * F32_BYTES <= lane.rows * profile.arena_bytes for lane in lanes):
        return kernel
    try:
        other = lower()
    except CannotLowerError:
        return kernel
    return other if _seconds(other, evaluate) < ROOMY * _seconds(kernel, evaluate) else kernel


def _owns_columns(kernel: Kernel) -> bool:
    return any(lane.owns for phase in kernel.phases for lane in phase.lanes)


def _has_strips(kernel: Kernel) -> bool:
    """Whether rows are cut into strips of columns, whose number is `in_strips`' to choose."""
    return any(isinstance(lane, StripLane) for phase in kernel.phases for lane in phase.lanes)


def best_kernel(
    name: str,
    ops: Sequence[Op],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    context: Context,
    updates: Sequence[Update] = (),
    chosen: Template | None = None,
) -> Kernel:
    """`lower_kernel` as the options say, by the best of as many templates as they say.

    chosen: the schedules that a planner chose, where they can be had. Raises CannotLowerError when the first
    fails.
    """
    options, profile = context.options, context.profile
    lower = partial(
        lower_kernel,
        *(name, ops, inputs, outputs),
        arena_bytes=options.arena_bytes,
        updates=updates,
        share="sharing" not in options.without,
        shrink="shrinking" not in options.without,
    )
    rows_only = replace(profile, columns=False)

    def by_template(template: Template) -> Kernel:
        return lower(profile, template=template)

    if options.template is not None:
        asked = parse_template(options.template)
        if speaks_of(asked, ops, outputs, profile, updates):
            return _as_asked(asked, by_template)

    def modelled(kernel: Kernel) -> float:
        return kernel_latency(kernel, context).seconds

    wanted = None if chosen is None else _try(chosen, by_template, modelled)
    if wanted is not None and wanted[1] < math.inf:
        return wanted[0]
    ways = partial(lower, profile), partial(lower, rows_only)
    first = _by_columns_or_rows(*ways, modelled, trusted=profile.machine.device is not None)
    if profile.machine.device is None and options.arena_bytes is None and "shrinking" not in options.without:
        first = _with_more_room(first, partial(lower, replace(profile, arena_bytes=ROOM)), profile, modelled)
    if first.template is None or "templates" in options.without:
        return first
    best = first
    if options.tried > 1:
        shaped = profile if _owns_columns(first) else rows_only  # the parts that its template names
        others = enumerate_templates(form_pattern(ops, outputs, shaped, updates), first.template, shaped)
        best = choose_template(first, others, by_template, modelled, options.tried).kernel
    rounds = list(fill_rounds(best.template, profile)) if best.template is not None else []
    if not rounds or _has_strips(schedule_kernel(best, context)):
        return best

    def scheduled(kernel: Kernel) -> float:
        return modelled(schedule_kernel(kernel, context))

    return choose_template(best, rounds, by_template, scheduled, 1 + len(rounds), GAIN).kernel
