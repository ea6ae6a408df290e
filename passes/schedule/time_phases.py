"""What each phase of a kernel takes on one core, as modelled: what is quick is not worth waking a thread for.

    phase 0                 ->     phase 0: 41,200 ns on one core
      lane: 1024 rows, ...           lane: 1024 rows, ...

The handler compares that with what it costs to wake threads (runtime/native_awake.py).
"""

from __future__ import annotations

from dataclasses import replace

from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.base.context import Context
from jstitch.passes.schedule.latency_cpu import cpu_phases

NS = 1e9  # of a second


def time_phases(kernel: Kernel, context: Context) -> Kernel:
    """The kernel, with the latency-evaluator's times of its phases on one core."""
    alone = replace(context.machine, cores=1.0)
    times = (latency.seconds for latency in cpu_phases(kernel, alone))
    phases = (replace(p, alone_ns=round(t * NS)) for p, t in zip(kernel.phases, times, strict=True))
    return replace(kernel, phases=tuple(phases))
