"""Chains of two products and what lies between them, for one kernel (FS-2018 figure 3; MCFuser).

    %s = dot_general %q, %k;  %p = softmax of %s's rows;  %o = dot_general %p, %v   ->   {%s ... %p, %o}

Each row of the first product's result is all that a row of the second one's needs: both are made a few rows
at a time, and what lies between them never leaves a core's cache. On CPUs a product alone is one, too, with
what is made of its rows. What a chain is, is asked of the kernel that it would be: every product goes by
tiles of registers, and nothing but totals waits for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.device_spec import DeviceSpec
from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.types import DType
from jstitch.options import PRESETS
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, Reason, is_free, make_pattern, with_constants
from jstitch.passes.base.product_side import PRODUCT, Side, may_round
from jstitch.passes.fuse.chain_search import MOST_OPS, ChainSearch
from jstitch.passes.fuse.convexity import waits_for_itself
from jstitch.passes.fuse.judge_chain import takes_less, why_not, why_not_lowered, why_not_modelled

CHAIN = "find_chains"
"""The origin of a chain's pattern."""
MOST_PRODUCTS = 16  # of a chain
ALONE = Reason(
    "alone", f"no other product's rows become its own within {MOST_OPS} ops: left to XLA's library"
)
BESIDE = Reason(
    "alone",
    "XLA's library, and a kernel of what is made of its rows, are modelled to take less than one of both",
)
EXACT = "kernels multiply f32 as tf32, and this product asks for more: left to XLA"


@dataclass(frozen=True)
class Chains:
    """patterns: none of which share an op. refused: other products -> why they are in no chain."""

    patterns: Sequence[FusionPattern] = ()
    refused: Mapping[Op, Reason] = field(default_factory=dict)


def find_chains(frame: Graph, context: Context) -> Chains:
    """Chains that one kernel can make: those with the largest values first.

    FusionStitching as published has none.
    """
    options = context.options
    left = "chains" in options.without or options.planner in PRESETS
    if left:
        return Chains()
    search = ChainSearch.of(frame, context.machine.device)
    found: list[FusionPattern] = []
    taken: set[Op] = set()
    products = [op for op in frame.ops if op.name == PRODUCT]
    refused = {op: ALONE if search.makes(op) else _kind(op, search.device) for op in products}
    for op in sorted(filter(search.makes, products), key=lambda op: -max(v.tensor.size for v in op.operands)):
        for ops in search.behind(op, taken) if op not in taken else ():
            pattern = make_pattern(frame, with_constants(ops, search.producers), CHAIN)
            why = why_not(pattern, search, context)
            if why is None:
                found.append(_grown(pattern, search, taken, context))
                taken.update(op for op in found[-1].ops if not is_free(op))
                break
            refused |= {op: why for op in ops if search.makes(op)}
    if context.machine.device is None:
        found = [_ended(chain, search, taken, refused, context) or chain for chain in found]
        for op in filter(search.makes, products):
            if op in taken or not Side.of(op, 0).ends_in_sums:
                continue  # a weight's gradient: its optimizer is in a kernel with those of others
            alone = make_pattern(frame, with_constants([op], search.producers), CHAIN)
            ended = _ended(alone, search, taken, refused, context)
            found += [ended] if ended else []
    return Chains(tuple(found), {op: why for op, why in refused.items() if op not in taken})


def _ended(
    chain: FusionPattern, search: ChainSearch, taken: set[Op], refused: dict[Op, Reason], context: Context
) -> FusionPattern | None:
    """A chain, or a product alone, with what is made of its rows (MCFuser's epilogues).

    Where that takes less time than both apart: on CPUs, where a call of the library starts threads. Its ops
    are taken, or it is said why they are not.
    """
    for ops in search.ahead([op for op in chain.ops if not is_free(op)], taken):
        more = make_pattern(search.frame, with_constants(ops, search.producers), CHAIN)
        if waits_for_itself(search.frame, more):
            continue
        why = why_not_modelled(more, search, context)
        if why is None and not _pays_with(chain, more, search, taken, context):
            why = BESIDE
        why = why or why_not_lowered(more, search, context)
        if why is None:
            taken.update(op for op in more.ops if not is_free(op))
            return more
        refused |= {op: why for op in chain.ops if search.makes(op)}
    return None


def _pays_with(
    chain: FusionPattern, more: FusionPattern, search: ChainSearch, taken: set[Op], context: Context
) -> bool:
    """Whether one kernel takes less time than two.

    What others than products read as well, all of it and not a number of each row, would be in their kernel;
    what is cheap to make, as the windows of an array, would be made again in each kernel that reads it.
    """
    inside, rows = set(more.ops), max(v.tensor.size for v in chain.outputs)
    large = [v for v in more.outputs if v.tensor.size >= rows]
    readers = {user for v in large for user in search.users.get(v, ()) if user not in inside}
    given = [v for v in more.inputs if v.tensor.size >= rows and v not in chain.inputs]
    makers = {search.producers[v] for v in given if v in search.producers} - taken
    if any(map(_is_cheap, makers)) or not all(map(search.makes, readers)):
        return False
    return _takes_less(more, chain, search, context)


def _is_cheap(op: Op) -> bool:
    kind = lookup(op.name).op_class
    return kind.is_elementwise or kind is OpClass.SHAPE


def _grown(pattern: FusionPattern, search: ChainSearch, taken: set[Op], context: Context) -> FusionPattern:
    """With all products around it that cost less in its kernel than in XLA's library."""
    tried: set[frozenset[Op]] = set()
    while True:
        chain = [op for op in pattern.ops if not is_free(op)]
        for ops in search.around(chain, taken):
            key = frozenset(ops).difference(chain)
            if key in tried or sum(map(search.makes, ops)) > MOST_PRODUCTS:
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
    if waits_for_itself(search.frame, more) or why_not(more, search, context) is not None:
        return False
    return _takes_less(more, less, search, context)


def _takes_less(more: FusionPattern, less: FusionPattern, search: ChainSearch, context: Context) -> bool:
    """Whether it does, than the smaller one and the rest of it apart."""
    rest = [op for op in more.ops if op not in less.ops]
    alone = make_pattern(search.frame, with_constants(rest, search.producers), CHAIN)
    return takes_less(more, less, alone, search, context)


def _kind(op: Op, device: DeviceSpec | None) -> Reason:
    """Of a product that no kernel makes."""
    kinds = [v.tensor.dtype for v in (*op.operands, *op.results)]
    if device is not None and set(kinds) == {DType.F32} and not may_round(op, device):
        return Reason("product", EXACT)
    types = ", ".join(kind.value for kind in kinds)
    algorithm = " by an algorithm of its own" if op.attrs.get("algorithm") else ""
    return Reason("product", f"no kernel multiplies matrices of {types}{algorithm}: left to XLA")
