"""Byte offsets in a team's arena: what is never live at once may share bytes.

x[e]   loaded in nest 0, again in nest 1      bytes [0, 200000)
exp    made in nest 1 from x, used in nest 2  bytes [0, 200000): each thread overwrites its own elements
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.codegen.cuda.deal import Dealt
from jstitch.codegen.in_turns import in_turns
from jstitch.codegen.kernel_ir import Buffer, Lane, Let, Store
from jstitch.ir.index import Index

ALIGN = 16
LATE = 1 << 30
Touch = tuple[int, int, int, bool]
"""A nest, its stage, the place of an instruction in it, and whether that stores."""


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


def life_of(
    lane: Lane,
    stages: Sequence[Sequence[Dealt]],
    buffer: Buffer,
    offset: Index | None,
    size: int,
    own: bool,
    always: bool,
) -> Life:
    """offset: of a repeated load; None for all accesses of a tile. always: whether all rows have it."""
    found: list[Touch] = []
    number = 0
    for stage, nests in enumerate(stages):
        for d in nests:
            for place, i in enumerate(d.instructions):
                if not isinstance(i, Let) and i.buffer is buffer and offset in (None, d.offset(i.offset)):
                    found.append((number, stage, place, isinstance(i, Store)))
            number += 1
    if always:
        found = [(0, 0, 0, True), (number, len(stages), 0, False)]
    found = _around(lane, stages, found)
    first, last = found[0], found[-1]
    stored = [p for n, _, p, store in found if n == first[0] and store]
    ends = max(p for n, _, p, _ in found if n == last[0])
    written = any(store for n, _, _, store in found if n == last[0])
    return Life(
        first[0],
        last[0],
        (first[1], last[1]),
        own,
        buffer.type.dtype.itemsize,
        size,
        LATE if written else ends,
        min(stored, default=-1),
    )


def _around(lane: Lane, stages: Sequence[Sequence[Dealt]], found: list[Touch]) -> list[Touch]:
    """Where a loop of stages touches something, all of the loop does: the next turn may."""
    first_nest = [0, *itertools.accumulate(map(len, stages))]
    more = list(found)
    for loop, numbers in in_turns([stage.turn for stage in lane.stages if not stage.once]):
        if loop is not None and any(stage in numbers for _, stage, _, _ in found):
            last = numbers.stop - 1
            more.insert(0, (first_nest[numbers.start], numbers.start, 0, True))
            more.append((first_nest[last + 1] - 1, last, LATE, False))
    return sorted(more, key=lambda touch: touch[:3])
