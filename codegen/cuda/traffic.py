"""Bytes that a lane moves from and to memory, counted from its code.

    x[r * n + e] loaded by two nests, no room to keep it     2 * rows * n elements
    gamma[e], the same for every row                         n elements for each nest: rows share a cache
    a scalar that every thread loads                         one element a row

An access moves as many elements as it is executed for, but no more than its buffer has.
"""

from __future__ import annotations

import math

from jstitch.codegen.cuda.deal import Dealt
from jstitch.codegen.cuda.homes import Homes, NoRoom, find_homes
from jstitch.codegen.cuda.wanted import Kept
from jstitch.codegen.kernel_ir import Instr, Lane, Let, Load


def traffic(homes: Homes) -> tuple[int, int]:
    """(bytes read, bytes written) by all programs of the lane."""
    lane, seen = homes.lane, set[Kept]()
    rows = 1 if lane.flat else lane.rows
    read = written = 0
    for d in homes.nests:
        for i in d.instructions:
            if isinstance(i, Let) or i.buffer in homes.tiles:
                continue
            key = (i.buffer, d.offset(i.offset))
            times = homes.unkept(key, d.size) if key in seen else _times(d, i)
            if key in homes.kept:
                seen.add(key)
            elements = min(rows * times, i.buffer.type.size)
            if isinstance(i, Load):
                read += elements * i.buffer.type.dtype.itemsize
            else:
                written += elements * i.buffer.type.dtype.itemsize
    return read, written + sum(b.type.nbytes for b in homes.carries)


def reread_bytes(lane: Lane, arena_bytes: int, block: int) -> int:
    """Bytes of a lane's rows that are read more than once, for want of room in the `arena_bytes` of a CTA."""
    try:
        homes = find_homes(lane, arena_bytes, block)
    except NoRoom:  # it takes other forms, which keep no rows
        return 0
    return 0 if lane.flat else lane.rows * homes.reread


def _times(d: Dealt, i: Instr) -> int:
    """How often a row runs the instruction, for different elements."""
    loops = (*d.serial, *d.loops, *d.inner)[: d.level(i)]
    return math.prod(loop.var.extent for loop in loops)
