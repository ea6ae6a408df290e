"""Sums over rows that are kept apart: a few rows are added up in registers, in the loop over what is kept.

sums of x [11, 64] over dimension 0, once:

    for i in 0..64: s[i] = 0
    for i0 in 0..11: for i1 in 0..64: s[i1] = s[i1] + x[i0 * 64 + i1]
    for i1 in 0..64: s[i1] = x[i1] + x[64 + i1] + x[128 + i1] + ...             vectors, and one store of each

Each row would load and store all sums. Where these fill no whole vectors they are loaded and stored with a
mask, and a load waits until what was stored so is in the cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from jstitch.codegen.intrinsics import cycles
from jstitch.codegen.kernel_ir import Instr, Let, Nest
from jstitch.ir.expr import calls
from jstitch.ir.types import DType
from jstitch.passes.base.row_access import ROWS
from jstitch.passes.lower.divide_loops import loop_name
from jstitch.passes.lower.write_nest import NestWriter, Turns

MOST_WRITTEN = 256  # instructions of a turn
TURNS = 8, 4, 2  # rows of many
AT_ONCE = 16  # rows up to which all of them are taken
IN_ONE = 32  # where one vector has what is kept of each
NEAR = 1 << 14  # bytes of all rows up to which more than TURNS may be read side by side
LANES = 16  # of the longest vectors
SHORT = 8  # elements: below, vectors are made of many rows, or of a few elements that are as many as these
FOUR = 4  # fill a vector already


def jammed_turns(writer: NestWriter, nest: Nest) -> Turns:
    """Of loops that all nodes of a nest add up over, outside what all of them keep; empty where none pays.

    Not of products, which go by tiles of registers, nor of what is float16, of which LLVM would extend both
    sides of each maximum twice.
    """
    inner, nodes, shape = [*writer.inner], writer.nodes, writer.shape
    if any(ROWS in n.op.attrs or n.value.tensor.dtype is DType.F16 for n in nodes):
        return {}
    reduced = [{*n.op.attrs["dimensions"]} for n in nodes]
    kept = [*itertools.takewhile(lambda d: not any(d in r for r in reduced), reversed(inner))]
    outside = [*reversed(inner)][len(kept) :]
    summed = [*itertools.takewhile(lambda d: all(d in r for r in reduced), outside)]
    width, many = (math.prod(shape[d] for d in dims) for dims in (kept, summed))
    if not (kept and summed) or (width < SHORT and many > AT_ONCE) or width == FOUR:
        return {}
    room = int(MOST_WRITTEN / max(sum(map(_size, nest.body)), 1))
    read = max(v.tensor.nbytes for n in nodes for v in n.op.operands) // writer.rows
    room = min(room, TURNS[0] if read > NEAR else IN_ONE if width <= LANES else AT_ONCE)
    whole = dict(_whole(((d, shape[d]) for d in summed), room))
    few = next((k for k in TURNS if k <= room), 0)
    return whole or ({summed[0]: few} if few else {})


def _size(i: Instr) -> float:
    """Instructions, about: a function is as many as it takes cycles."""
    return 1.0 if not isinstance(i, Let) else max(1.0, sum(cycles(c.function) for c in calls(i.value)))


def _whole(loops: Iterable[tuple[int, int]], room: int) -> Iterator[tuple[int, int]]:
    """Loops, the innermost first, of which one turn takes all elements."""
    for d, size in loops:
        if size > room:
            return
        yield d, size
        room //= size


def jam(writer: NestWriter, turns: Turns) -> Iterator[NestWriter]:
    """The nest's writer with such turns, and one that takes what fills none."""
    d, count = [*turns.items()][-1]
    size = writer.shape[d]
    last = size - size % count
    if last == size:
        yield writer.again({}, turns)
        return
    yield writer.again({loop_name(d): (0, last)}, turns)
    yield writer.again({loop_name(d): (last, size)}, {**turns, d: size - last})
