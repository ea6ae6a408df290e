"""Into how many rows a CPU's loops cut what could be cut into more: short rows leave vectors empty.

[16, 8, 8, 3, 3], rolled along the first dimension     3,072 rows of 3     ->     128 rows of 72
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from jstitch.ir.graph import Op, Value
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import is_reduction

ROW_BYTES = 1 << 15  # of a value's row, several of which stay in a core's nearest caches
SHORT = 16  # elements of a row, in which a loop's vectors are mostly empty


def candidate_rows(shape: tuple[int, ...]) -> list[int]:
    """Into how many rows the shape can be cut, the finest first."""
    products = [math.prod(shape[:k]) for k in range(len(shape), -1, -1)]
    return list(dict.fromkeys(filter(None, products)))


def lengthen_rows(
    seed: Value,
    rows: int,
    found: tuple[set[Op], int],
    profile: Profile,
    walk: Callable[[int], tuple[set[Op], int] | None],
) -> int:
    """Fewer, longer rows of a CPU, whose vectors rows of a few elements leave empty; enough for its programs.

    found: what has these rows. walk: what has so many.
    """
    ops, largest = found
    if profile.most_threads > 1 or not 1 < largest // rows < SHORT:
        return rows
    if any(map(is_reduction, ops)):
        return rows
    programs = profile.program_count(largest)
    fewer = (n for n in candidate_rows(seed.shape) if programs <= n < rows and largest // n >= SHORT)
    alike = (n for n in fewer if (again := walk(n)) is not None and again[0] == ops)
    return next(alike, rows)


def fewer_rows(ops: Sequence[Op], profile: Profile) -> list[int]:
    """Into how many rows the largest values can be cut, the finest first; enough for its programs."""
    largest = max((v.tensor.size for op in ops for v in op.results), default=0)
    nbytes = max((v.tensor.nbytes for op in ops for v in op.results), default=0)
    least = max(profile.program_count(largest), nbytes // ROW_BYTES)
    shapes = dict.fromkeys(v.shape for op in ops for v in op.results if v.tensor.size == largest)
    found = {rows for shape in shapes for rows in candidate_rows(shape)}
    return sorted((rows for rows in found if least <= rows < largest), reverse=True)
