"""Work on scalars in straight code stays XLA's on a CPU: a call among XLA's kernels costs more than it saves.

    32 sums and tanhs of scalars            XLA:CPU: 25 us, in order       with a kernel of 32 results: 60 us

XLA:CPU runs kernels of small enough buffers one after another, for less than a tenth of a microsecond each. A
call among them costs 10 to 60 us more; why is not known. Where arrays are made, be they of two numbers,
kernels are worth it. Kernels inside loops are judged with the loop.
"""

from __future__ import annotations

from functools import partial
from operator import is_not

from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, Reason
from jstitch.passes.cost.call_seconds import call_seconds
from jstitch.passes.cost.cost_model import xla_kernels
from jstitch.passes.fuse.find_recurrences import RECURRENCE
from jstitch.passes.fuse.hold_together import is_fixed
from jstitch.passes.fuse.plan_tree import Planned, leave

RULE = "small"
AMONG = 2e-5  # seconds that a call costs among such kernels, besides its own
WHY = "work on scalars: modelled {{bound}} us as XLA's {count} kernels, and {{found}} us as a call among such"


def leave_small(tree: Planned, context: Context) -> Planned:
    """The plans without patterns of scalars in straight code."""
    if context.machine.device is not None:
        return tree
    for pattern in tree.plan.patterns:
        reason = _why(pattern, context)
        if reason is not None:
            tree = leave(tree, reason, partial(is_not, pattern))
    return tree


def _why(pattern: FusionPattern, context: Context) -> Reason | None:
    """Why XLA is quicker; None where it may not be."""
    arrays = any(v.tensor.size > 1 for op in pattern.ops for v in op.results)
    if is_fixed(pattern) or pattern.origin == RECURRENCE or arrays:
        return None
    machine, kernels = context.machine, len(xla_kernels(pattern, context.machine))
    theirs = kernels * (machine.in_order + machine.queued)
    ours = AMONG + call_seconds(pattern, context.profile)
    return Reason(RULE, WHY.format(count=kernels), ours * 1e6, theirs * 1e6) if ours >= theirs else None
