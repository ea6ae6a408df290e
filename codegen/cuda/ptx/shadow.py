"""The last accesses of each piece of a region: finds races, and counts distinct bytes.

Pieces are as large as the smallest access so far: the shadow of f32 data has one entry for four bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jstitch.codegen.cuda.ptx.error import Fault
from jstitch.codegen.cuda.ptx.group import Group, Lanes
from jstitch.codegen.cuda.ptx.order import ALONE, CTA, WARP, level_of, stamp, thread_of, time_of
from jstitch.codegen.cuda.ptx.scalar import Array


class Shadow:
    """private: no thread of another CTA reaches the region. fresh: reading what nobody wrote is a defect."""

    def __init__(self, size: int, private: bool, fresh: bool) -> None:
        self.size, self.private, self.fresh = size, private, fresh
        self.piece = 32
        self.written = np.full(-(-size // self.piece), -1, np.int64)
        self.read = self.written.copy()

    def distinct(self) -> tuple[int, int]:
        """Bytes that were read, bytes that were written."""
        read, written = (int(np.count_nonzero(x >= 0)) * self.piece for x in (self.read, self.written))
        return min(read, self.size), min(written, self.size)

    def _pieces(self, group: Group, offsets: Lanes, size: int) -> tuple[Any, Lanes, Lanes]:
        """Index of every piece, and the lane and thread that touches it: all lanes' first pieces first."""
        while self.piece > size:
            self.piece //= 2
            self.written, self.read = np.repeat(self.written, 2), np.repeat(self.read, 2)
        index, count = offsets // self.piece, size // self.piece
        if count == 1:
            return index, group.lanes, group.threads
        index = (index + np.arange(count)[:, None]).ravel()
        return index, np.tile(group.lanes, count), np.tile(group.threads, count)

    def check_read(self, group: Group, offsets: Lanes, size: int) -> None:
        """Record a read. Raises Fault when the bytes were never written, or by a write not ordered before."""
        index, lanes, threads = self._pieces(group, offsets, size)
        written = self.written[index]
        if self.fresh and written.min() < 0:
            raise Fault("reads memory that nobody has written", int(np.argmin(written)) % group.size)
        self._check(group, lanes, threads, written, "reads what {} wrote")
        before = self.read[index]
        level: int | Array = 0
        if not self._settled(group, threads, before):
            shared = group.order.unordered(lanes, threads, before)
            near = group.order.relation(lanes, threads, thread_of(before))
            level = np.where(shared, np.maximum(near, level_of(before)), 0)
        now = stamp(group.order.tick(), threads, level)
        self.read[index] = now
        self._merge(group, index, lanes, threads, now)

    def _merge(self, group: Group, index: Any, lanes: Lanes, threads: Lanes, now: Array) -> None:
        """Readers that lost the race for the entry raise its level to what holds all of them."""
        kept = self.read[index]
        lost = np.flatnonzero(kept != now)
        if len(lost):
            near = group.order.relation(lanes[lost], threads[lost], thread_of(kept[lost]))
            level = np.maximum(np.maximum(near, level_of(now[lost])), level_of(kept[lost]))
            raised = stamp(int(time_of(now[:1])[0]), thread_of(kept[lost]), level)
            np.maximum.at(self.read, index[lost], raised)

    def mark_read(self, group: Group, offsets: Lanes, size: int) -> None:
        """Record a read of memory that nobody writes."""
        index = self._pieces(group, offsets, size)[0]  # may replace self.read
        self.read[index] = 0

    def check_write(self, group: Group, offsets: Lanes, size: int) -> Array:
        """Record a write. Raises Fault when an earlier access is not ordered before.

        Returns the positions of lanes whose bytes another lane of the warp writes in the same instruction.
        """
        index, lanes, threads = self._pieces(group, offsets, size)
        self._check(group, lanes, threads, self.written[index], "writes where {} wrote")
        self._check(group, lanes, threads, self.read[index], "writes where {} read")
        now = stamp(group.order.tick(), threads)
        self.written[index] = now
        kept = self.written[index]
        lost = np.flatnonzero(kept != now)
        if len(lost):
            near = group.order.relation(lanes[lost], threads[lost], thread_of(kept[lost]))
            if (far := np.flatnonzero(near > WARP)).size:
                other = group.order.describe(int(kept[lost[far[0]]]))
                raise Fault(f"race: writes where {other} writes too", int(lost[far[0]]) % group.size)
        return lost % group.size

    def _settled(self, group: Group, threads: Lanes, stamps: Array) -> bool:
        """Quick test: no access, or each before the CTA's last barrier, or each by the same thread alone."""
        newest = int(stamps.max())
        if newest < 0 or (self.private and int(time_of(np.array(newest))) < group.order.floor):
            return True
        return bool((stamps & ALONE == threads).all())

    def _check(self, group: Group, lanes: Lanes, threads: Lanes, stamps: Array, reason: str) -> None:
        if self._settled(group, threads, stamps):
            return
        bad = np.flatnonzero(group.order.unordered(lanes, threads, stamps))
        if len(bad):
            first = int(bad[0])
            other = group.order.describe(int(stamps[first]))
            other += " and others" if int(level_of(stamps[first : first + 1])[0]) else ""
            cure = "no barrier between"
            if (
                int(group.order.relation(lanes[bad[:1]], threads[bad[:1]], thread_of(stamps[bad[:1]]))[0])
                > CTA
            ):
                cure = "and CTAs are never ordered"
            raise Fault(f"race: {reason.format(other)}, {cure}", first % group.size)
