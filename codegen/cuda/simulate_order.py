"""Which memory accesses of other threads a thread may rely on: a vector clock for each warp.

    time 4: warp 0 writes         known[slot, 1, 0] = 0: warp 1 must not read yet
    time 5: barrier of the CTA    known[slot, :, :] = 5: it may

Time is one counter that every access and barrier advances. `known[slot, w, v]` is the time up to which warp w
knows what warp v did; the diagonal is the last time the lanes of a warp waited for each other.
"""

from __future__ import annotations

import numpy as np

from jstitch.codegen.cuda.simulate_lanes import Array


class Order:
    """Clocks of a launch's batches; `slots` CTAs of `warps` warps each."""

    def __init__(self, slots: int, warps: int) -> None:
        self.warps = warps
        self.time = self.start = 1
        self._known = np.zeros((slots * warps, warps), np.int32)
        self._least = np.zeros(slots * warps, np.int32)

    def tick(self) -> int:
        """The time of the access that comes next."""
        self.time += 1
        return self.time

    def start_batch(self) -> None:
        """New CTAs: what earlier ones did is over (launches share no arena)."""
        self.start = self.tick()
        self._known[:] = self._least[:] = self.start

    def least(self, rows: Array) -> Array:
        """For each warp (by row, slot * warps + warp) the time up to which it knows its whole CTA."""
        return self._least[rows]

    def knows(self, rows: Array, warp: Array, time: Array | int) -> Array:
        """Does each warp of `rows` know what `warp` of its CTA did at `time`?"""
        return np.asarray(self._known[rows, warp] >= time)

    def own(self, rows: Array) -> Array:
        """The last time the lanes of each warp waited for each other."""
        return np.asarray(self._known[rows, rows % self.warps])

    def whole(self, slots: Array) -> None:
        """A barrier of all threads of these CTAs."""
        rows = (slots[:, None] * self.warps + np.arange(self.warps)).ravel()
        self._known[rows] = self._least[rows] = self.tick()

    def warp(self, rows: Array) -> None:
        """The lanes of each of these warps wait for each other."""
        self._known[rows, rows % self.warps] = self.tick()
        self._least[rows] = self._known[rows].min(1)

    def team(self, rows: Array) -> None:
        """A barrier of these warps of one CTA."""
        self._known[rows] = self._known[rows].max(0)
        self._known[np.ix_(rows, rows % self.warps)] = self.tick()
        self._least[rows] = self._known[rows].min(1)
