"""A kernel's time on one core of this CPU, without JAX around it."""

from __future__ import annotations

import time

import numpy as np

from jstitch.codegen.cpu import build
from jstitch.codegen.cpu.emit import emit
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.kernel_queries import array_type

RUNS = 5


def core_seconds(kernel: Kernel) -> float:
    """Of a kernel that is done with its passes, by one core: the least of a few runs, built before."""
    emitted = emit(kernel)
    args = [np.ones(t.shape, t.dtype.numpy) for t in (array_type(kernel.args[n]) for n in emitted.operands)]
    made = [
        np.empty(t.shape, t.dtype.numpy) for t in (array_type(kernel.results[n]) for n in emitted.results)
    ]
    build.call(emitted.source, args, made)
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        build.call(emitted.source, args, made)
        times.append(time.perf_counter() - began)
    return min(times)
