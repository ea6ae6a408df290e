"""Kernels without which the program was faster, in a race in the background, stay XLA's.

    race: 1,155 us with three kernels, 695 us without max_row_0        max_row_0 stays XLA's from then on

Last of all that changes plans, so that the other kernels are those that were raced.
"""

from __future__ import annotations

from dataclasses import replace

from jstitch.passes.base.context import Context, Lost
from jstitch.passes.base.op_keys import kernel_key
from jstitch.passes.base.plan import FusionPattern, Reason
from jstitch.passes.fuse.absorb_updates import absorb_updates, contracted
from jstitch.passes.fuse.plan_tree import Planned, leave


def leave_lost(tree: Planned, context: Context) -> Planned:
    """The plans, those of inner frames too, without kernels that `context.lost` names."""
    if not context.lost.kernels:
        return tree
    inner = {region: leave_lost(below, context) for region, below in tree.inner.items()}
    tree = replace(tree, inner=inner)
    whole = absorb_updates(tree.plan, context).patterns
    pairs = zip(tree.plan.patterns, whole, strict=True)
    lost = {pattern: why for pattern, made in pairs if (why := _why(made, context.lost))}
    for why in dict.fromkeys(lost.values()):
        tree = leave(tree, why, lambda pattern, why=why: lost.get(pattern) != why)  # type: ignore[misc]
    return tree


def _why(pattern: FusionPattern, lost: Lost) -> Reason | None:
    return lost.why(kernel_key(*contracted(pattern)))
