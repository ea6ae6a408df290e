"""What a kernel keeps close to its programs: which bytes of the arena hold what, from which stage to which.

t0  [0, 4)        stages 0-1        the maximum
t1  [64, 2112)    stages 1-2        the exponentials
x0  registers     stages 0-2        a row, read once
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Sorting, Space
from jstitch.codegen.kernel_queries import touched_by


@dataclass(frozen=True)
class Area:
    """`name` holds `what` from stage `first` to stage `last`.

    In bytes [offset, offset + nbytes) of the arena; with offset None, in the registers of the threads that
    share a row, `nbytes` of them all.
    """

    name: str
    what: str
    offset: int | None
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class LaneMap:
    """A lane's arena. stages: what each is for.

    nbytes: of a whole program. teams: groups of threads that have `stride` bytes each, of which `areas` shows
    the first's. times: lanes of the phase that are all alike.
    """

    phase: int
    lane: int
    stages: tuple[str, ...]
    areas: tuple[Area, ...]
    nbytes: int
    teams: int = 1
    stride: int = 0
    times: int = 1


def arena_map(kernel: Kernel) -> tuple[LaneMap, ...]:
    """As the Kernel IR has it: of the lanes that use the arena."""
    lanes = ((p, q, lane) for p, phase in enumerate(kernel.phases) for q, lane in enumerate(phase.lanes))
    found = ((p, q, lane, tuple(_areas(lane))) for p, q, lane in lanes)
    return tuple(
        LaneMap(p, q, tuple(s.note for s in lane.stages), areas, kernel.arena_bytes)
        for p, q, lane, areas in found
        if areas
    )


def _areas(lane: Lane) -> Iterator[Area]:
    for b, (first, last) in _lives(lane).items():
        if b.space is Space.ARENA:
            yield Area(b.name, str(b.type), b.offset, b.type.nbytes, first, last)


def _lives(lane: Lane) -> dict[Buffer, tuple[int, int]]:
    """Each buffer's first and last stage."""
    found: dict[Buffer, tuple[int, int]] = {}
    for n, stage in enumerate(lane.stages):
        rooms = (nest.room for nest in stage.nests if isinstance(nest, Sorting))
        touched = (b for nest in stage.nests for i in nest.instructions for b in touched_by(i))
        for b in (*touched, *rooms):
            found[b] = (found.get(b, (n, n))[0], n)
    return found


def memory_fields(memory: tuple[LaneMap, ...]) -> list[dict[str, Any]]:
    """As JSON has it."""
    return [asdict(lane) for lane in memory]


def memory_of(fields: list[Mapping[str, Any]]) -> tuple[LaneMap, ...]:
    """What `memory_fields` gave. Raises TypeError or KeyError for anything else."""
    return tuple(
        LaneMap(**{**lane, "stages": tuple(lane["stages"]), "areas": tuple(Area(**a) for a in lane["areas"])})
        for lane in fields
    )
