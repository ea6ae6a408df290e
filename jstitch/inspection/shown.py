"""What one looks at in a terminal, a notebook or a browser: a table with lines below it, and a page.

print(plan)     the table          plan     in a notebook: the page of `jstitch report`, in a frame of its own
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from string import Template
from typing import Any

Printed = Any  # table.Printed: rich is a tenth of `import jstitch`, only for printing

# The page is a document of its own, without an origin: its script reaches nothing of the notebook. The frame
# tells it whether the notebook is dark: then text around the frame is light. Where frames and scripts are
# taken out (on GitHub, in notebooks that nobody trusts), the table is left.
_FRAMED = Template("""<details><summary>${title}</summary>${table}</details>
<iframe title="${title}" sandbox="allow-scripts" onload="${tell}" srcdoc="${page}"
 style="width: 100%; height: 640px; border: 1px solid #8886; resize: vertical"></iframe>
""")
_TELL = """const [red, green, blue] = getComputedStyle(this).color.match(/[\\d.]+/g);
const light = 0.3 * red + 0.6 * green + 0.1 * blue;
this.contentWindow.postMessage({scheme: light > 127 ? 'dark' : 'light'}, '*');"""


class Shown:
    """Prints as a table with lines below it, also in a notebook."""

    @property
    def title(self) -> str:
        """In one line."""
        raise NotImplementedError

    def notes(self) -> Iterator[str]:
        """What stands below the table."""
        raise NotImplementedError

    def __rich__(self) -> Printed:
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join([str(self.__rich__()), *self.notes()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from jstitch.inspection import table

        return table.html(self.__rich__(), self.notes())


@dataclass(frozen=True, repr=False)
class Paged(Shown):
    """In a notebook a page, with the table above it.

    page: makes it, as HTML; None where it is not known what was observed: in copies of it.
    """

    page: Callable[[], str] | None = field(default=None, repr=False, compare=False, kw_only=True)

    def to_html(self) -> str:
        """The page of `jstitch report`: one HTML file that loads nothing. Kernels have no source in it.

        Raises ValueError for what was pickled or copied: the program is not in it.
        """
        if self.page is None:
            found = f"a {type(self).__name__} that was pickled or copied"
            raise ValueError(f"Expected what jstitch.plan or explain returned, found {found}; make it again.")
        return self.page()

    def _repr_html_(self) -> str:
        told = super()._repr_html_()
        return told if self.page is None else framed(self.title, told, self.page())

    def __getstate__(self) -> dict[str, Any]:
        """Without the program, which cannot be pickled."""
        return {name: value for name, value in self.__dict__.items() if name != "page"}


def framed(title: str, table: str, page: str) -> str:
    """HTML for a notebook: the table, folded, and the page. title, page: as they are. table: HTML."""
    return _FRAMED.substitute(
        title=html.escape(title), table=table, tell=html.escape(_TELL), page=html.escape(page)
    )
