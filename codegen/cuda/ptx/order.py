"""Which accesses are ordered: every access and every barrier has a time; each thread knows its last barriers.

An access of thread u at time s is ordered before one of thread t when t has since taken part in a barrier of
the whole CTA, or of a team with u, or of u's warp. Threads of different CTAs are never ordered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.ptx.scalar import Array

Times = NDArray[np.int64]

THREAD_BITS = 33
ALONE = (1 << THREAD_BITS + 3) - 1  # the thread and the level, which is 0 for SAME
SAME, WARP, TEAM, CTA, GRID = range(5)


@dataclass
class Clock:
    """The launch's time: the number of the memory instruction or barrier. lines: which one each was."""

    lines: list[int] = field(default_factory=lambda: [0])

    def tick(self, line: int) -> int:
        """A new moment, at a line of the text."""
        self.lines.append(line)
        return len(self.lines) - 1


def stamp(time: int, threads: Times, level: int | Array = SAME) -> Array:
    """One number for an access: time, how many others share it (a level), the thread."""
    return (np.int64(time << 3) + level << THREAD_BITS) | threads


def thread_of(stamps: Array) -> Array:
    """The threads in stamps."""
    return stamps & ((1 << THREAD_BITS) - 1)


def level_of(stamps: Array) -> Array:
    """The levels in stamps."""
    return stamps >> THREAD_BITS & 7


def time_of(stamps: Array) -> Array:
    """The times in stamps."""
    return stamps >> (THREAD_BITS + 3)


class Order:
    """Barrier times of a batch's threads; `first` is the number of the batch's first thread in the launch."""

    def __init__(self, clock: Clock, block: int, ctas: int, first: int) -> None:
        self.clock, self.block, self.first, self.line = clock, block, first, 0
        count = block * ctas
        self.cta_time: Times = np.full(count, len(clock.lines) - 1)
        self.team_time: Times = np.full(count, -1)
        self.team: Times = np.arange(count)
        self.warp_time: Times = np.full(count, -1)
        warps = -(-block // 32)
        lanes = np.arange(count)
        self.slot: Times = lanes // block * warps * 32 + lanes % block  # warps padded to 32 lanes
        self.slots = ctas * warps * 32
        self.floor = len(clock.lines) - 1  # every lane's last CTA barrier is not before

    def tick(self) -> int:
        """A new moment, at the line that runs now."""
        return self.clock.tick(self.line)

    def cta_barrier(self, lanes: Any) -> None:
        """The lanes, whole CTAs, have met."""
        self.cta_time[lanes] = self.tick()
        self.floor = int(self.cta_time.min())

    def team_barrier(self, lanes: Times, keys: Times) -> None:
        """The lanes have met, in the groups that the keys name."""
        time = self.tick()
        self.team_time[lanes] = time
        self.team[lanes] = (time << 20) + keys

    def warp_barrier(self, lanes: Times) -> None:
        """The lanes, whole warps, have met."""
        self.warp_time[lanes] = self.tick()

    def relation(self, lanes: Times, threads: Times, others: Times) -> Array:
        """SAME, WARP, TEAM, CTA or GRID: the smallest group that holds thread and other."""
        near = threads // self.block == others // self.block
        other = np.where(near, others - self.first, 0)
        team = (self.team[lanes] == self.team[other]) & (self.team_time[lanes] >= 0)
        warp = self.slot[lanes] // 32 == self.slot[other] // 32
        level = np.where(warp, WARP, np.where(team, TEAM, CTA))
        return np.where(near, np.where(threads == others, SAME, level), GRID)

    def unordered(self, lanes: Times, threads: Times, stamps: Array) -> Array:
        """Whether each lane's access now is unordered after the access in the stamp (-1: there was none)."""
        time = time_of(stamps)
        group = np.maximum(self.relation(lanes, threads, thread_of(stamps)), level_of(stamps))
        ordered = (group <= CTA) & (self.cta_time[lanes] > time)
        ordered |= (group <= TEAM) & (self.team_time[lanes] > time)
        ordered |= (group <= WARP) & (self.warp_time[lanes] > time)
        return np.asarray(~ordered & (group != SAME) & (stamps >= 0))

    def describe(self, stamp: int) -> str:
        """Who made the access in a stamp, and where."""
        cta, thread = divmod(int(thread_of(np.array(stamp))), self.block)
        return f"thread {thread} of CTA {cta} at line {self.clock.lines[int(time_of(np.array(stamp)))]}"
