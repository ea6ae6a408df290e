"""Chains of two products and what lies between them, for one kernel (FS-2018 figure 3; MCFuser).

    %s = dot_general %q, %k;  %p = softmax of %s's rows;  %o = dot_general %p, %v   ->   {%s ... %p, %o}

Each row of the first product's result is all that a row of the second one's needs: both are made a few rows
at a time, and what lies between them never leaves a core's cache. What a chain is, is asked of the kernel
that it would be: one phase, in which every product goes by tiles of registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op
from jstitch.options import PRESETS
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, Reason, is_free, make_pattern, with_constants
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.cost.cost_model import xla_cost, xla_kernels
from jstitch.passes.cost.structure import per_structure
from jstitch.passes.fuse.chain_search import MOST_OPS, ChainSearch
from jstitch.passes.fuse.convexity import waits_for_itself
from jstitch.passes.fuse.gate import MARGINS, judge
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.write_products import is_product
from jstitch.passes.schedule.kernel_passes import schedule_kernel

CHAIN = "find_chains"
"""The origin of a chain's pattern."""
MOST_PRODUCTS = 16  # of a chain
WRITES = "its kernel would write {found} bytes, XLA's own {bound}: they make again what is cheap"
ALONE = Reason(
    "alone", f"no other product's rows become its own within {MOST_OPS} ops: left to XLA's library"
)


@dataclass(frozen=True)
class Chains:
    """patterns: none of which share an op. refused: other products -> why they are in no chain."""

    patterns: Sequence[FusionPattern] = ()
    refused: Mapping[Op, Reason] = field(default_factory=dict)


def find_chains(frame: Graph, context: Context) -> Chains:
    """Chains that one kernel can make: those with the largest values first.

    On a CPU; FusionStitching as published has none.
    """
    options = context.options
    left = "chains" in options.without or options.planner in PRESETS
    if context.machine.device is not None or left:
        return Chains()
    search = ChainSearch.of(frame)
    found: list[FusionPattern] = []
    taken: set[Op] = set()
    products = [op for op in frame.ops if op.name == PRODUCT]
    refused = {op: ALONE if is_product(op) else _kind(op) for op in products}
    for op in sorted(filter(is_product, products), key=lambda op: -max(v.tensor.size for v in op.operands)):
        for ops in search.behind(op, taken) if op not in taken else ():
            pattern = make_pattern(frame, with_constants(ops, search.producers), CHAIN)
            why = _why_not(pattern, search, context)
            if why is None:
                found.append(_grown(pattern, search, taken, context))
                taken.update(op for op in found[-1].ops if not is_free(op))
                break
            refused |= {op: why for op in ops if is_product(op)}
    return Chains(tuple(found), {op: why for op, why in refused.items() if op not in taken})


def _grown(pattern: FusionPattern, search: ChainSearch, taken: set[Op], context: Context) -> FusionPattern:
    """With all products around it that cost less in its kernel than in XLA's library."""
    tried: set[frozenset[Op]] = set()
    while True:
        chain = [op for op in pattern.ops if not is_free(op)]
        for ops in search.around(chain, taken):
            key = frozenset(ops).difference(chain)
            if key in tried or sum(map(is_product, ops)) > MOST_PRODUCTS:
                continue
            tried.add(key)
            more = make_pattern(search.frame, with_constants(ops, search.producers), CHAIN)
            if _is_better(more, pattern, search, context):
                pattern = more
                break
        else:
            return pattern


def _is_better(more: FusionPattern, less: FusionPattern, search: ChainSearch, context: Context) -> bool:
    """Whether the larger one of two chains is one, and takes less time."""
    if waits_for_itself(search.frame, more) or _why_not(more, search, context) is not None:
        return False
    rest = [op for op in more.ops if op not in less.ops]
    alone = make_pattern(search.frame, with_constants(rest, search.producers), CHAIN)
    theirs = xla_cost(_as_xla(alone, search), context.machine).seconds(context.machine)
    apart = judge(less, context.profile).ours_seconds + theirs
    return judge(more, context.profile).ours_seconds < MARGINS[context.options.tune] * apart


def _as_xla(pattern: FusionPattern, search: ChainSearch) -> FusionPattern:
    """With the outputs that XLA's program writes, too: others it makes again where they are read."""
    return replace(pattern, outputs=tuple(filter(search.is_written, pattern.outputs)))


def _judged(pattern: FusionPattern, search: ChainSearch, context: Context) -> Reason | None:
    """Why it does not pay: by its time, or because it writes more than XLA's own program would."""
    margin, machine, own = MARGINS[context.options.tune], context.machine, _as_xla(pattern, search)
    if margin == math.inf:
        return None
    verdict = replace(judge(pattern, context.profile), xla=xla_cost(own, machine))
    if not verdict.is_within(margin):
        return verdict.reason(margin)
    ours = sum(v.tensor.nbytes for v in pattern.outputs)
    theirs = sum(v.tensor.nbytes for v in xla_kernels(own, machine))
    return Reason("gate", WRITES, ours, theirs) if ours > theirs else None


def _kind(op: Op) -> Reason:
    """Of a product that no kernel makes."""
    types = ", ".join(v.tensor.dtype.value for v in (*op.operands, *op.results))
    algorithm = " by an algorithm of its own" if op.attrs.get("algorithm") else ""
    return Reason("product", f"no kernel multiplies matrices of {types}{algorithm}: left to XLA")


def _why_not(pattern: FusionPattern, search: ChainSearch, context: Context) -> Reason | None:
    if (reason := _judged(pattern, search, context)) is not None:
        return reason
    why = _by_tiles(pattern, Context(context.options, context.profile))
    return None if why is None else Reason("tiles", why)


@per_structure
def _by_tiles(pattern: FusionPattern, context: Context) -> str | None:
    """Why its kernel does not have one phase in which every product goes by tiles of registers."""
    try:
        what = pattern.ops, pattern.inputs, pattern.outputs
        kernel = lower_kernel("chain", *what, context.profile, context.options.arena_bytes)
    except CannotLowerError as error:
        return f"no kernel expresses the chain: {error}"
    if len(kernel.phases) > 1:
        return "the chain's rows wait for one another: a product is summed over them"
    wanted, found = sum(is_product(op) for op in pattern.ops), schedule_kernel(kernel, context).products
    rows = max(lane.step for lane in kernel.phases[0].lanes)
    few = (
        f"{found} of the chain's {wanted} products would go by tiles of registers, with {rows} rows at a time"
    )
    return None if found == wanted else few
