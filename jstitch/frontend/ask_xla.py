"""What XLA:CPU makes of a part of a program: asked of its compiler, so for this version, flags and machine.

    ask_xla(Graph of a loop, ...)()                             ->  Module, as XLA has optimised it
    ask_xla(Graph of a loop with `planned_call`s, ...)()        ->  the same with calls that nobody built

A graph is asked about once, however its values are called: answers stay with compiled kernels. XLA is told
to spend little on machine code, which changes nothing of what comes before.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jstitch.codegen.backend import KernelCall
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.exporter import export_module
from jstitch.frontend.measure import begin_apart
from jstitch.frontend.probe import NAME, compiled_text, make_program
from jstitch.ir.graph import Graph
from jstitch.runtime.cache import KernelCache, Label, kernel_store
from jstitch.runtime.cpu_handler import PLANNED
from jstitch.runtime.device_name import cpu_device
from jstitch.runtime.versions import compiled_with
from jstitch.xla.cpu_thunks import NUMBER
from jstitch.xla.hlo import Module, parse_module

MOST = 64  # answers that are kept
QUICKLY: Mapping[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


class _Answers:
    """The latest ones, by the question."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Module] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Module | None:
        with self._lock:
            return self._known.get(key)

    def put(self, key: str, module: Module) -> None:
        with self._lock:
            self._known[key] = module
            if len(self._known) > MOST:
                self._known.popitem(last=False)


_answers = _Answers()


def ask_xla(graph: Graph, cache_dir: str | None) -> Callable[[], Module]:
    """Of a graph of tensors. XLA works beside the caller: what is returned waits for its answer.

    That raises what XLA raises when it cannot compile that graph alone.
    """
    key = _key(export_module(graph, NAME, emit_kernel).operation.get_asm(enable_debug_info=False))
    found = _answers.get(key)
    if found is not None:
        return lambda: found
    store = kernel_store(cache_dir)
    answer = begin_apart(lambda stop: parse_module(_stored(key, graph, store)))

    def wait() -> Module:
        module = answer()
        _answers.put(key, module)
        return module

    return wait


def _key(question: str) -> str:
    """Of the program, and of all else that XLA's answer depends on."""
    around = compiled_with(), repr(QUICKLY), os.environ.get("XLA_FLAGS", ""), cpu_device()
    return hashlib.sha256("\n".join((*around, question)).encode()).hexdigest()


def _stored(key: str, graph: Graph, store: KernelCache) -> str:
    """The answer in the cache; asked for, and put there, where it is missing."""

    def make() -> bytes:
        program, device = make_program(graph, emit_kernel), jax.local_devices(backend="cpu")[0]
        return zlib.compress(compiled_text(program, device, QUICKLY).encode())

    label = Label("XLA:CPU's answers", compiled_with())
    return zlib.decompress(store.obtain(key, "a program", label, make)).decode()


def planned_call(kernel: Kernel, number: int) -> dict[str, Any]:
    """Attributes of a kernel op that is a call with the kernel's operands and results, of this number."""
    call = KernelCall(PLANNED, {NUMBER: np.int64(number)}, kernel.args, kernel.results, kernel.aliases)
    return {"name": kernel.name, "kernel": kernel, "calls": (call,)}
