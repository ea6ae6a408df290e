"""Debug lines of the logger `jstitch.fusion`: kernels with their source lines, and why others are none."""

from __future__ import annotations

import logging
from collections import Counter

from jstitch.ir.graph import Op
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason, is_free
from jstitch.runtime.telemetry import logger

_LOG = logger("fusion")


def log_plan(plan: FusionPlan) -> None:
    """Why edges are in no kernel, each reason once."""
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    counts = Counter((refusal.rule, refusal.reason) for refusal in plan.refusals)
    first = {(r.rule, r.reason): r.consumer for r in reversed(plan.refusals)}
    for why, times in counts.items():
        rule, reason = why
        _LOG.debug("not fused, %s: %s (%d edges%s)", rule, reason, times, _at(first[why]))


def log_kernel(name: str, pattern: FusionPattern) -> None:
    """A kernel that was made."""
    ops = sum(not is_free(op) for op in pattern.ops)
    _LOG.debug("kernel %s: %d ops, by %s%s", name, ops, pattern.origin, _at(*pattern.ops))


def log_refused(name: str, pattern: FusionPattern, reason: Reason) -> None:
    """A kernel that was not."""
    _LOG.debug("%s stays XLA's, %s: %s%s", name, reason.rule, reason, _at(*pattern.ops))


def _at(*ops: Op) -> str:
    """The first of the ops' lines."""
    line = next((op.loc for op in ops if op.loc and not is_free(op)), "")
    return f", at {line}" if line else ""
