"""One race in the background: XLA's version of a function and ours, on random arguments of their own.

    Due(key, "step", Rivals((xla, ours), arguments, donated={}), 3.0, None).run(stop)   ->   Decision

That XLA's own is faster must show twice, on other arrays; and it must take about as much memory. The verdict
is kept in the performance library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from jstitch import _jax
from jstitch.frontend.measure import FLOOR, Measurer, Rivals, fed
from jstitch.frontend.measured_gate import OURS, XLA, Decision
from jstitch.frontend.probe import Step
from jstitch.runtime.device_name import cpu_device, free_bytes
from jstitch.runtime.performance_library import PerformanceLibrary, Verdict, library_path, shared_library
from jstitch.runtime.race import Race, race
from jstitch.runtime.tuning_session import TuningSession, UnmeasuredError
from jstitch.runtime.versions import measured_with

KIND = "race"
SPARED = 16  # races take at most this part of the memory that is free
CALLS = 30  # of the slower one: of some five rounds
MEMORY = 1.25  # times ours, and FLOOR, is what XLA's version may take to be chosen


@dataclass(frozen=True)
class Due:
    """A race that is due. rivals: XLA's version, then ours. seconds: for it, at most."""

    key: str
    name: str
    rivals: Rivals
    seconds: float
    cache_dir: str | None

    def run(self, stop: Callable[[], bool]) -> Decision | None:
        """Run it on this thread; None where it has been, or cannot be run. stop: ends it as it is."""
        with TuningSession(library_of(self.cache_dir), self.seconds, shown=False) as session:
            verdict, how = session.settle(self.key, self.name, partial(self._measure, stop), 1.0)
        return Decision(self.name, verdict.choice, verdict.ours, verdict.xla, how)

    def _measure(self, stop: Callable[[], bool], seconds: float) -> Verdict:
        device = jax.local_devices(backend="cpu")[0]
        most = max(FLOOR, (free_bytes(device) or 0) // SPARED)
        with _jax.measuring():
            steps = Measurer(device).ready(self.rivals, most)
            heats = [self._heat(steps, device, seconds / 2, stop, 0)]
            if heats[0].ratio(1, 0).value > 1:
                heats.append(self._heat(steps, device, seconds / 2, stop, 1))
        xla, ours = (step.footprint.nbytes for step in steps)
        return _verdict(heats, fits=xla <= MEMORY * ours + FLOOR)

    def _heat(
        self, steps: Sequence[Step], device: Any, seconds: float, stop: Callable[[], bool], seed: int
    ) -> Race:
        with fed(steps, self.rivals, device, seed):
            slowest = max(map(_call_seconds, steps))
            if slowest * CALLS > seconds:
                raise UnmeasuredError(f"a call takes {slowest:.2g} s, race_seconds is {self.seconds:g}")
            found = race(steps, seconds, stop)
        if stop():
            raise UnmeasuredError("the process ended")
        return found


def _call_seconds(step: Callable[[], object]) -> float:
    """Of the second call: the first one sets things up."""
    step()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _verdict(heats: Sequence[Race], fits: bool) -> Verdict:
    """fits: whether XLA's version takes about the same memory."""
    both = Race(tuple(times for heat in heats for times in heat.rounds))
    lost = both.ratio(1, 0).is_more and all(heat.ratio(1, 0).value > 1 for heat in heats)
    choice = XLA if lost and fits else OURS
    return Verdict(KIND, both.seconds(1), both.seconds(0), len(both.rounds), choice)


def library_of(cache_dir: str | None) -> PerformanceLibrary:
    """Where verdicts on this CPU are kept."""
    return shared_library(library_path(cache_dir), cpu_device(), measured_with())
