"""Byte offsets in a team's arena: what is never live at once may share bytes.

x[e]   loaded in nest 0, again in nest 1      bytes [0, 200000)
exp    made in nest 1 from x, used in nest 2  bytes [0, 200000): each thread overwrites its own elements
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGN = 16


@dataclass(frozen=True)
class Life:
    """When bytes are needed: from nest `first` to nest `last` of a lane, by number.

    stages: (of the first, of the last). own: no thread touches another's elements. itemsize, elements.
    ends: place in its last nest of the last load. starts: place in its first nest of the first store.
    """

    first: int
    last: int
    stages: tuple[int, int]
    own: bool
    itemsize: int
    elements: int
    ends: int
    starts: int

    @property
    def nbytes(self) -> int:
        return -(-self.itemsize * self.elements // ALIGN) * ALIGN

    def before(self, other: Life) -> bool:
        """Whether `other` may take these bytes when they are no longer needed."""
        if not (self.own and other.own):
            return self.stages[1] < other.stages[0]
        if self.last < other.first:
            return True
        alike = (self.itemsize, self.elements) == (other.itemsize, other.elements)
        return alike and self.last == other.first and self.ends < other.starts


def find_offset(life: Life, placed: Sequence[tuple[int, Life]], shares: bool = True) -> int:
    """The lowest offset at which nothing that is needed at the same time stands; shares: or at any time."""
    busy = sorted(
        (offset, offset + other.nbytes)
        for offset, other in placed
        if not shares or not (life.before(other) or other.before(life))
    )
    return lowest_gap(busy, life.nbytes)


def lowest_gap(busy: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest offset with so many free bytes. busy: ranges of bytes that are not, in order."""
    at = 0
    for start, end in busy:
        if at + size <= start:
            return at
        at = max(at, end)
    return at
