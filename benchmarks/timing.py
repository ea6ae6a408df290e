"""Wall-clock samples of steps: interleaved in pairs, and each step alone.

XLA frees a program's temporaries after its result is ready: the same kernel took 11 ms, and 57 ms right
after XLA's. And each side pushes the other's data out of the caches that a size is named for. So every
interleaved sample follows a call of its own side that is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from benchmarks.workload import Problem

Step = Callable[[], Any]
SHORTEST_SAMPLE = 100e-6
FEWEST_SAMPLES = 15  # the median of 5 of one program was 3% off
MOST_SAMPLES = 2000
ALONE_ROUNDS = 3


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median, smallest, interquartile range, number of samples."""

    median: float
    smallest: float
    iqr: float
    samples: int

    @staticmethod
    def of(samples: Sequence[float]) -> Timing:
        """Of at least two samples."""
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return Timing(median, min(samples), high - low, len(samples))


@dataclass(frozen=True)
class Interleaved:
    """Two steps' samples in pairs taken one after the other. ratio: the median of first over second.

    What changes for both, as whether the threads of XLA's pool sleep or not, falls out of each pair; from the
    ratio of the medians it does not: a program's ratio to itself was 0.956.
    """

    first: Timing
    second: Timing
    ratio: float

    @staticmethod
    def of(pairs: Sequence[tuple[float, float]]) -> Interleaved:
        """Of at least two pairs."""
        first, second = (Timing.of(side) for side in zip(*pairs, strict=True))
        return Interleaved(first, second, statistics.median(a / b for a, b in pairs))


class JaxStep:
    """One call of a jitted function to the end; donated arguments are carried from call to call."""

    def __init__(self, jitted: Callable[..., Any], problem: Problem) -> None:
        self._jitted = jitted
        self._problem = problem
        self._args = problem.fresh_args()

    def __call__(self) -> Any:
        output = self._jitted(*self._args)
        jax.block_until_ready(output)  # type: ignore[no-untyped-call]
        self._args = self._problem.next_args(self._args, output)
        return output


def sample(step: Step, calls: int) -> float:
    """Mean seconds of `calls` calls."""
    start = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - start) / calls


def calls_per_sample(step: Step) -> int:
    """So many that a sample is not lost in the clock's noise."""
    step()
    fastest = min(sample(step, 1) for _ in range(3))
    return max(1, round(SHORTEST_SAMPLE / fastest))


def interleaved(first: Step, second: Step, seconds: float) -> Interleaved:
    """Samples of both in turn, each after a call that is not counted, for about `seconds`; who goes first
    alternates."""
    calls = max(calls_per_sample(first), calls_per_sample(second))
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while not _enough(len(pairs), FEWEST_SAMPLES, end):
        if len(pairs) % 2:
            late, early = _settled_sample(second, calls), _settled_sample(first, calls)
            pairs.append((early, late))
        else:
            pairs.append((_settled_sample(first, calls), _settled_sample(second, calls)))
    return Interleaved.of(pairs)


def _settled_sample(step: Step, calls: int) -> float:
    step()
    return sample(step, calls)


def alone(steps: Sequence[Step], seconds: float) -> tuple[Timing, ...]:
    """Each step in long runs of its own, about `seconds` each; the runs take turns against drift."""
    samples: list[list[float]] = [[] for _ in steps]
    for _ in range(ALONE_ROUNDS):
        for step, taken in zip(steps, samples, strict=True):
            taken.extend(_run_alone(step, seconds / ALONE_ROUNDS))
    return tuple(map(Timing.of, samples))


def _run_alone(step: Step, seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    calls = calls_per_sample(step)
    samples: list[float] = []
    while not _enough(len(samples), FEWEST_SAMPLES // ALONE_ROUNDS, end):
        samples.append(sample(step, calls))
    return samples


def _enough(taken: int, fewest: int, end: float) -> bool:
    return taken >= MOST_SAMPLES or (taken >= fewest and time.perf_counter() >= end)
