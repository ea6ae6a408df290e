"""Tables that print well: the only module of the analysis that imports rich."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table


class Printed(Table):
    """A rich table that `print` and `str` show too, without colours."""

    def __str__(self) -> str:
        console = Console(width=110, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(self)
        return "\n".join(line.rstrip() for line in capture.get().splitlines())


def build(title: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Printed:
    """The first column to the left, the others to the right."""
    table = Printed(title=title, title_justify="left", min_width=min(110, len(title)))
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table
