"""Where a lane for CUDA keeps its values: the shared memory of a CTA, and the threads' registers.

exchange        [0, 128)        all stages      sums over warps
t1              [128, 3200)     stages 1-2      each team has its own copy, 3072 bytes further
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jstitch.codegen.cuda.homes import Common, Home, Homes, InArena, InParts, InRegisters
from jstitch.codegen.kernel_ir import Buffer, Let
from jstitch.codegen.memory_map import Area, LaneMap
from jstitch.ir.index import Index

AT_THE_END = "combine the program's partial results"


def lane_map(homes: Homes, reserved: int, end: int) -> LaneMap:
    """reserved: bytes of exchanges, before the teams' shares. end: bytes of the end of the program."""
    notes = [stage.note for stage in homes.lane.stages if not stage.once]
    stages = [*notes, AT_THE_END] if homes.carries else notes
    last = len(stages) - 1
    areas = [Area("exchange", "of sums over warps", 0, reserved, 0, last)] if reserved else []
    areas += _tiles(homes, reserved, last)
    areas += _kept(homes, reserved)
    if end > reserved:
        areas.append(Area("teams", "partial results of all teams", reserved, end - reserved, last, last))
    ends = (a.offset + a.nbytes for a in areas if a.offset is not None)
    nbytes = max(reserved + homes.arena * homes.team.teams, end, *ends)
    return LaneMap(0, 0, tuple(stages), tuple(areas), nbytes, homes.team.teams, homes.arena)


def _tiles(homes: Homes, reserved: int, last: int) -> Iterator[Area]:
    for buffer, home in homes.tiles.items():
        carry = homes.carries.get(buffer)
        life = (0, last) if carry else _life(homes, buffer, None)
        size = carry.size if carry else buffer.type.size
        yield from _area(buffer.name, str(buffer.type), home, size, buffer, life, reserved)


def _kept(homes: Homes, reserved: int) -> Iterator[Area]:
    sizes = {
        (i.buffer, d.offset(i.offset)): d.size
        for d in homes.nests
        for i in d.instructions
        if not isinstance(i, Let)
    }
    for (buffer, offset), home in homes.kept.items():
        life, size = _life(homes, buffer, offset), sizes[buffer, offset]
        if not isinstance(home, InParts):
            yield from _area(buffer.name, "read once", home, size, buffer, life, reserved)
            continue
        first, last = homes.elements(size, home.first), homes.elements(size, home.last)
        what = "read once" if last == size else f"the first {last} elements are read once"
        if home.arena is not None:
            yield from _area(buffer.name, what, home.arena, first, buffer, life, reserved)
        if last > first:
            yield from _area(buffer.name, what, home.registers, last - first, buffer, life, reserved)


def _area(
    name: str, what: str, home: Home, size: int, buffer: Buffer, life: tuple[int, int], reserved: int
) -> Iterator[Area]:
    dtype = buffer.type.dtype
    match home:
        case InArena(offset, _):
            yield Area(name, what, reserved + offset, -(-dtype.itemsize * size // 16) * 16, *life)
        case Common(offset):
            yield Area(name, what, offset, -(-dtype.itemsize * size // 16) * 16, *life)
        case InRegisters():
            yield Area(name, what, None, dtype.compute.itemsize * size, *life)


def _life(homes: Homes, buffer: Buffer, offset: Index | None) -> tuple[int, int]:
    """First and last stage of a tile, or of the loads of a buffer at an offset."""
    found: Sequence[int] = [
        n
        for n, stage in enumerate(homes.stages)
        for d in stage
        for i in d.instructions
        if not isinstance(i, Let) and i.buffer is buffer and offset in (None, d.offset(i.offset))
    ]
    return found[0], found[-1]
