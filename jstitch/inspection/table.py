"""Tables that print well, for what is made without a terminal in mind: rich is imported only to print."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text


class Printed(Table):
    """A rich table that `print` and `str` show too, without colours."""

    def __str__(self) -> str:
        console = Console(width=110, color_system=None, force_terminal=False, force_jupyter=False)
        with console.capture() as capture:
            console.print(self)
        return "\n".join(line.rstrip() for line in capture.get().splitlines())


def html(table: Printed, notes: Iterable[str]) -> str:
    """For notebooks: the table, and what stands below it."""
    console = Console(width=150, record=True, file=io.StringIO(), force_jupyter=False)
    console.print(table)
    for note in notes:
        console.print(Text(note))
    code = "<pre style='line-height: 1.2'>{code}</pre>"
    return console.export_html(inline_styles=True, code_format=code)


def rules(title: str, rows: Iterable[tuple[str, str, str, str]]) -> Printed:
    """A table of edges: what, the rule, the reason, the remedy."""
    table = _titled(title, show_lines=True)
    for head in ("edge", "rule", "why", "remedy"):
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def build(title: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Printed:
    """The first column to the left, the others to the right."""
    table = _titled(title)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _titled(title: str, *, show_lines: bool = False) -> Printed:
    """Names in the title are no markup. rich makes titles italic when they are text of its own."""
    shown = Text(title, "table.title")
    return Printed(title=shown, title_justify="left", min_width=min(110, len(title)), show_lines=show_lines)
