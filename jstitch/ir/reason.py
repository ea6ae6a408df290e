"""Why ops are not in one kernel: a rule by name, and the number that it failed on.

Reason("size", "the pattern has {found} ops, the bound is {bound}", 512, 512)
    ->  size: the pattern has 512 ops, the bound is 512
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """rule: its name, a key of the table of remedies (`jstitch.inspection.remedies`).

    text: a sentence that speaks of the numbers, where there are any, as {found} and {bound}.
    """

    rule: str
    text: str
    found: float | None = None
    bound: float | None = None

    def __str__(self) -> str:
        """The sentence. Other braces in it, such as those of types, are its own."""
        said = self.text
        for name, value in (("{found}", self.found), ("{bound}", self.bound)):
            if value is not None:
                said = said.replace(name, _number(value))
        return said


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
