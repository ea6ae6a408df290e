"""One function's tuning: verdicts from the library, or measured within a budget, one measurement at a time.

    with TuningSession(library, 20.0) as session:
        verdict, how = session.settle(key, "softmax_0", measure, share=0.6)     # 'stored' or 'measured'

On a terminal a bar shows how much of the budget is spent, and on what.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from jstitch.runtime.file_lock import locked
from jstitch.runtime.performance_library import PerformanceLibrary, Verdict

if TYPE_CHECKING:
    from rich.progress import Progress


class UnmeasuredError(Exception):
    """Something was not measured; the message says why."""


class TuningSession:
    """Seconds of measuring left for one function."""

    def __init__(self, library: PerformanceLibrary, seconds: float, *, shown: bool = True) -> None:
        """shown: on a terminal."""
        self.library, self.seconds, self.shown = library, seconds, shown
        self._spent = 0.0
        self._since: float | None = None
        self._bar: Progress | None = None
        self._stack = ExitStack()

    def __enter__(self) -> TuningSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def settle(
        self, key: str, subject: str, measure: Callable[[float], Verdict], share: float
    ) -> tuple[Verdict, str]:
        """The verdict and 'stored' or 'measured'; measure(seconds) is asked for at most once per machine.

        share: of the budget, that may be spent when this is done. Raises UnmeasuredError when it is spent.
        """
        known = self._stored(key)
        if known is not None:
            return known, "stored"
        self._since = time.monotonic()
        try:
            return self._measure(key, subject, measure, share)
        finally:
            self._spent += time.monotonic() - self._since
            self._since = None

    def _measure(
        self, key: str, subject: str, measure: Callable[[float], Verdict], share: float
    ) -> tuple[Verdict, str]:
        left = self._left(share)
        if left <= 0:
            raise UnmeasuredError(f"the budget of {self.seconds:g} s is spent")
        self._show(subject)
        with ExitStack() as stack:
            if self.library.lock is not None and not stack.enter_context(locked(self.library.lock, left)):
                raise UnmeasuredError("other processes were measuring all the time")
            known = self._stored(key)  # another process may have measured it while this one waited
            if known is not None:
                return known, "stored"
            verdict = measure(max(self._left(share), 0.0))
            self.library.decide(key, verdict)
            return verdict, "measured"

    def _stored(self, key: str) -> Verdict | None:
        known = self.library.verdict(key)
        return known if known is not None and known.measured else None

    def _left(self, share: float) -> float:
        """Seconds until that share is spent; what is planned and built in between costs nothing."""
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return share * self.seconds - self._spent - running

    def _show(self, subject: str) -> None:
        if self._bar is None:
            if not (self.shown and sys.stderr.isatty()):
                return
            from jstitch.runtime.progress import budget_bar

            self._bar = budget_bar()
            self._stack.enter_context(self._bar)
            self._bar.add_task(subject, total=self.seconds)
        task = self._bar.task_ids[0]
        self._bar.update(task, description=subject, completed=self.seconds - self._left(1.0))
