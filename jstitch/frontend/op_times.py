"""Times of single ops under single schedules, of the performance library (FS-2018 section 4.4).

    exp of [4096, 1024], Row(0, 64)     ->     in the library?  ->  else built alone, and run

Its time is that of one core; blocks that are dealt out to all cores take their share of it. Without seconds
left, or for an op that has no kernel of its own, the analytic model answers, and is marked as modelled.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial

from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.kernel_clock import SHARE, KernelClock
from jstitch.frontend.measure_core import core_seconds
from jstitch.ir.graph import Op
from jstitch.ir.schedule import Schedule, blocks
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import busy_share
from jstitch.passes.cost.op_seconds import op_seconds
from jstitch.passes.fuse.choose_schedules import schedule_attrs
from jstitch.passes.lower.apply_template import TemplateError, label_ops
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.runtime.device_name import cpu_device
from jstitch.runtime.performance_library import (
    PerformanceKey,
    PerformanceLibrary,
    library_path,
    shared_library,
)
from jstitch.runtime.versions import measured_with
from jstitch.template import OpSchedule, Scope, Template, Tile

LARGEST = 1 << 28  # bytes of an op that is measured


def op_times(options: CompileOptions, context: Context) -> OpTimes | None:
    """For a planner that tunes schedules, where the options want measurements and the device is this CPU."""
    if options.planner != "fs2018" or options.tune != "measure" or context.machine.device is not None:
        return None
    library = shared_library(library_path(options.cache_dir), cpu_device(), measured_with())
    return OpTimes(library, context, options.tune_seconds)


@dataclass(eq=False)
class OpTimes:
    """seconds: left for measuring."""

    library: PerformanceLibrary
    context: Context
    seconds: float
    own: dict[PerformanceKey, float] = field(default_factory=dict)

    def __call__(self, op: Op, schedule: Schedule) -> float:
        """Seconds of the op alone, all cores together."""
        key = performance_key(op, schedule)
        if key not in self.own:
            self.own[key] = self._core_seconds(key, op, schedule)
        return self.own[key] / self._cores(op, schedule)

    def _cores(self, op: Op, schedule: Schedule) -> float:
        """How many cores the schedule's blocks keep busy."""
        units = self.context.machine.units
        return units * busy_share(blocks(op.results[0].shape, schedule), units)

    def _core_seconds(self, key: PerformanceKey, op: Op, schedule: Schedule) -> float:
        """Of one core."""

        def model(_: PerformanceKey) -> float:
            return op_seconds(op, schedule, self.context.machine) * self._cores(op, schedule) * 1e6

        kernel = self._kernel(op, schedule) if self.seconds > 0 else None
        measure = None if kernel is None else partial(self._measure, kernel)
        return self.library.time(key, model, measure).microseconds * 1e-6

    def _kernel(self, op: Op, schedule: Schedule) -> Kernel | None:
        """Of the op alone; None where it has none with this schedule."""
        values = {*op.operands, *op.results}
        if sum(v.tensor.nbytes for v in values) > LARGEST:
            return None
        label = label_ops([op])[op.results[0]]
        wanted = Template((OpSchedule(label, schedule_attrs(op, schedule, Tile(Scope.THREAD))),))
        inputs, profile = tuple(dict.fromkeys(op.operands)), self.context.profile
        try:
            kernel = lower_kernel("op", [op], inputs, op.results, profile, template=wanted)
        except (CannotLowerError, TemplateError):
            return None
        return schedule_kernel(kernel, self.context)

    def _measure(self, kernel: Kernel, key: PerformanceKey) -> float:
        """Microseconds."""
        start = time.perf_counter()
        found = core_seconds(kernel)
        self.seconds -= time.perf_counter() - start
        return found * 1e6


def performance_key(op: Op, schedule: Schedule) -> PerformanceKey:
    """Of the op, whatever its values are."""
    values = (*op.operands, *op.results)
    attrs = sorted((name, str(v)) for name, v in op.attrs.items())
    return PerformanceKey(
        op.name,
        tuple(v.shape for v in values),
        tuple(v.tensor.dtype.value for v in values),
        schedule,
        str(attrs),
    )


def with_times(context: Context) -> Context:
    """The context, with times of this CPU where passes ask for them and the options want measurements."""
    options = context.options
    if options.tune != "measure" or context.machine.device is not None:
        return context
    library = shared_library(library_path(options.cache_dir), cpu_device(), measured_with())
    clock = KernelClock(library, context, SHARE * options.tune_seconds)
    return replace(context, times=op_times(options, context), clock=clock)
