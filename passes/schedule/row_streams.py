"""Which tensors a lane touches row by row: all of a row in one step, the next row in the next step.

x[r * 4096 + i], 16384 rows of float32     ->     {x: 16384 bytes}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jstitch.codegen.kernel_ir import ROW, STEP, Buffer, Lane, Load, Space, Stage, Store
from jstitch.ir.index import Index, Var


def streams(lane: Lane, spaces: Iterable[Space] = (Space.ARG,)) -> dict[Buffer, int]:
    """Buffers that are read row by row, with the bytes of a step's rows."""
    read = (i for stage in lane.stages for i in touches(stage) if isinstance(i, Load))
    found = tuple(spaces)
    return row_bytes(lane, (i for i in read if i.buffer.space in found))


def touches(stage: Stage) -> Iterator[Load | Store]:
    for nest in stage.nests:
        yield from (i for i in nest.instructions if isinstance(i, Load | Store))


def row_bytes(lane: Lane, touched: Iterable[Load | Store]) -> dict[Buffer, int]:
    """Bytes of a step's rows of the buffers that are touched row by row."""
    offsets: dict[Buffer, list[Index]] = {}
    for i in touched:
        offsets.setdefault(i.buffer, []).append(i.offset)
    return {
        b: b.type.nbytes // lane.rows * lane.step
        for b, found in offsets.items()
        if b.type.size % lane.rows == 0 and all(_by_rows(e, b, lane) for e in found)
    }


def _by_rows(offset: Index, b: Buffer, lane: Lane) -> bool:
    """Whether the offset moves on by a row's elements from row to row."""
    slab = b.type.size // lane.rows
    strides: Sequence[tuple[str, int]] = ((ROW, slab), (STEP, slab * lane.step))
    terms = {atom.name: k for atom, k in offset.terms if isinstance(atom, Var)}
    return any(terms.get(name) == stride for name, stride in strides)
