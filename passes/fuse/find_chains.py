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
from dataclasses import dataclass

from jstitch.codegen.kernel_ir import Kernel, Product
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.options import PRESETS
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, is_free, make_pattern, with_constants
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


def find_chains(frame: Graph, context: Context) -> Iterator[FusionPattern]:
    """Chains that one kernel can make, none of which share an op: those with the largest values first.

    On a CPU; FusionStitching as published has none.
    """
    last, options = list(filter(is_product, frame.ops)), context.options
    left = "chains" in options.without or options.planner in PRESETS
    if context.machine.device is not None or left or len(last) < 2:
        return
    place = {op: n for n, op in enumerate(frame.ops)}
    search = _Search(frame, frame.producers(), frame.users(), place)
    taken: set[Op] = set()
    for op in sorted(last, key=lambda op: -max(v.tensor.size for v in op.operands)):
        for ops in search.behind(op, taken) if op not in taken else ():
            pattern = make_pattern(frame, with_constants(ops, search.producers), CHAIN)
            if _pays(pattern, context) and _by_tiles(pattern, Context(context.options, context.profile)):
                taken.update(ops)
                yield pattern
                break


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
def _by_tiles(pattern: FusionPattern, context: Context) -> bool:
    """Whether its kernel has one phase, and makes every product by tiles of registers."""
    try:
        what = pattern.ops, pattern.inputs, pattern.outputs
        kernel = lower_kernel("chain", *what, context.profile, context.options.arena_bytes)
    except CannotLowerError:
        return False
    wanted = sum(is_product(op) for op in pattern.ops)
    return len(kernel.phases) == 1 and _products(schedule_kernel(kernel, context)) == wanted


def _pays(pattern: FusionPattern, context: Context) -> bool:
    margin = MARGINS[context.options.tune]
    return margin == math.inf or judge(pattern, context.profile).is_within(margin)


def _products(kernel: Kernel) -> int:
    nests = (
        n for phase in kernel.phases for lane in phase.lanes for stage in lane.stages for n in stage.nests
    )
    return sum(isinstance(nest, Product) for nest in nests)
