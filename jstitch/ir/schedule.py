"""How a tensor's elements are spread over blocks (FS-2018 section 4.1).

    Schedule ::= (split_dim, sword, Row | Column)

For a shape of dimensions d[0] ... d[n-1], s = split_dim, chunk = d[s] / sword:

    Row      block of an element i = (i[0], ..., i[s-1], i[s] // chunk), in row-major order
    Column   block of an element i = (i[s] // chunk, i[s+1], ..., i[n-1]), in row-major order

Several triples may describe one spread (`Row(0, d[0])` and `Row(1, 1)`); `coordinates` is their normal form.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass


class SchedType(enum.Enum):
    ROW = "Row"
    COLUMN = "Column"


@dataclass(frozen=True)
class Schedule:
    """FS-2018 section 4.1, on an op's output shape. `sword` divides the size of dimension `split_dim`."""

    split_dim: int
    sword: int
    sched_type: SchedType

    def __str__(self) -> str:
        return f"{self.sched_type.value}({self.split_dim}, {self.sword})"


ONE_BLOCK = Schedule(0, 1, SchedType.ROW)
"""One block for everything: legal on every shape."""

Coordinates = tuple[tuple[int, int], ...]
"""Normal form: (dimension, chunk) pairs; a block is one combination of index // chunk, row-major."""


def coordinates(shape: Sequence[int], schedule: Schedule) -> Coordinates:
    """The pairs that tell blocks apart, without those that have one value only."""
    if not shape or 0 in shape:
        return ()
    split, chunk = schedule.split_dim, shape[schedule.split_dim] // schedule.sword
    if schedule.sched_type is SchedType.ROW:
        pairs = [*((d, 1) for d in range(split)), (split, chunk)]
    else:
        pairs = [(split, chunk), *((d, 1) for d in range(split + 1, len(shape)))]
    return tuple((d, c) for d, c in pairs if shape[d] > c)


def from_coordinates(shape: Sequence[int], pairs: Coordinates) -> Schedule | None:
    """The schedule with this normal form, or None: Row is a prefix of the dimensions, Column a suffix."""
    if not pairs:
        return ONE_BLOCK
    wide = [d for d, size in enumerate(shape) if size > 1]
    dims, chunks = [d for d, _ in pairs], [c for _, c in pairs]
    if dims == wide[: len(dims)] and set(chunks[:-1]) <= {1}:
        return Schedule(dims[-1], shape[dims[-1]] // chunks[-1], SchedType.ROW)
    if dims == wide[-len(dims) :] and set(chunks[1:]) <= {1}:
        return Schedule(dims[0], shape[dims[0]] // chunks[0], SchedType.COLUMN)
    return None


def blocks(shape: Sequence[int], schedule: Schedule) -> int:
    """Number of blocks (thread blocks on a GPU, tasks on a CPU)."""
    return math.prod(shape[d] // c for d, c in coordinates(shape, schedule))


def block_of(shape: Sequence[int], schedule: Schedule, index: Sequence[int]) -> int:
    """The block that an element belongs to."""
    number = 0
    for d, c in coordinates(shape, schedule):
        number = number * (shape[d] // c) + index[d] // c
    return number


def same_spread(shape: Sequence[int], a: Schedule | None, b: Schedule | None) -> bool:
    """Whether two schedules put every element into the same block."""
    if a == b:
        return True
    return a is not None and b is not None and coordinates(shape, a) == coordinates(shape, b)


def reshaped(old: Sequence[int], schedule: Schedule, new: Sequence[int]) -> Schedule | None:
    """The schedule of `new` (as many elements, row-major order kept) that spreads the elements alike."""
    pairs = coordinates(old, schedule)
    if not pairs:
        return ONE_BLOCK
    row = _reshaped_row(old, pairs, new) if _is_prefix(old, pairs) else None
    return row or (_reshaped_column(old, pairs, new) if _is_suffix(old, pairs) else None)


def _is_prefix(shape: Sequence[int], pairs: Coordinates) -> bool:
    wide = [d for d, size in enumerate(shape) if size > 1]
    return [d for d, _ in pairs] == wide[: len(pairs)] and all(c == 1 for _, c in pairs[:-1])


def _is_suffix(shape: Sequence[int], pairs: Coordinates) -> bool:
    wide = [d for d, size in enumerate(shape) if size > 1]
    return [d for d, _ in pairs] == wide[-len(pairs) :] and all(c == 1 for _, c in pairs[1:])


def _reshaped_row(old: Sequence[int], pairs: Coordinates, new: Sequence[int]) -> Schedule | None:
    """Row: a block is a run of consecutive elements; look for a dimension that can cut such runs."""
    run = math.prod(old) // math.prod(old[d] // c for d, c in pairs)
    right = 1
    for d in range(len(new) - 1, -1, -1):
        if run % right == 0 and new[d] % (run // right) == 0:
            return Schedule(d, new[d] * right // run, SchedType.ROW)
        right *= new[d]
    return None


def _reshaped_column(old: Sequence[int], pairs: Coordinates, new: Sequence[int]) -> Schedule | None:
    """Column: the block depends on the offset modulo the size of the dimensions from the split on."""
    (split, chunk), size = pairs[0], math.prod(old[pairs[0][0] :])
    right = size // old[split]
    suffix = 1
    for d in range(len(new) - 1, -1, -1):
        if chunk == 1 and suffix * new[d] == size:
            return Schedule(d, new[d], SchedType.COLUMN)
        if suffix == right and new[d] == old[split]:
            return Schedule(d, new[d] // chunk, SchedType.COLUMN)
        suffix *= new[d]
    return None
