"""Make rows of a large intermediate in chunks, by a loop, so that it never is in memory as a whole.

    %z = dot_general %x, %w     [32768, 128256]  8.4 GB         logits
    ... a loss of each row, and its gradient %d                 another 8.4 GB
    %g = dot_general %x, %d
->  while i < 16: 2,048 rows of all that                         1.0 GB, and the sum %g

Rows that nobody needs all at once are computed one after the other: what is added up over them is added up
turn by turn. It is done for products larger than all that the ops around them read and write, where it leaves
little of them in memory and the library is modelled to take hardly longer. What a chain of products holds
in one kernel is in no memory anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op
from jstitch.ir.types import TensorType
from jstitch.options import PRESETS
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.base.rewrite import map_frames
from jstitch.passes.chunk.find_rows import CannotCutError, Index
from jstitch.passes.chunk.weigh_chunks import Limits, Way, weigh_chunks
from jstitch.passes.chunk.write_chunks import CHUNKED, put_in
from jstitch.passes.fuse.find_chains import find_chains

WHOLE = "whole"
"""An attribute of a product: why its result is not made in chunks."""
LEAST, LEAST_ON_GPU = 1 << 27, 3 << 28  # bytes: a GPU has many turns to launch, and no page faults
LONGER = 0.05


def chunk_rows(graph: Graph, context: Context, *, least: int | None = None, longer: float = LONGER) -> Graph:
    """The graph with loops over chunks of rows where that saves most of the memory.

    least: bytes of a value that is worth a loop. longer: share of its time that it may cost.
    """
    bound = _least(context.machine) if least is None else least
    if context.options.planner in PRESETS or not _has_large(graph, bound):
        return graph  # FusionStitching as published has no loops of its own
    return map_frames(graph, _Chunker(context, Limits(context.machine, bound, longer)).frame)


def has_large_products(graph: Graph, machine: Machine) -> bool:
    """Whether the pass has anything to look at."""
    return _has_large(graph, _least(machine))


def _least(machine: Machine) -> int:
    return LEAST if machine.device is None else LEAST_ON_GPU


def _has_large(graph: Graph, least: int) -> bool:
    return any(_is_large(op, least) for op in graph.walk())


def chunks_of(graph: Graph) -> tuple[str, ...]:
    """What the pass has made, in sentences."""
    return tuple(op.attrs[CHUNKED] for op in graph.walk() if CHUNKED in op.attrs)


def said_of(frame: Graph) -> tuple[str, ...]:
    """Of one frame: what was made in chunks, what was not, and why."""
    found = (op.attrs.get(CHUNKED) or op.attrs.get(WHOLE) for op in frame.ops)
    return tuple(text for text in found if text is not None)


def _is_large(op: Op, least: int) -> bool:
    tensors = op.name == PRODUCT and isinstance(op.result.type, TensorType)
    return tensors and op.result.tensor.nbytes >= least


@dataclass(frozen=True)
class _Chunker:
    context: Context
    limits: Limits

    def frame(self, frame: Graph) -> Graph:
        """With loops, those of the largest values first, and with a reason on each product in none."""
        large = [op for op in frame.ops if _is_large(op, self.limits.least)]
        if not large:
            return frame
        chains = find_chains(frame, self.context).patterns
        small = [p for p in chains if max(v.tensor.nbytes for v in p.outputs) < self.limits.least]
        held = {op for p in small for op in p.ops}
        index, whole = Index.of(frame), dict[Op, Op]()
        for op in sorted(large, key=lambda op: -op.result.tensor.nbytes):
            if op not in index.place or op in held:
                continue
            way = self.way(index, op)
            if isinstance(way, str):
                whole[op] = replace(op, attrs={**op.attrs, WHOLE: way})
            else:
                index = Index.of(put_in(index, way.rows, way.chunks))
        return replace(index.frame, ops=tuple(whole.get(op, op) for op in index.frame.ops))

    def way(self, index: Index, op: Op) -> Way | str:
        """A loop that makes the op's result, or why there is none."""
        ways: list[Way] = []
        refused: list[str] = []
        for dim in range(op.result.tensor.rank):
            try:
                ways.append(weigh_chunks(index, op.result, dim, self.limits))
            except CannotCutError as error:
                refused.append(f"by dimension {dim}: {error}")
        why = f"{op.result.type} is made as a whole: {'; '.join(refused)}"
        return min(ways, key=lambda way: (way.left, way.seconds), default=why)
