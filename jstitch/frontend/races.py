"""When races in the background are run: one thread, while nothing is compiled, a small share of the time.

RACES.add(due)          a call was lowered
... jax compiles it     the race may begin, QUIET seconds later
race_now()              all of them, now
at exit                 those that have not begun are dropped; the one under way is stopped
"""

from __future__ import annotations

import atexit
import os
import threading
import time

import jax

from jstitch.frontend.background_race import Due
from jstitch.frontend.measured_gate import Decision
from jstitch.runtime.telemetry import logger
from jstitch.runtime.tuning_session import UnmeasuredError

QUIET = 3.0  # seconds without a compilation, before a race
SHARE = 0.05  # of the process's time that races take at most
MOST = 64  # races that wait; those that come later are not run
COMPILED = "/jax/core/compile/backend_compile_duration"
THREAD = "jstitch-race"
_LOG = logger("tune")


class Races:
    """Of one process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """As in a process that has just begun, such as a forked one: threads do not survive that."""
        self._changed = threading.Condition()
        self._lowered: dict[str, Due] = {}
        self._ready: dict[str, Due] = {}
        self._thread: threading.Thread | None = None
        self._running = threading.Lock()
        self._racer: int | None = None
        self._closed = False
        self._spent, self._began = 0.0, time.monotonic()
        self._busy = self._began

    def add(self, due: Due) -> None:
        """Have a race run once its call has been compiled."""
        with self._changed:
            if len(self._lowered) + len(self._ready) < MOST:
                self._lowered.setdefault(due.key, due)

    def compiled(self) -> None:
        """JAX has compiled something: what was lowered before it, most likely."""
        if self._racer == threading.get_ident():
            return
        with self._changed:
            self._busy = time.monotonic()
            self._ready |= self._lowered
            self._lowered.clear()
            if self._ready and self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()

    def race_now(self) -> tuple[Decision, ...]:
        """Run all of them on this thread."""
        with self._changed:
            due = [*self._ready.values(), *self._lowered.values()]
            self._ready.clear()
            self._lowered.clear()
        decisions = (self._race(one) for one in due)
        return tuple(decision for decision in decisions if decision is not None)

    def _run(self) -> None:
        while (due := self._next()) is not None:
            begun = time.monotonic()
            self._race(due)
            self._spent += time.monotonic() - begun

    def _next(self) -> Due | None:
        """The next race, when it is time for it; None, and the thread is gone, when there is none."""
        with self._changed:
            while self._ready and not self._closed:
                if (pause := self._pause()) <= 0:
                    return self._ready.pop(next(iter(self._ready)))
                self._changed.wait(pause)
            self._thread = None
            return None

    def _pause(self) -> float:
        """Seconds until it is time for a race."""
        return max(self._busy + QUIET, self._began + self._spent / SHARE) - time.monotonic()

    def _race(self, due: Due) -> Decision | None:
        """Who won; None where nobody can tell, which the log says."""
        with self._running:
            self._racer = threading.get_ident()
            try:
                decision = due.run(lambda: self._closed)
            except UnmeasuredError as error:
                _LOG.info("%s: not raced: %s", due.name, error)
                return None
            except Exception as error:
                _LOG.info("%s: the race failed: %s: %s", due.name, type(error).__name__, error)
                return None
            finally:
                self._racer = None
        _LOG.info("%s: raced in the background: %s", due.name, decision)
        return decision

    def close(self) -> None:
        """Drop those that have not begun, and end the one that has."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()


RACES = Races()
atexit.register(RACES.close)


def race_now() -> tuple[Decision, ...]:
    """Race, now and here, what this process has compiled with kernels against XLA's own versions.

    Who runs each function from its next compilation on, in this process (`f.clear_cache()`) and in others.
    Without it races are run in the background, when nothing is compiled: see docs/tuning.md. Functions that
    were raced before, and those that cannot be (effects, loops as long as data say, GPUs), are left out.
    """
    return RACES.race_now()


def _listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event == COMPILED:
        RACES.compiled()


jax.monitoring.register_event_duration_secs_listener(_listen)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RACES.forget)
