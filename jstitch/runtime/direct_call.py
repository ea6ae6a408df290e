"""Run a loaded kernel on NumPy arrays without JAX: for tests, debugging and the command line.

Programs run one after another on the calling thread. Unlike inside XLA, denormal numbers are not flushed to
zero here, because the caller's floating-point state is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jstitch.runtime.process_block import LoadedKernel

_PHASE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_ALIGN = 64


def call_directly(
    kernel: LoadedKernel, args: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]
) -> None:
    """Run `kernel` on `args` and write `results` in place.

    All arrays must be C-contiguous, with the shapes and dtypes that the kernel was generated for (it cannot
    check them). Raises ValueError for another number of arrays or another memory layout.
    """
    if len(args) != kernel.num_args or len(results) != kernel.num_results:
        expected = f"{kernel.num_args} arguments and {kernel.num_results} results"
        raise ValueError(f"expected {expected}, found {len(args)} and {len(results)}")
    for i, array in enumerate([*args, *results]):
        if not array.flags.c_contiguous:
            raise ValueError(f"expected C-contiguous arrays, found strides {array.strides} in array {i}")
    scratch, arena = _aligned(kernel.scratch_bytes), _aligned(kernel.arena_bytes)
    pointers = [array.ctypes.data for array in (*args, *results, scratch)]
    bufs = (ctypes.c_int64 * len(pointers))(*pointers)
    for phase in kernel.phases:
        run = _PHASE(phase.address)
        for program in range(phase.programs):
            run(ctypes.addressof(bufs), arena.ctypes.data, program)


def _aligned(size: int) -> NDArray[np.uint8]:
    """`size` bytes on a 64-byte boundary, filled with a pattern that no kernel may rely on."""
    raw = np.full(size + _ALIGN, 0xA5, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start : start + size]
