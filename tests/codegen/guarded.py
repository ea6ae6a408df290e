"""Kernels run on memory with guards around every array: what they write beside one is seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cpu import build
from jstitch.codegen.cpu.emit import emit
from jstitch.codegen.kernel_ir import Buffer, Kernel

GUARD, MARK = 4096, 0xA5


class Guarded:
    """An array of ones for a buffer, with marks in front of it and behind."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer, size = buffer, buffer.type.nbytes
        self._memory = np.full(size + 2 * GUARD, MARK, np.uint8)
        inside = self._memory[GUARD : GUARD + size]
        self.array: NDArray[np.generic] = inside.view(buffer.type.dtype.numpy).reshape(buffer.type.shape)
        self.array[...] = 1

    @property
    def touched(self) -> int:
        """Bytes of the guards that were written."""
        front, back = self._memory[:GUARD], self._memory[-GUARD:]
        return int((front != MARK).sum() + (back != MARK).sum())


def overruns(kernel: Kernel) -> Iterator[str]:
    """Each buffer beside which the kernel's machine code writes, run on ones."""
    emitted = emit(kernel)
    operands = [Guarded(kernel.args[n]) for n in emitted.operands]
    results = [Guarded(kernel.results[n]) for n in emitted.results]
    build.call(emitted.source, _arrays(operands), _arrays(results))
    for guarded in (*operands, *results):
        if guarded.touched:
            yield f"{kernel.name}: {guarded.touched} bytes beside {guarded.buffer}"


def _arrays(guarded: Sequence[Guarded]) -> list[NDArray[np.generic]]:
    return [g.array for g in guarded]
