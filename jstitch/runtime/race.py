"""Time steps against each other until the order is clear: blocks of calls in turn, ratios per round.

    race([plain, stitched], seconds=2.0)   ->   Race; .ratio(1, 0) == Ratio(0.61, 0.02) : stitched/plain

A program's temporaries are freed after its result is ready, so the next call, whoever's, pays for them: the
first call of every block is not timed. Drift of the machine hits both sides of a round and leaves its ratio.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Step = Callable[[], object]

BLOCK_SECONDS = 1e-3  # a block is at least so long, and at least BLOCK_CALLS calls
BLOCK_CALLS = 2
FEWEST_ROUNDS = 9  # the spread of five says little where times have two modes (fresh pages, or none)
MOST_ROUNDS = 41
CLEAR = 3.0  # standard errors between two sides that are told apart
SAME = 0.01  # ratios that near to 1 are a tie


@dataclass(frozen=True)
class Ratio:
    """Of two medians of times. error: standard error of its logarithm, from the spread over rounds."""

    value: float
    error: float

    @property
    def is_less(self) -> bool:
        """Below 1 beyond noise."""
        return math.log(self.value) < -max(2 * self.error, SAME)

    @property
    def is_more(self) -> bool:
        """Above 1 beyond noise."""
        return math.log(self.value) > max(2 * self.error, SAME)

    @property
    def is_settled(self) -> bool:
        """Whether more rounds would hardly change which it is."""
        distance = abs(math.log(self.value))
        return distance > CLEAR * self.error + SAME or distance + CLEAR * self.error < 2 * SAME


@dataclass(frozen=True)
class Race:
    """Seconds per call: one tuple for every round, one entry for every step."""

    rounds: tuple[tuple[float, ...], ...]

    def seconds(self, step: int) -> float:
        """The median over rounds."""
        return statistics.median(times[step] for times in self.rounds)

    def ratio(self, step: int, other: int) -> Ratio:
        """step's time over other's."""
        logs = [math.log(times[step] / times[other]) for times in self.rounds]
        middle = statistics.median(logs)
        spread = 1.4826 * statistics.median(abs(x - middle) for x in logs)  # of a normal distribution
        return Ratio(math.exp(middle), 1.2533 * spread / math.sqrt(len(logs)))

    @property
    def is_settled(self) -> bool:
        """Whether every step is told from the first one."""
        return all(self.ratio(step, 0).is_settled for step in range(1, len(self.rounds[0])))


def race(steps: Sequence[Step], seconds: float, stop: Callable[[], bool] = lambda: False) -> Race:
    """Rounds until the order is clear, or `seconds` are over, or `stop` says so; at least one round.

    Raises what a step raises.
    """
    end = time.monotonic() + seconds
    calls = _calls_per_block(steps)
    rounds: list[tuple[float, ...]] = []
    while True:
        order = range(len(steps)) if len(rounds) % 2 else range(len(steps) - 1, -1, -1)
        times = {n: _block(steps[n], calls) for n in order}
        rounds.append(tuple(times[n] for n in range(len(steps))))
        found = Race(tuple(rounds))
        enough = len(rounds) >= FEWEST_ROUNDS and found.is_settled
        if enough or len(rounds) >= MOST_ROUNDS or time.monotonic() >= end or stop():
            return found


def _calls_per_block(steps: Sequence[Step]) -> int:
    """As many as the slowest needs. The first call of a step sets things up, and is not counted."""
    for step in steps:
        step()
    slowest = max(_seconds(step, 1) for step in steps)
    return max(BLOCK_CALLS, round(BLOCK_SECONDS / max(slowest, 1e-9)))


def _block(step: Step, calls: int) -> float:
    step()
    return _seconds(step, calls)


def _seconds(step: Step, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - start) / calls
