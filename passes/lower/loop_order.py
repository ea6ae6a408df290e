"""How the loops of a nest are ordered, and which of them go in blocks.

[8, 4096] summed over dim 1, blocks of 2048    for i: for j: part += x[r * 4096 + i * 2048 + j]; acc += part
[3000000] summed, blocks of 2048 rows          for each block: acc = 0;  for r: acc += x[r];  sum = sum + acc
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.ir.graph import Op
from jstitch.ir.ops import lookup
from jstitch.ir.ops.elementwise import SUMS
from jstitch.passes.base.row_access import prefix_rank
from jstitch.passes.lower.divide_loops import RUN
from jstitch.passes.lower.group import Group
from jstitch.passes.lower.trace_lane import Node

LONG = 4096  # elements of a sum above which it is made in blocks, for its rounding errors
ROWS = 2048  # of such a block, where rows are elements: 64 additions in each of four vectors of 8


def inner_dims(shape: tuple[int, ...], rows: int) -> list[int]:
    """Dimensions of size > 1 inside a row; [-1] stands for a row that is cut out of one dimension."""
    k = prefix_rank(shape, rows)
    if k is None:
        return [-1]
    return [d for d in range(k, len(shape)) if shape[d] > 1]


@dataclass(frozen=True)
class LoopOrder:
    """suffix: innermost loops that are all reduced. outer: whether a reduced loop is outside a kept one."""

    suffix: int
    outer: bool


def sums_floats(op: Op) -> bool:
    """Whether the order of a reduction's additions shows in its rounding errors."""
    return lookup(op.attrs.get("monoid", "")).reassociated is not None and op.results[0].tensor.dtype.is_float


def block_of(n: Node, group: Group, collapse: bool, part: int = 0, order: Sequence[int] = ()) -> int:
    """Elements of a block of the node's innermost loop, when it is a long sum of floats; else 0.

    collapse: the inner dimensions are one loop. part: elements of it that a piece has, if it is cut.
    order: of the loops, by dimension, where it is not the dimensions'.
    """
    inner = order or inner_dims(n.domain, group.rows)
    if not (n.roots and sums_floats(n.op)) or inner == [-1] or loop_order(n, group, order).suffix == 0:
        return 0
    size = part or (math.prod(n.domain) // group.rows if collapse else n.domain[inner[-1]])
    if size <= LONG or not group.profile.blocks:
        return 0
    return block_in(size)


def block_in(size: int) -> int:
    """Elements of a block of so many, which have a whole number of them; else 0."""
    return next((size // k for k in range(size // (LONG // 2), size // RUN + 1) if k and size % k == 0), 0)


def block_of_rows(op: Op, group: Group) -> int:
    """Rows that a program of elements adds up in one go, when it has very many; else 0."""
    adds = op.attrs.get("monoid") in SUMS and sums_floats(op)
    many = group.flat and group.profile.blocks and group.rows > LONG * group.programs
    return ROWS if adds and many else 0


def loop_order(n: Node, group: Group, order: Sequence[int] = ()) -> LoopOrder:
    """How a reduction's kept and reduced loops are nested.

    order: of the loops, by dimension, where it is not the dimensions'.
    """
    inner = order or inner_dims(n.domain, group.rows)
    if inner == [-1]:
        return LoopOrder(1, False)
    dims = set(n.op.attrs["dimensions"])
    flags = [d in dims for d in inner]
    if group.profile.kept_first:
        return LoopOrder(sum(flags), False)
    suffix = next((k for k, f in enumerate(reversed(flags)) if not f), len(flags))
    return LoopOrder(suffix, any(flags[: len(flags) - suffix]))
