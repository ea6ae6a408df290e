"""Cut patterns at the edges whose composition scheme is switched off (FS-2021 section 4.1, for ablations).

    {sum, rsqrt, multiply} without "warp" and "block"     ->     {sum}, {rsqrt, multiply}

thread    an op's element goes to a consumer in a register
warp      a row's sum goes to the row's threads by shuffles, where rows have several threads
block     a row's sum goes to them through the arena
packing   patterns that do not depend on each other share a kernel (`pack_patterns`)
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from jstitch.ir.graph import Op
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason, is_free, make_patterns, with_constants
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.fuse.keep_patterns import cut_edges

EVERY = frozenset(("thread", "warp", "block"))
Allowed = Callable[[Op], bool]


def restrict_schemes(
    plan: FusionPlan, context: Context, *, schemes: tuple[str, ...] | None = None
) -> FusionPlan:
    """The plan with patterns that need no scheme but these, None = those that the options name.

    It stays acyclic: pieces follow each other.
    """
    schemes = context.options.schemes if schemes is None else schemes
    rows_shared = context.profile.most_threads > 1
    allowed = partial(_allowed, schemes=schemes, rows_shared=rows_shared)
    if EVERY <= set(schemes):
        return plan
    kept: list[FusionPattern] = []
    for pattern in plan.patterns:
        pieces = _pieces(pattern, allowed)
        kept += [pattern] if len(pieces) == 1 else make_patterns(plan.frame, pieces, "restrict_schemes")
    return cut_edges(plan, kept, lambda producer, _: _why(producer, schemes, allowed, rows_shared))


def _why(producer: Op, schemes: Collection[str], allowed: Allowed, rows_shared: bool) -> Reason:
    """Of an edge that was cut, by its own scheme or by that of another way from producer to consumer."""
    reduces = is_reduction(producer)
    what = "a reduction's result" if reduces else "an element"
    if allowed(producer):
        what, reduces = "what else the consumer waits for", not reduces
    shared = "'block' or 'warp'" if rows_shared else "'block'"
    on = ", ".join(schemes) or "none"
    wanted = shared if reduces else "'thread'"
    return Reason("scheme", f"to share {what} a kernel needs {wanted}; composition schemes are {on}")


def _pieces(pattern: FusionPattern, allowed: Allowed) -> list[list[Op]]:
    """Ops by the number of cuts before them, each piece with the free ops that it uses."""
    producers = {v: op for op in pattern.ops for v in op.results}
    piece: dict[Op, int] = {}
    found: dict[int, list[Op]] = {}
    for op in pattern.ops:
        if is_free(op):
            continue
        before = (producers[v] for v in op.operands if v in producers and producers[v] in piece)
        piece[op] = max((piece[p] + (not allowed(p)) for p in before), default=0)
        found.setdefault(piece[op], []).append(op)
    return [with_constants(ops, producers) for ops in found.values()]


def _allowed(producer: Op, schemes: Collection[str], rows_shared: bool) -> bool:
    """Whether a consumer may be in the producer's kernel. rows_shared: rows have several threads."""
    if not is_reduction(producer):
        return "thread" in schemes
    return "block" in schemes or ("warp" in schemes and rows_shared)
