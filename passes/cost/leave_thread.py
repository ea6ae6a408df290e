"""Whether a program's large kernels are to leave the thread that calls them, for XLA's pool.

layer norm -> products, 20 ms                  leaves: products are the pool's, which goes on from there
layer norm -> product, 0.1 ms -> softmax       stays: two threads less have to wake up
"""

from __future__ import annotations

from jstitch.ir.graph import Graph
from jstitch.ir.ops import KERNEL
from jstitch.passes.base.convolution import CONVOLUTION, Convolution
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.cost.cost_model import LIBRARY_CYCLES, xla_work

LEAST_SECONDS = 5e-4
"""Of XLA's products. Of 139 forward passes and training steps drawn at random (MLPs, mixers, attention,
convolutions) those with more gained 3% in the mean, 29% at most, and one of 65 lost more than 5%; those with
less lost as often as they gained, up to half."""


def leaves_thread(graph: Graph, machine: Machine) -> bool:
    """Whether enough of the program is for XLA's pool. graph: with kernels."""
    return machine.device is None and library_seconds(graph, machine) >= LEAST_SECONDS


def library_seconds(graph: Graph, machine: Machine) -> float:
    """What the products take that are in no kernel; of a loop's, one turn."""
    total = 0.0
    for op in graph.ops:
        if op.name == PRODUCT:
            total += xla_work(op, machine, False) * machine.lane_cycle
        elif op.name == CONVOLUTION:
            products = op.result.tensor.size * Convolution(op).terms
            total += products * LIBRARY_CYCLES * machine.lane_cycle
        if op.name != KERNEL:
            total += sum(library_seconds(region, machine) for region in op.regions)
    return total
