"""Ask for the next rows while these are computed.

    for r in range(lo, hi):                         for r in range(lo, hi):
        # reduce maximum                                # reduce maximum
        for i1 in range(0, 1024): ...      ->           for k in range(0, 21): prefetch(b0, ...)
        # exponential, reduce add                       for i1 in range(0, 1024): ...
        ...                                             # exponential, reduce add
                                                        for k in range(21, 42): prefetch(b0, ...)

A lane that reads its rows in its first stage, and then computes on what is in cache, shows the processor's
own prefetcher bursts with pauses, and it falls behind. The requests are spread over the stages. Where a step
has several rows, which keep memory busy for longer, the requests cost more than they bring unless the pauses
are long. Tensors that fit an L2 cache, and rows too short or so long that they would push out the current
one, get none. A request past the end of a tensor is harmless.

A store to a line that is not in a cache waits for it. Where the first stage computes much, the lines that
later stages write are asked for before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from jstitch.codegen.intrinsics import cycles
from jstitch.codegen.kernel_ir import (
    CACHE_LINE,
    Buffer,
    Kernel,
    Lane,
    Let,
    Prefetch,
    Space,
    Stage,
    Store,
    Streamed,
)
from jstitch.codegen.map_kernel import map_lanes
from jstitch.ir.expr import Call
from jstitch.passes.schedule.row_streams import row_bytes, streams, touches

LARGE = 1 << 20  # bytes; larger tensors do not stay in an L2 cache
SHORT, LONG = 1 << 9, 1 << 14  # bytes of a step's rows
PAUSE = 8.0  # cycles per element of the later stages, for each of the first, in steps of several rows
HEAVY = 12.0  # cycles per element of a first stage that leaves memory time for the lines of results


def prefetch_rows(kernel: Kernel) -> Kernel:
    """The kernel with rows asked for where that helps."""
    in_place = kernel.in_place.keys()
    return map_lanes(kernel, lambda lane: _lane(lane, in_place))


def _lane(lane: Lane, in_place: Collection[Buffer]) -> Lane:
    if any(loop is not None for loop, _ in lane.loops):
        return lane
    asked = iter(_asked(lane, in_place))
    if not any(found := [() if s.once else tuple(next(asked)) for s in lane.stages]):
        return lane
    stages = (replace(s, prefetches=p) for s, p in zip(lane.stages, found, strict=True))
    return replace(lane, stages=tuple(stages))


def _asked(lane: Lane, in_place: Collection[Buffer]) -> list[list[Prefetch]]:
    """What to ask for before each stage of a step; in_place: results that are arguments too."""
    stages = [s for s in lane.stages if not s.once]
    out: list[list[Prefetch]] = [[] for _ in stages]
    if lane.flat or lane.rows == lane.step or not stages:
        return out
    first, *later = map(_cycles, stages)
    if first >= HEAVY:
        written = _written(lane, stages, in_place)
        out[0] += [Prefetch(b, nbytes, 0, nbytes // CACHE_LINE, 0) for b, nbytes in written.items()]
    if not _has_pauses(lane, first, later):
        return out
    for b, nbytes in _bounded(streams(lane)).items():
        lines = nbytes // CACHE_LINE
        for n, found in enumerate(out):
            found.append(Prefetch(b, nbytes, lines * n // len(out), lines * (n + 1) // len(out), 1))
    return out


def _has_pauses(lane: Lane, first: float, later: Sequence[float]) -> bool:
    """Whether memory rests between the first stages of steps: of single rows always, of several seldom."""
    if lane.step == 1:
        return bool(later)
    nests = (nest for stage in lane.stages for nest in stage.nests)
    streamed = any(isinstance(i, Streamed) for nest in nests for i in nest.body)
    return not streamed and sum(later) >= PAUSE * first


def _cycles(stage: Stage) -> float:
    """Cycles per element of the innermost loops."""
    inner = ((i, len(nest.loops)) for nest in stage.nests for i in nest.body)
    lets = (i.value for i, depth in inner if isinstance(i, Let) and i.depth == depth)
    return sum(cycles(e.function) if isinstance(e, Call) else 1.0 for e in lets)


def _written(lane: Lane, stages: Sequence[Stage], in_place: Collection[Buffer]) -> dict[Buffer, int]:
    """Results that only stages after the first write, row by row and not past the caches; bytes as above."""
    early = {i.buffer for i in touches(stages[0])}
    later = [i for stage in stages[1:] for i in touches(stage) if isinstance(i, Store)]
    skipped = {i.buffer for i in later if isinstance(i, Streamed)} | early | set(in_place)
    return _bounded(
        row_bytes(lane, (i for i in later if i.buffer.space is Space.RESULT and i.buffer not in skipped))
    )


def _bounded(rows: Mapping[Buffer, int]) -> dict[Buffer, int]:
    """Of large buffers, those with neither short nor long rows."""
    return {b: n for b, n in rows.items() if b.type.nbytes > LARGE and SHORT <= n <= LONG}
