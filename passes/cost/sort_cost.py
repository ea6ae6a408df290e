"""What a sort costs: ours moves each item a few times, XLA's compares it with others again and again."""

from __future__ import annotations

import math

from jstitch.codegen.cpu.sort_work import sort_work
from jstitch.ir.graph import Op
from jstitch.ir.reason import Reason
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.sort_order import TOP_K, dim_of, kept_of, order_of
from jstitch.passes.cost.cost_model import CostEstimate

WORD = 4  # bytes of a key that a sort goes by
LIBRARY = 47.0  # a core's cycles of one of XLA's comparisons
PASSED, KEPT = 6.0, 200.0  # of its `top_k`: of an item of a row, of a comparison of one that is kept


def own_sort(pattern: FusionPattern, op: Op, machine: Machine) -> CostEstimate:
    """By a kernel."""
    keys = order_of(op)
    words = 1 if isinstance(keys, Reason) else sum(-(-key.of.tensor.dtype.itemsize // WORD) for key in keys)
    rows, length = _sizes(op)
    cycles = words * rows * sort_work(length) * machine.scalar_cycles
    nbytes = sum(v.tensor.nbytes for v in (*pattern.inputs, *pattern.outputs))
    return CostEstimate(machine.call + machine.phase, nbytes, _of_lanes(cycles, rows, machine))


def xla_sort(op: Op, machine: Machine) -> CostEstimate:
    """By XLA:CPU, which calls a library for each row."""
    rows, length = _sizes(op)
    cycles = rows * length * math.log2(max(2, length)) * LIBRARY
    if op.name == TOP_K:
        cycles = rows * (length * PASSED + kept_of(op) * math.log2(max(2, length)) * KEPT)
    nbytes = sum(v.tensor.nbytes for v in (*op.operands, *op.results))
    return CostEstimate(1.0, nbytes, _of_lanes(cycles, rows, machine))


def _sizes(op: Op) -> tuple[int, int]:
    """Rows, and items of each."""
    shape = op.operands[0].shape
    length = max(1, shape[dim_of(op)])
    return math.prod(shape) // length, length


def _of_lanes(cycles: float, rows: int, machine: Machine) -> float:
    """One core's cycles as those of all cores' lanes, where a row is one core's."""
    return cycles * machine.cycle / min(rows, machine.cores) / machine.lane_cycle if rows else 0.0
