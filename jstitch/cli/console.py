"""What commands print tables with: text is text, whatever brackets and colons are in names."""

from __future__ import annotations

from rich.console import Console


def plain_console(width: int = 0, *, stderr: bool = False) -> Console:
    """width: at least so many columns where no window limits them."""
    console = Console(markup=False, emoji=False, stderr=stderr)
    console.width = console.width if console.is_terminal else max(console.width, width)
    return console
