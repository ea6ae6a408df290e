"""What a kernel becomes on the CPU: through the passes of its target, then written out."""

from __future__ import annotations

from jstitch.codegen.cpu.emit import Emitted, emit
from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from tests.contexts import CPU


def emitted(kernel: Kernel) -> Emitted:
    return emit(schedule_kernel(kernel, CPU))


def source_of(kernel: Kernel) -> str:
    return emitted(kernel).source.text
