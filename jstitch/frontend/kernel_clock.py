"""Times of kernels on this CPU, which the search for tilings measures where it may (MCFuser, IV-B).

    clock(kernel)     in the library?  ->  else built, and run by one core

Its time is that of one core; programs that are dealt out to all cores take their share of it. Without seconds
left, no kernel is quicker than those that were measured.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.comments import strip_comments
from jstitch.codegen.cpu.emit import emit
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.measure_core import core_seconds
from jstitch.ir.schedule import ONE_BLOCK
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import busy_share
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.runtime.performance_library import PerformanceKey, PerformanceLibrary, Timing

SHARE = 0.5  # of the budget; the rest is for the gate
LARGEST = 1 << 30  # bytes of a kernel that is measured


@dataclass(eq=False)
class KernelClock:
    """seconds: left for measuring."""

    library: PerformanceLibrary
    context: Context
    seconds: float

    def __call__(self, kernel: Kernel) -> float:
        """Seconds of the kernel, all cores together; math.inf for one that is not measured."""
        made = schedule_kernel(kernel, self.context)
        try:
            key = _key(made)
        except CannotBuildError:
            return math.inf
        known = self.library.lookup(key)
        if known is None and (known := self._measured(made)) is not None:
            self.library.store(key, known)
        return math.inf if known is None else known.microseconds * 1e-6 / self._cores(made)

    def _measured(self, kernel: Kernel) -> Timing | None:
        buffers = (*kernel.args, *kernel.results, *kernel.scratch)
        if self.seconds <= 0 or sum(b.type.nbytes for b in buffers) > LARGEST:
            return None
        start = time.perf_counter()
        found = core_seconds(kernel)
        self.seconds -= time.perf_counter() - start
        return Timing(found * 1e6, measured=True)

    def _cores(self, kernel: Kernel) -> float:
        """How many of them its programs keep busy."""
        units = self.context.machine.units
        programs = max(sum(lane.programs for lane in phase.lanes) for phase in kernel.phases)
        return units * busy_share(programs, units)


def _key(kernel: Kernel) -> PerformanceKey:
    """Of all kernels with this text."""
    buffers = (*kernel.args, *kernel.results)
    text = strip_comments(emit(kernel).source.text)
    shapes, dtypes = (b.type.shape for b in buffers), (b.type.dtype.value for b in buffers)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return PerformanceKey("kernel", tuple(shapes), tuple(dtypes), ONE_BLOCK, digest)
