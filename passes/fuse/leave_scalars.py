"""A few numbers that no loop works on stay XLA's on a CPU, whatever the number of their ops.

    32 sums and tanhs of scalars        a kernel of 32 results: 60 us      XLA:CPU: 25 us, in order

XLA:CPU runs kernels of such small buffers one after another, for less than a tenth of a microsecond each. A
call among them hands the program to its pool of threads, which takes as long as hundreds of them.
"""

from __future__ import annotations

from functools import partial
from operator import is_not

from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, Reason
from jstitch.passes.cost.call_seconds import call_seconds
from jstitch.passes.cost.cost_model import xla_kernels
from jstitch.passes.fuse.hold_together import demanded
from jstitch.passes.fuse.plan_tree import Planned, leave

RULE = "scalars"
SMALL = 512  # bytes of a buffer: XLA:CPU's own limit for running kernels in order
HANDED_OVER = 2e-5  # seconds until the pool of threads has run what would have run in order
WHY = (
    "its values have {small} bytes each at most: XLA runs its {count} kernels in order, in {{bound}} us as"
    " modelled, and a call among them takes {{found}} us"
)


def leave_scalars(tree: Planned, context: Context) -> Planned:
    """The plans without patterns of small values in straight code; loops are judged as a whole."""
    if context.machine.device is not None:
        return tree
    for pattern in tree.plan.patterns:
        reason = _why(pattern, context)
        if reason is not None:
            tree = leave(tree, reason, partial(is_not, pattern))
    return tree


def _why(pattern: FusionPattern, context: Context) -> Reason | None:
    """Why XLA is quicker; None where it may not be."""
    values = (*pattern.inputs, *(v for op in pattern.ops for v in op.results))
    if demanded(pattern) is not None or any(v.tensor.nbytes > SMALL for v in values):
        return None
    machine, kernels = context.machine, len(xla_kernels(pattern, context.machine))
    theirs = kernels * (machine.in_order + machine.queued)
    ours = HANDED_OVER + call_seconds(pattern, context.profile)
    text = WHY.format(small=SMALL, count=kernels)
    return Reason(RULE, text, ours * 1e6, theirs * 1e6) if ours >= theirs else None
