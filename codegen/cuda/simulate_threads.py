"""What threads do together: barriers and shuffles, with who must take part checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from jstitch.codegen.cuda.simulate_index import Index
from jstitch.codegen.cuda.simulate_lanes import WARP, Array
from jstitch.codegen.cuda.simulate_order import Order
from jstitch.codegen.cuda.simulate_state import State


class Threads:
    """Barriers and shuffles of one launch. Counts barriers: one for each CTA, team or warp that waits."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.barriers = self.team_barriers = self.warp_barriers = 0

    def barrier(self, state: State) -> None:
        """All threads of the CTA, or none of them."""
        lanes, mask = state.lanes, state.active.mask
        slots = lanes.slot[:: lanes.block]
        if mask is not None:
            each = mask.reshape(-1, lanes.block)
            partial = each.any(1) & ~each.all(1)
            if partial.any():
                self._absent(
                    state, lanes.block, "all threads of the CTA at barrier()", np.repeat(partial, lanes.block)
                )
            slots = slots[each.any(1)]
        self.order.whole(slots)
        self.barriers += len(slots)

    def warp(self, state: State) -> None:
        """All lanes of the warp, or none of them."""
        rows = self.whole_warps(state, "barrier_warp()")
        self.order.warp(rows)
        self.warp_barriers += len(rows)

    def team(self, state: State, number: Index, threads: int) -> None:
        """Exactly `threads` threads of the CTA, in whole warps, with one barrier number."""
        rows = self.whole_warps(state, "barrier_team()")
        lanes, numbers = state.active.lanes, state.per_lane(number.raw)
        if numbers.min() < 1 or numbers.max() > 15 or threads % WARP:
            state.fail(
                "a barrier number in 1..15 and a multiple of 32 threads", f"{numbers.max()}, {threads}", 0
            )
        first = np.unique(lanes.row, return_index=True)[1]
        self._one_number(state, numbers, lanes.row, first)
        teams = lanes.slot[first] * 16 + numbers[first]
        for team in np.unique(teams):
            members = rows[teams == team]
            if len(members) * WARP != threads:
                lane = int(first[np.argmax(teams == team)])
                found = f"{len(members) * WARP} at barrier {int(team) % 16}"
                state.fail(f"{threads} threads of the CTA", found, lane)
            self.order.team(members)
            self.team_barriers += 1

    def _one_number(self, state: State, numbers: Array, rows: Array, first: Array) -> None:
        expected = numbers[first][np.searchsorted(rows[first], rows)]
        if (numbers != expected).any():
            lane = int(np.argmax(numbers != expected))
            state.fail("one barrier number for a warp", "two", lane)

    def shuffle(self, state: State, value: Any, source: Array, what: str) -> Any:
        """source: for every lane of the batch, the number of a lane in its warp."""
        self.whole_warps(state, what)
        lanes = state.lanes
        thread = lanes.thread - lanes.thread % WARP + source
        bad = (source < 0) | (source >= WARP) | (thread >= lanes.block)
        if state.per_lane(bad).any():
            state.fail_where(f"a lane of the warp in {what}", "another number", bad)
        if np.ndim(value) == 0:
            return value
        return value.take(np.arange(len(lanes)) - lanes.thread + np.where(bad, lanes.thread, thread))

    def whole_warps(self, state: State, what: str) -> Array:
        """Rows of the warps that run; every thread of each must be active."""
        lanes, active = state.active.lanes, state.active
        rows, first, count = np.unique(lanes.row, return_index=True, return_counts=True)
        if active.mask is not None:
            size = np.minimum(WARP, lanes.block - lanes.thread[first] // WARP * WARP)
            partial = rows[count < size]
            if len(partial):
                here = state.lanes.row == partial[0]
                self._absent(state, WARP, f"all lanes of the warp at {what}", here)
        return np.asarray(rows)

    def _absent(self, state: State, group: int, expected: str, where: Array) -> None:
        """Name the first active thread of a group of which others are missing."""
        mask = state.active.mask
        assert mask is not None
        here = np.flatnonzero(where & mask)[0]
        missing = state.lanes.thread[np.flatnonzero(where & ~mask)[0]]
        lane = int(np.count_nonzero(mask[:here]))
        state.fail(expected, f"thread {int(missing)} missing", lane)
