"""What a plan is worth by the latency-evaluator, which judges FS-2021's three beams (section 5.3)."""

from __future__ import annotations

import math

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan
from jstitch.passes.explore.savings import rest_seconds
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.schedule.latency import kernel_latency


def latency_seconds(plan: FusionPlan, context: Context) -> float:
    """Seconds of the plan's kernels, as they are lowered, and of XLA's for the other ops of the frame."""
    return sum(_seconds(p, context) for p in plan.patterns) + rest_seconds(plan, context)


def _seconds(pattern: FusionPattern, context: Context) -> float:
    try:
        kernel = lower_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, context.profile)
        return kernel_latency(kernel, context).seconds
    except (CannotLowerError, CannotBuildError, NoRoom):
        return math.inf
