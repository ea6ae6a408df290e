"""Lanes: the threads that one array operation of the simulator stands for.

A batch runs several CTAs at once; each has a slot, its number within the batch. Arrays over lanes list the
CTAs' threads one CTA after another.

    Lanes.of(ctas=[6, 7], block=4).thread   ->   [0 1 2 3 0 1 2 3]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
WARP = 32


@dataclass(frozen=True, eq=False)
class Lanes:
    """cta, thread, slot: int64[n]. block: threads of a CTA."""

    block: int
    cta: Array
    thread: Array
    slot: Array

    @staticmethod
    def of(ctas: Array, block: int) -> Lanes:
        """Every thread of the CTAs; slots are their positions."""
        count = len(ctas)
        thread = np.tile(np.arange(block), count)
        return Lanes(block, np.repeat(ctas, block), thread, np.repeat(np.arange(count), block))

    def __len__(self) -> int:
        return len(self.cta)

    def take(self, positions: Array) -> Lanes:
        return Lanes(self.block, self.cta[positions], self.thread[positions], self.slot[positions])

    @cached_property
    def warps(self) -> int:
        """Warps of a CTA; the last one may be partial."""
        return -(-self.block // WARP)

    @cached_property
    def warp(self) -> Array:
        return self.thread // WARP

    @cached_property
    def row(self) -> Array:
        """The warp's number within the batch."""
        return np.asarray(self.slot * self.warps + self.warp)

    @cached_property
    def number(self) -> Array:
        """The thread's number within the launch."""
        return np.asarray(self.cta * self.block + self.thread).astype(np.int32)

    @cached_property
    def bit(self) -> Array:
        """The warp as one bit of 32."""
        return np.left_shift(np.uint32(1), self.warp.astype(np.uint32))
