"""Compiling in the background: one worker thread for the process, ended cleanly with it.

submit(job)     the job runs on the worker, after those before it
at exit         jobs that have not begun are dropped; the one under way is waited for
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable

Job = Callable[[], None]


class Worker:
    """Runs jobs one by one on a daemon thread that lives as long as there are any."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> bool:
        """Queue a job, which must not raise. False when the process is ending: it will never run."""
        with self._lock:
            if self._closed:
                return False
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jstitch-compile", daemon=True)
                self._thread.start()
            return True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            job()

    def close(self) -> None:
        """Drop the jobs that have not begun, and wait for the one that has."""
        with self._lock:
            self._closed = True
            self._jobs.clear()
            thread = self._thread
        if thread is not None:
            thread.join()


WORKER = Worker()
atexit.register(WORKER.close)
