"""The CPU backend: Kernel -> source -> one call of the typed-FFI handler."""

from __future__ import annotations

from dataclasses import dataclass

from jstitch.codegen.backend import Built, KernelCall
from jstitch.codegen.cpu.build import prepare
from jstitch.codegen.cpu.emit import emit
from jstitch.codegen.kernel_ir import Kernel
from jstitch.runtime.cpu_handler import TARGET


@dataclass(frozen=True)
class CpuBackend:
    """This machine's cores."""

    def build(self, kernel: Kernel, cache_dir: str | None) -> Built:
        emitted = emit(kernel)
        config = prepare(emitted.source, cache_dir)
        aliases = {emitted.results.index(r): emitted.operands.index(a) for r, a in kernel.aliases.items()}
        call = KernelCall(
            TARGET,
            config,
            tuple(kernel.args[k] for k in emitted.operands),
            tuple(kernel.results[k] for k in emitted.results),
            aliases,
        )
        return Built(emitted.source.text, (call,))
