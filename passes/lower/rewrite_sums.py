"""The forms in which a pattern computes its sums, before its ops are grouped: for lowering and for its cost.

{x, sum(x * s)}  ->  {x, sum(x) * s}  ->  sums in one pass over rows  ->  sums of squares by blocks of rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jstitch.ir.graph import Op, Value
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.block_variances import block_variances
from jstitch.passes.lower.factor_sums import factor_sums
from jstitch.passes.lower.one_pass_sums import one_pass_sums

Rewrite = Callable[[Sequence[Op], Sequence[Value], Profile], Sequence[Op]]
"""Ops in program order, what they must make, the target's profile -> ops that make the same."""


def rewrite_sums(ops: Sequence[Op], needed: Sequence[Value], profile: Profile) -> Sequence[Op]:
    """The ops (in program order) with their sums in their best form. needed: values they must make."""
    for _, rewrite in SUMS:
        ops = rewrite(ops, needed, profile)
    return ops


SUMS: tuple[tuple[Callable[..., object], Rewrite], ...] = (
    (factor_sums, lambda ops, needed, profile: factor_sums(ops, needed)),
    (one_pass_sums, one_pass_sums),
    (block_variances, block_variances),
)
"""In the order in which they run; each with the function that explains it."""
