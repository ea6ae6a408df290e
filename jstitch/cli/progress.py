"""A progress bar on standard error for what turns out to take more than two seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

PATIENCE = 2.0  # seconds without a bar


@contextmanager
def progress(total: int | None = None, patience: float = PATIENCE) -> Iterator[Callable[[str], None]]:
    """`step(what)` says what begins now; the bar counts the steps before it.

    total: steps in all, None where nobody knows. Nothing is written when standard error is no terminal.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task, begun = bar.add_task("", total=total), 0
    timer = threading.Timer(patience, bar.start)
    timer.daemon = True

    def step(what: str) -> None:
        nonlocal begun
        bar.update(task, description=what, completed=begun)
        begun += 1

    timer.start()
    try:
        yield step
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
