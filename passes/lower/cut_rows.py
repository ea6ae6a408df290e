"""Cut a lane of elements where an index of theirs leaves a tensor: between, no element has to be asked.

y[r] = x[r] + (r >= 1 ? x[clamp(r - 1, 0, n - 1)] : 0)      rows [0, 16) as they are; [16, n): x[r] + x[r - 1]

Pads, concatenates and rolls of one-dimensional tensors. A CPU's loops are vectors only without the question.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from jstitch.codegen.kernel_ir import FLAT_ALIGN, ROW, Lane, Let
from jstitch.ir.index import Clamp, Index, Var, atoms
from jstitch.passes.lower.divide_loops import without_edges

FEW = 16 * FLAT_ALIGN
"""Elements that are not worth lanes of their own."""


def cut_rows(lane: Lane) -> list[tuple[int, int]]:
    """Parts [low, high) of the rows, whole vectors all but the last; empty where the lane is better whole."""
    sums = any(
        stage.once or nest.accumulators or nest.combines for stage in lane.stages for nest in stage.nests
    )
    if not lane.flat or sums or lane.rows < FEW:
        return []
    points = {0, lane.rows}
    for seam in _seams(lane):
        points |= {seam // FLAT_ALIGN * FLAT_ALIGN, min(lane.rows, -(-seam // FLAT_ALIGN) * FLAT_ALIGN)}
    found = without_edges(sorted(points))
    return list(itertools.pairwise(found)) if len(found) > 2 else []


def _seams(lane: Lane) -> Iterator[int]:
    """Rows at which a clamped index begins or ends to be itself."""
    nests = (nest for stage in lane.stages for nest in stage.nests)
    offsets = (i.offset for nest in nests for i in nest.instructions if not isinstance(i, Let))
    for atom in atoms(offsets):
        match atom:
            case Clamp(Index(base, ((Var(name), 1),)), low, high) if name == ROW:
                yield from (edge for edge in (low - base, high + 1 - base) if 0 < edge < lane.rows)
