"""One race in the background: our version of a function, XLA's, and ours without one kernel or another.

    rivals = Rivals((ours, xla, without_softmax), arguments, {})
    Due(key, "step", rivals, ("ours", "xla", "fewer softmax"), None, 3.0, None).run(stop)

On random arguments of their own. What is to replace ours must be faster twice, the second time alone and on
other arrays; and take about as much memory. The verdict is kept in the performance library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax

from jstitch import _jax
from jstitch.frontend.measure import FLOOR, Measurer, Rivals, fed
from jstitch.frontend.measured_gate import Decision
from jstitch.frontend.probe import Program, Step
from jstitch.runtime.device_name import cpu_device, free_bytes
from jstitch.runtime.performance_library import PerformanceLibrary, Verdict, library_path, shared_library
from jstitch.runtime.race import Race, race
from jstitch.runtime.tuning_session import TuningSession, UnmeasuredError
from jstitch.runtime.versions import measured_with

KIND, FEWER, MORE = "race", "fewer", "more"
SPARED = 16  # races take at most this part of the memory that is free
CALLS = 30  # of the slower one: of some five rounds
MEMORY = 1.25  # times ours, and FLOOR, is what XLA's version may take to be chosen


@dataclass(frozen=True)
class Due:
    """A race that is due. rivals: our version, and others. choices: what each one stands for, in a verdict.

    key: of the verdict. bolder: makes our version with kernels that the model is not sure of, when the race
    begins, if it is another one. seconds: for the race, at most.
    """

    key: str
    name: str
    rivals: Rivals
    choices: tuple[str, ...]
    bolder: Callable[[], Program | None] | None
    seconds: float
    cache_dir: str | None

    def run(self, stop: Callable[[], bool]) -> Decision | None:
        """Run it on this thread; None where it has been, or cannot be run. stop: ends it as it is."""
        with TuningSession(library_of(self.cache_dir), self.seconds, shown=False) as session:
            verdict, how = session.settle(self.key, self.name, partial(self._measure, stop), 1.0)
        return Decision(self.name, verdict.choice.split()[0], verdict.ours, verdict.xla, how)

    def _measure(self, stop: Callable[[], bool], seconds: float) -> Verdict:
        device = jax.local_devices(backend="cpu")[0]
        rivals, choices = self._all()
        most = max(FLOOR, (free_bytes(device) or 0) // SPARED)
        with _jax.measuring():
            steps = Measurer(device).ready(rivals, most, seconds / 2, stop)
            heat = self._heat(steps, device, seconds / 2, stop, 0)
            best = min(range(1, len(steps)), key=lambda n: heat.ratio(n, 0).value)
            if heat.ratio(best, 0).value >= 1:
                return _verdict(choices[0], heat, 1)
            final = self._heat([steps[0], steps[best]], device, seconds / 2, stop, 1)
        ours, others = steps[0].footprint.nbytes, steps[best].footprint.nbytes
        lost = final.ratio(1, 0).is_less and others <= MEMORY * ours + FLOOR
        return _verdict(choices[best if lost else 0], final, 1)

    def _all(self) -> tuple[Rivals, tuple[str, ...]]:
        """At least two: who has no rival is there twice, so that it is known and not asked again."""
        programs, choices = self.rivals.programs, self.choices
        bold = self.bolder() if self.bolder is not None else None
        if bold is not None:
            programs, choices = (*programs, bold), (*choices, MORE)
        if len(programs) == 1:
            programs, choices = programs * 2, choices * 2
        return replace(self.rivals, programs=programs), choices

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


def _verdict(choice: str, heat: Race, other: int) -> Verdict:
    """other: the step of the heat that ran against ours."""
    return Verdict(KIND, heat.seconds(0), heat.seconds(other), len(heat.rounds), choice)


def _call_seconds(step: Callable[[], object]) -> float:
    """Of the second call: the first one sets things up."""
    step()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def library_of(cache_dir: str | None) -> PerformanceLibrary:
    """Where verdicts on this CPU are kept."""
    return shared_library(library_path(cache_dir), cpu_device(), measured_with())
