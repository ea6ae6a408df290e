"""Bytes that a lane moves from and to memory, counted from its code.

    x[r * n + e] loaded by two nests, no room to keep it     2 * rows * n elements
    gamma[e], the same for every row                         n elements for each nest: rows share a cache
    a scalar that every thread loads                         one element a row

An access moves as many elements as it is executed for. Those of one nest to one buffer, such as the two
halves of a rotation, lie side by side and share caches: together they move no more than the buffer has.
"""

from __future__ import annotations

import math
from collections import defaultdict

from jstitch.codegen.cuda.deal import Dealt
from jstitch.codegen.cuda.homes import MANY, Homes, NoRoom, find_homes
from jstitch.codegen.cuda.wanted import Kept
from jstitch.codegen.kernel_ir import Buffer, Instr, Lane, Let, Load, Space


def traffic(homes: Homes, turns: float = 1) -> tuple[int, int]:
    """(bytes read, bytes written) by all programs of the lane. turns: of each row."""
    lane, seen = homes.lane, set[Kept]()
    rows = turns * (1 if lane.flat else lane.rows)
    read = written = 0
    stages = [stage for stage in lane.stages if not stage.once]
    pairs = ((d, stage.turns) for stage, nests in zip(stages, homes.stages, strict=True) for d in nests)
    for d, each in pairs:
        moved: defaultdict[tuple[bool, Buffer], float] = defaultdict(float)
        for i in d.instructions:
            if isinstance(i, Let) or i.buffer in homes.tiles:
                continue
            key = (i.buffer, d.offset(i.offset))
            times = homes.unkept(key, d.size) if key in seen else _times(d, i)
            if key in homes.kept:
                seen.add(key)
            moved[isinstance(i, Load), i.buffer] += rows * each * times
        sizes = {
            what: min(int(n), what[1].type.size) * what[1].type.dtype.itemsize for what, n in moved.items()
        }
        read += sum(size for (loads, _), size in sizes.items() if loads)
        written += sum(size for (loads, _), size in sizes.items() if not loads)
    return read, written + sum(b.type.nbytes for b in homes.carries)


def row_bytes(homes: Homes) -> int:
    """That a team asks for at once for one row: each element once, of a serial loop those of one turn."""
    loads = {
        (i.buffer, d.offset(i.offset)): _at_once(d, i) * i.buffer.type.dtype.itemsize
        for d in homes.nests
        for i in d.instructions
        if isinstance(i, Load) and i.buffer not in homes.tiles
    }
    return sum(loads.values())


def _at_once(d: Dealt, i: Instr) -> int:
    loops = d.loops[: max(0, d.level(i) - len(d.serial))]
    return math.prod(loop.var.extent for loop in loops)


def reread_bytes(lane: Lane, arena_bytes: int, block: int) -> int:
    """Bytes of a lane's rows that are read more than once, for want of room in the `arena_bytes` of a CTA.

    MANY for a lane whose tiles find no room there: without them it may be one that can be emitted.
    """
    try:
        homes = find_homes(lane, arena_bytes, block)
    except NoRoom:  # lanes without tiles take other forms, which keep no rows
        return MANY if _has_tiles(lane) else 0
    return 0 if lane.flat else lane.rows * homes.reread


def _has_tiles(lane: Lane) -> bool:
    nests = (nest for stage in lane.stages for nest in stage.nests)
    accesses = (i for nest in nests for i in nest.instructions if not isinstance(i, Let))
    return any(i.buffer.space is Space.ARENA for i in accesses)


def _times(d: Dealt, i: Instr) -> int:
    """How often a row runs the instruction, for different elements."""
    loops = (*d.serial, *d.loops, *d.inner)[: d.level(i)]
    return math.prod(loop.var.extent for loop in loops)
