"""What the simulator raises, and where in the text and on the machine it happened."""

from __future__ import annotations

from dataclasses import dataclass

from jstitch.errors import JstitchError


@dataclass(frozen=True)
class Place:
    """A statement as one thread runs it; cta, thread and index are None where all threads are meant."""

    function: str
    line: int
    text: str
    cta: int | None = None
    thread: int | None = None
    buffer: str = ""
    index: int | None = None

    def __str__(self) -> str:
        parts = [f"{self.function}, line {self.line}: `{self.text}`"]
        if self.cta is not None:
            parts.append(f"CTA {self.cta}, thread {self.thread}")
        if self.buffer:
            parts.append(self.buffer if self.index is None else f"{self.buffer}[{self.index}]")
        return "; ".join(parts)


class SimulationError(JstitchError):
    """Kernel text that a GPU may run wrongly, or that breaks the rules of kernel text."""

    def __init__(self, expected: str, found: str, place: Place) -> None:
        self.place = place
        super().__init__(expected, found, where=str(place))
