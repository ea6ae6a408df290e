"""Sorts that a kernel does in fewer steps than XLA's library: one kernel each, on a CPU.

%v, %i = sort %x, iota (compare LT, TOTALORDER)    ->    {iota, sort}

XLA:CPU calls the comparison for every two items that it compares, 15 ns each. A kernel makes words of the
keys, and moves them by their digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Graph, Op
from jstitch.ir.reason import Reason
from jstitch.options import PRESETS
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, make_pattern, with_constants
from jstitch.passes.base.sort_order import may_sort
from jstitch.passes.fuse.gate import judge, margin_of
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel

SORTS = "find_sorts"
"""The origin of a sort's pattern."""


@dataclass(frozen=True)
class Sorts:
    """patterns: of sorts that are kernels. refused: others -> why they are none."""

    patterns: Sequence[FusionPattern] = ()
    refused: Mapping[Op, Reason] = field(default_factory=dict)


def find_sorts(frame: Graph, context: Context) -> Sorts:
    """Every sort of the frame that a kernel can be, and every `top_k`."""
    options = context.options
    if context.machine.device is not None or "sorts" in options.without or options.planner in PRESETS:
        return Sorts()
    found: list[FusionPattern] = []
    refused: dict[Op, Reason] = {}
    producers = frame.producers()
    for op in filter(may_sort, frame.ops):
        pattern = make_pattern(frame, with_constants([op], producers), SORTS)
        why = _why_not(pattern, context)
        if why is None:
            found.append(pattern)
        else:
            refused[op] = why
    return Sorts(tuple(found), refused)


def _why_not(pattern: FusionPattern, context: Context) -> Reason | None:
    """Why it stays XLA's."""
    try:
        lower_kernel("sort", pattern.ops, pattern.inputs, pattern.outputs, context.profile)
    except CannotLowerError as error:
        return error.reason
    margin = margin_of(context)
    verdict = judge(pattern, context.profile)
    return None if math.isinf(margin) or verdict.is_within(margin) else verdict.reason(margin)
