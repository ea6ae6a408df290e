"""The bar that shows how much of a budget of seconds is spent, and on what."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


def budget_bar() -> Progress:
    """On standard error, gone when it is closed; its tasks' totals are seconds."""
    columns = (
        TextColumn("jstitch measures {task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
