"""Run an emitted CUDA kernel on one of the machines that need no GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jstitch.codegen.cuda.emit import Emitted
from jstitch.codegen.kernel_ir import Buffer, Kernel
from jstitch.codegen.kernel_queries import array_of, numbers_in

RunLaunch = Callable[[int, list[np.ndarray]], None]
"""Runs launch `n` of a source on flat arrays in the order of its parameters, in place."""


def run_kernel(
    kernel: Kernel, emitted: Emitted, args: Sequence[np.ndarray], run: RunLaunch
) -> tuple[np.ndarray, ...]:
    """The kernel's results. Memory that nobody wrote yet holds 0xff bytes."""
    memory = {b: numbers_in(np.asarray(a)).copy() for b, a in zip(kernel.args, args, strict=True)}
    for n, buffers in enumerate(emitted.made.buffers):
        operands = [memory[b] for b in buffers.operands]
        for k, b in enumerate(buffers.results):
            memory[b] = operands[buffers.aliases[k]] if k in buffers.aliases else _poisoned(b)
        run(n, [*operands, *(memory[b] for b in buffers.results)])
    return tuple(array_of(b, memory[b]) for b in kernel.results)


def _poisoned(b: Buffer) -> np.ndarray:
    dtype = b.type.dtype.numpy
    fill = 0 if dtype == np.bool_ else 0xFF
    return np.full(b.type.nbytes, fill, np.uint8).view(dtype)
