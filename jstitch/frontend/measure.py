"""Race compiled programs on a device, on a thread that knows nothing of the lowering that asks for it.

    Measurer(device).race(Rivals((xla, ours), arguments, donated={}), 1.0, most_bytes=None)   ->   Race

A lowering holds an MLIR context, a trace and settings; a new thread has none of them. All rivals run on the
same arrays: what one of them gives away comes back as its results, and the next one takes those.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from jstitch import _jax
from jstitch.frontend.probe import Program, Step
from jstitch.frontend.probe_inputs import Argument, make_arguments
from jstitch.runtime.device_name import free_bytes
from jstitch.runtime.race import Race, race
from jstitch.runtime.tuning_session import UnmeasuredError

T = TypeVar("T")

FLOOR = 32 << 20
"""Bytes that measuring may always hold: less than compiling a program takes for itself."""
ROUNDING = 64  # a part that the sizes of buffers are rounded up by


@dataclass(frozen=True)
class Rivals:
    """Programs with the same arguments and results. donated: argument -> the result in its memory.

    turns: how often each runs per call.
    """

    programs: tuple[Program, ...]
    arguments: tuple[Argument, ...]
    donated: Mapping[int, int]
    turns: int = 1


class Measurer:
    """Compiles and runs on one device."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._kept: dict[Program, Step] = {}

    def footprint(self, rivals: Rivals) -> int:
        """Bytes that the first of them holds while it runs. It is kept compiled, for a later race."""
        program = rivals.programs[0]

        def compile_first(_: Callable[[], bool]) -> int:
            step = self._kept[program] = Step(program, self.device, rivals.donated)
            return step.footprint.nbytes

        return apart(compile_first)

    def race(self, rivals: Rivals, seconds: float, most_bytes: int | None) -> Race:
        """Raises UnmeasuredError when the rivals need more memory than `most_bytes`, or than is free."""

        def run(stop: Callable[[], bool]) -> Race:
            steps = self.ready(rivals, most_bytes)
            with fed(steps, rivals, self.device):
                return race(steps, seconds, stop)

        return apart(run)

    def ready(
        self,
        rivals: Rivals,
        most_bytes: int | None,
        seconds: float = math.inf,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Step]:
        """Compiled, on this thread: all of them, or the first, two at least, in about so many seconds.

        Raises UnmeasuredError as `race` does, and when `stop` says so.
        """
        end, steps = time.monotonic() + seconds, list[Step]()
        for program in rivals.programs:
            if len(steps) >= 2 and time.monotonic() >= end:
                break
            if stop():
                raise UnmeasuredError("the process ended")
            steps.append(self._compile(program, rivals))
        _check_memory(steps, most_bytes, free_bytes(self.device))
        return steps

    def _compile(self, program: Program, rivals: Rivals) -> Step:
        kept = self._kept.get(program) if rivals.turns == 1 else None
        return kept or Step(program, self.device, rivals.donated, rivals.turns)


@contextmanager
def fed(steps: Sequence[Step], rivals: Rivals, device: Any, seed: int = 0) -> Iterator[None]:
    """With random arguments, the same for all of them."""
    arrays = make_arguments(rivals.arguments, device, seed)
    for step in steps:
        step.feed(arrays)
    try:
        yield
    finally:
        for step in steps:
            step.feed([])


def _check_memory(steps: list[Step], most: int | None, free: int | None) -> None:
    needed = steps[0].footprint.arguments + max(step.footprint.others for step in steps)
    if most is not None and needed > max(most + most // ROUNDING, FLOOR):
        raise UnmeasuredError(f"measuring takes {needed / 1e6:.1f} MB, the function {most / 1e6:.1f} MB")
    if free is not None and needed > free:
        raise UnmeasuredError(f"measuring takes {needed / 1e6:.1f} MB, {free / 1e6:.1f} MB are free")


def apart(function: Callable[[Callable[[], bool]], T]) -> T:
    """function(stop) on a new thread with settings for measuring; what it returns or raises.

    stop() becomes true when the caller no longer waits (Ctrl-C).
    """
    return begin_apart(function)()


def begin_apart(function: Callable[[Callable[[], bool]], T]) -> Callable[[], T]:
    """`apart`, begun: what is returned waits, however often it is called."""
    stopped = threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with _jax.measuring():
                results.append(function(stopped.is_set))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="jstitch-measure", daemon=True)
    thread.start()

    def wait() -> T:
        try:
            thread.join()
        finally:
            stopped.set()
        if errors:
            raise errors[0]
        return results[0]

    return wait
