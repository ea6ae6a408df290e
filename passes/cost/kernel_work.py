"""What one call of a kernel does, in numbers that profiles and logs show.

softmax of f32[1024, 512]   ->   reads 2 MB and writes 2 MB, 8 million operations
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import KERNEL, OpClass, lookup
from jstitch.passes.base.plan import FusionPattern, is_free
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.base.row_access import data_operands, is_reduction
from jstitch.passes.cost.after_slices import after_slices
from jstitch.passes.cost.cost_model import products
from jstitch.passes.graph.find_recurrence import Recurrence, find_recurrence, may_recur


@dataclass(frozen=True)
class KernelWork:
    """ops: without constants. nbytes: inputs read and results written, each once; of what is sliced or
    gathered, the slices. flops: arithmetic of its ops, each done once. modelled: bytes that XLA's own kernels
    for the same ops move, and that ours does, as the gate reckons.
    """

    ops: int
    nbytes: int
    flops: int
    modelled: tuple[float, float]


def kernel_work(pattern: FusionPattern, modelled: tuple[float, float]) -> KernelWork:
    """Of the pattern's kernel."""
    ops = sum(not is_free(op) for op in pattern.ops)
    return KernelWork(ops, _nbytes(pattern), round(_flops(pattern.ops)), modelled)


def ops_outside(graph: Graph) -> int:
    """Ops in no kernel, but for constants; those of the regions of loops and branches too."""
    count = 0
    for op in graph.ops:
        count += op.name != KERNEL and not is_free(op)
        count += sum(map(ops_outside, op.regions)) if is_control(op) else 0
    return count


def _nbytes(pattern: FusionPattern) -> int:
    behind = after_slices(pattern)
    copied = (v for v in pattern.outputs if v not in behind.outputs)
    return sum(v.tensor.nbytes for v in (*behind.inputs, *copied, *pattern.outputs))


def _flops(ops: Iterable[Op]) -> float:
    ops = list(ops)
    producers = {v: op for op in ops for v in op.results}
    total = 0.0
    for op in (op for op in ops if not is_free(op)):
        loop = find_recurrence(op, producers.get) if may_recur(op) else None
        if isinstance(loop, Recurrence):
            total += loop.turns * _flops(loop.ops)
        else:
            total += lookup(op.name).flops * _elements(op)
    return total


def _elements(op: Op) -> int:
    """That the op's arithmetic is done on."""
    if op.name == PRODUCT:
        return products(op)
    if is_reduction(op):
        return sum(v.tensor.size for v in data_operands(op))
    return op.results[0].tensor.size if lookup(op.name).op_class is not OpClass.CONTROL else 0
