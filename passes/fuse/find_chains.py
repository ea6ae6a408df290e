"""Chains of two products and what lies between them, for one kernel (FS-2018 figure 3; MCFuser).

    %s = dot_general %q, %k;  %p = softmax of %s's rows;  %o = dot_general %p, %v   ->   {%s ... %p, %o}

Each row of the first product's result is all that a row of the second one's needs: both are made a few rows
at a time, and what lies between them never leaves a core's cache. What a chain is, is asked of the kernel
that it would be: one phase, in which every product goes by tiles of registers.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.kernel_ir import Kernel, Product
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.options import PRESETS
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, Reason, is_free, make_pattern, with_constants
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.cost.structure import per_structure
from jstitch.passes.fuse.gate import MARGINS, judge
from jstitch.passes.fuse.plan_layers import partition_reason
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.store_turned import RESHAPE, TRANSPOSE
from jstitch.passes.lower.write_products import is_product
from jstitch.passes.schedule.kernel_passes import schedule_kernel

CHAIN = "find_chains"
"""The origin of a chain's pattern."""
MOST_OPS = 100  # between two products
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
    place = {op: n for n, op in enumerate(frame.ops)}
    search = _Search(frame, frame.producers(), frame.users(), place)
    found: list[FusionPattern] = []
    taken: set[Op] = set()
    products = [op for op in frame.ops if op.name == PRODUCT]
    refused = {op: ALONE if is_product(op) else _kind(op) for op in products}
    for op in sorted(filter(is_product, products), key=lambda op: -max(v.tensor.size for v in op.operands)):
        for ops in search.behind(op, taken) if op not in taken else ():
            pattern = make_pattern(frame, with_constants(ops, search.producers), CHAIN)
            why = _why_not(pattern, context)
            if why is None:
                taken.update(ops)
                found.append(pattern)
                break
            refused |= {op: why for op in ops if is_product(op)}
    return Chains(tuple(found), {op: why for op, why in refused.items() if op not in taken})


def _kind(op: Op) -> Reason:
    """Of a product that no kernel makes."""
    types = ", ".join(v.tensor.dtype.value for v in (*op.operands, *op.results))
    algorithm = " by an algorithm of its own" if op.attrs.get("algorithm") else ""
    return Reason("product", f"no kernel multiplies matrices of {types}{algorithm}: left to XLA")


def _why_not(pattern: FusionPattern, context: Context) -> Reason | None:
    margin = MARGINS[context.options.tune]
    if margin < math.inf and not (verdict := judge(pattern, context.profile)).is_within(margin):
        return verdict.reason(margin)
    why = _by_tiles(pattern, Context(context.options, context.profile))
    return None if why is None else Reason("tiles", why)


@dataclass(frozen=True)
class _Search:
    """place: of each op, in program order."""

    frame: Graph
    producers: Mapping[Value, Op]
    users: Mapping[Value, list[Op]]
    place: Mapping[Op, int]

    def behind(self, last: Op, taken: set[Op]) -> Iterator[list[Op]]:
        """The ops of chains that end with this product, in program order."""
        for start in sorted(last.operands, key=lambda v: -v.tensor.size):
            between = self._reached(start, taken)
            sizes = {op.result.tensor.size for op in between if is_product(op)}
            if start.tensor.size not in sizes or len(between) > MOST_OPS:
                continue
            inside = self._from(sorted(between, key=self.place.__getitem__))
            if self.producers[start] in inside:
                yield self._with_own(last, inside, taken)

    def _reached(self, start: Value, taken: set[Op]) -> set[Op]:
        """What the value is made of, up to products and what kernels do not hold."""
        found: set[Op] = set()
        todo = [start]
        while todo and len(found) <= MOST_OPS:
            op = self.producers.get(todo.pop())
            if op is None or op in found or op in taken or is_free(op):
                continue
            if is_product(op):
                found.add(op)
            elif partition_reason(op) is None:
                found.add(op)
                todo += op.operands
        return found

    def _from(self, between: Sequence[Op]) -> set[Op]:
        """Those of the ops, in program order, that are products or depend on one."""
        made: set[Value] = set()
        inside: set[Op] = set()
        for op in between:
            if is_product(op) or not made.isdisjoint(op.operands):
                inside.add(op)
                made.update(op.results)
        return inside

    def _moved(self, last: Op) -> Iterator[Op]:
        """The op, and what gives its result another shape: that is stored where it belongs."""
        yield last
        users = self.users.get(last.result, [])
        while len(users) == 1 and users[0].name in (TRANSPOSE, RESHAPE):
            if last.result in self.frame.outputs:
                return
            last = users[0]
            yield last
            users = self.users.get(last.result, [])

    def _with_own(self, last: Op, inside: set[Op], taken: set[Op]) -> list[Op]:
        """With what nobody else reads: masks and biases of what lies between, and shapes of operands."""
        inside = {*inside, *self._moved(last)}
        todo = [(-self.place[op], op) for op in inside]
        heapq.heapify(todo)
        while todo:  # the last op first: by its turn, all that read it have had theirs
            _, op = heapq.heappop(todo)
            for maker in dict.fromkeys(self.producers.get(v) for v in op.operands):
                if maker is not None and maker not in inside and self._is_own(maker, inside, taken):
                    inside.add(maker)
                    heapq.heappush(todo, (-self.place[maker], maker))
        return sorted(inside, key=self.place.__getitem__)

    def _is_own(self, op: Op, inside: set[Op], taken: set[Op]) -> bool:
        if op in taken or is_free(op) or partition_reason(op) is not None:
            return False
        users = {user for v in op.results for user in self.users.get(v, ())}
        kind = lookup(op.name).op_class
        read_by_products = any(is_product(user) for user in users)
        return (
            users <= inside
            and not any(v in self.frame.outputs for v in op.results)
            and kind is not OpClass.REDUCTION
            and (kind is OpClass.SHAPE or not read_by_products)
        )


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
    wanted, found = sum(is_product(op) for op in pattern.ops), _products(schedule_kernel(kernel, context))
    rows = max(lane.step for lane in kernel.phases[0].lanes)
    few = (
        f"{found} of the chain's {wanted} products would go by tiles of registers, with {rows} rows at a time"
    )
    return None if found == wanted else few


def _products(kernel: Kernel) -> int:
    nests = (
        n for phase in kernel.phases for lane in phase.lanes for stage in lane.stages for n in stage.nests
    )
    return sum(isinstance(nest, Product) for nest in nests)
