"""What XLA:CPU makes of a part of a program: asked of its compiler, so for this version, flags and machine.

    ask_xla(Graph of a loop)                               ->  Module, as XLA has optimised it
    ask_xla(Graph of a loop with kernels, `planned_call`)  ->  the same with calls that nothing was built for

A graph is asked about once in a process, however its values are called. XLA is told to spend little on
machine code, which changes nothing of what comes before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jstitch.codegen.backend import KernelCall
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.exporter import export_module
from jstitch.frontend.measure import apart
from jstitch.frontend.probe import NAME, compiled_text, make_program
from jstitch.ir.graph import Graph
from jstitch.runtime.cpu_handler import PLANNED
from jstitch.xla.cpu_thunks import NUMBER
from jstitch.xla.hlo import Module, parse_module

MOST = 64  # answers that are kept
QUICKLY: Mapping[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


class _Answers:
    """The latest ones, by the text of the question."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Module] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> Module | None:
        with self._lock:
            return self._known.get(text)

    def put(self, text: str, module: Module) -> None:
        with self._lock:
            self._known[text] = module
            if len(self._known) > MOST:
                self._known.popitem(last=False)


_answers = _Answers()


def ask_xla(graph: Graph) -> Module:
    """Of a graph of tensors. Raises what XLA raises when it cannot compile that graph alone."""
    text = export_module(graph, NAME, emit_kernel).operation.get_asm(enable_debug_info=False)
    found = _answers.get(text)
    if found is None:
        program = make_program(graph, emit_kernel)
        device = jax.local_devices(backend="cpu")[0]
        found = parse_module(apart(lambda stop: compiled_text(program, device, QUICKLY)))
        _answers.put(text, found)
    return found


def planned_call(kernel: Kernel, number: int) -> dict[str, Any]:
    """Attributes of a kernel op that is a call with the kernel's operands and results, of this number."""
    call = KernelCall(PLANNED, {NUMBER: np.int64(number)}, kernel.args, kernel.results, kernel.aliases)
    return {"name": kernel.name, "kernel": kernel, "calls": (call,)}
