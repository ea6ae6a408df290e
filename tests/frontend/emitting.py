"""A CPU backend that writes kernels' source and builds nothing."""

from __future__ import annotations

from jstitch.codegen.backend import Built
from jstitch.codegen.cpu.emit import emit
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.kernel_source import KernelSource


class Recorder:
    def __init__(self) -> None:
        self.made: list[tuple[Kernel, KernelSource]] = []

    def build(self, kernel: Kernel, cache_dir: str | None) -> Built:
        self.made.append((kernel, emit(kernel).source))
        return Built(self.made[-1][1].text, ())
