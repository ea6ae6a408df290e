"""Latency-evaluator (C3): how long a kernel takes, from what its loops execute (FS-2021 section 4.3).

    kernel_latency(softmax of 1024 x 512)  ==  Latency(compute=21e-6, memory=9e-6, hidden=6e-6, launches=3e-6)

On a GPU  L = N_wave x L_warp,  N_wave = N_warp / occupancy,  L_warp = N_instruction x CPI    (latency_gpu)
On a CPU  waves of programs over cores, cycles by vector width, bytes by the cache they are in  (latency_cpu)

Latencies of phases, and of kernels, add up.
"""

from __future__ import annotations

from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.base.context import Context
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.passes.schedule.latency_cpu import cpu_phases
from jstitch.passes.schedule.latency_gpu import gpu_phases
from jstitch.passes.schedule.latency_value import Latency
from jstitch.passes.schedule.tile_products import tile_products

__all__ = ["Latency", "kernel_latency"]


def kernel_latency(kernel: Kernel, context: Context) -> Latency:
    """The kernel on the context's machine, its call included.

    Raises NoRoom or CannotBuildError for a kernel that a GPU cannot hold.
    """
    machine = context.machine
    if machine.device is not None:
        made = schedule_kernel(kernel, context)
        return sum(gpu_phases(made, machine, machine.device), Latency())
    if not kernel.products:
        kernel = tile_products(kernel, context)
    buffers = len(kernel.args) + len(kernel.results)
    call = machine.call_seconds + buffers * machine.operand
    return sum(cpu_phases(kernel, machine), Latency(launches=call))
