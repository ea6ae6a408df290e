"""Large results go to memory past the caches.

    for i1 in range(0, 768):                        for i1 in range(0, 768):
        ...                                             ...
        store_f32(b5, r * 768 + i1, v20, 6)    ->       store_f32(b6, i1, v20, 7)
                                                    stream(b5, r * 3072, b6, 3072)

A store to a line that is not in a cache first reads it: a third of a kernel's traffic when the results are as
large as the arguments. So a loop writes to a tile, small enough for the first-level cache, which then goes to
memory whole lines at a time (see flush); long loops do this block by block. What fits the last-level cache is
cheaper to leave there, and so is what somebody reads again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path

from jstitch.codegen.kernel_ir import (
    ROW,
    START,
    Buffer,
    Called,
    Instr,
    Kernel,
    Lane,
    Load,
    Nest,
    Space,
    Store,
    Streamed,
)
from jstitch.codegen.map_kernel import map_lanes, map_nests
from jstitch.ir.index import Dynamic, Index, add, atoms, mul, var
from jstitch.ir.types import TensorType

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL_CACHE = 1 << 25  # bytes; where the machine does not say
BEYOND = 2.0  # last-level caches of arguments and results, above which nothing is worth keeping
SMALL = 1 << 20  # bytes of a result
TILES = 1 << 11  # bytes of a nest's tiles: small, to leave what it reads in the first-level cache
ODD_TILES = 1 << 13  # the same where runs do not begin at lines, so that few lines are written in parts
RUN = 1 << 7  # bytes of a loop; a shorter one has too few whole lines
ODD_RUN = 1 << 9  # the same where it does not begin at a line
LINE = 64  # bytes


@dataclass(frozen=True)
class _Run:
    """`count` elements from `start` on, which a nest writes one after another by its loops from `loop` on."""

    start: Index
    count: int
    loop: int


@cache
def last_level_cache() -> int:
    """Bytes of the largest cache of a processor of this machine."""
    sizes = [_size(path) for path in CACHES.glob("index*/size")]
    return max(sizes, default=0) or USUAL_CACHE


def _size(path: Path) -> int:
    """The bytes that a file of the kernel's such as "32768K" says; 0 when it cannot be read."""
    try:
        text = path.read_text().strip()
        return int(text.removesuffix("K")) * (1024 if text.endswith("K") else 1)
    except (OSError, ValueError):
        return 0


def stream_results(kernel: Kernel) -> Kernel:
    """The kernel with Streamed stores of what is better not kept in caches, and room for their tiles."""
    found = _worth_it(kernel)
    if not found:
        return kernel
    room = _Room(-(-kernel.arena_bytes // LINE) * LINE)
    made = map_lanes(kernel, lambda lane: map_nests(lane, lambda nest: _nest(nest, lane, found, room)))
    return replace(made, arena_bytes=room.end) if room.end > room.first else kernel


def _worth_it(kernel: Kernel) -> frozenset[Buffer]:
    """Large results that the kernel writes and never reads, when its working set is beyond all caches."""
    if _traffic(kernel) < BEYOND * last_level_cache():
        return frozenset()
    read = {i.buffer for *_, i in kernel.instructions() if isinstance(i, Load)}
    kept = {*kernel.aliases, *kernel.updates}
    return frozenset(
        b for n, b in enumerate(kernel.results) if n not in kept and b not in read and b.type.nbytes >= SMALL
    )


def _traffic(kernel: Kernel) -> int:
    """Bytes of the arguments and results that the kernel touches."""
    times: dict[Buffer, int] = {}
    for lane in (lane for phase in kernel.phases for lane in phase.lanes):
        for nest in (nest for stage in lane.stages for nest in stage.nests):
            for i in nest.instructions:
                if isinstance(i, Load | Store) and i.buffer.space in (Space.ARG, Space.RESULT):
                    times[i.buffer] = times.get(i.buffer, 0) + _turns(lane, nest, i.depth)
    in_place = {kernel.results[n] for n in kernel.aliases}
    return sum(min(b.type.size, n) * b.type.dtype.itemsize for b, n in times.items() if b not in in_place)


def _turns(lane: Lane, nest: Nest, depth: int) -> int:
    """How often an instruction at this depth runs, in all programs."""
    rows = lane.rows if lane.flat else lane.step
    inner = math.prod(rows if x.var.name == ROW else x.hi - x.lo for x in nest.loops[:depth])
    return inner if lane.flat else lane.rows // lane.step * inner


@dataclass
class _Room:
    """Where the tiles are in the arena: behind the kernel's own, those of all nests in the same place."""

    first: int
    end: int = 0

    def tile(self, number: int, share: int, tensor: TensorType) -> Buffer:
        """The tile of a nest's store of that number, all of which have that many bytes."""
        offset = self.first + number * (share + LINE)
        self.end = max(self.end, offset + share + LINE)
        return Buffer(f"w{number}", tensor, Space.ARENA, 0, offset)


def _nest(nest: Nest, lane: Lane, results: frozenset[Buffer], room: _Room) -> Nest:
    if isinstance(nest, Called):
        return nest
    stores = [i for i in nest.instructions if isinstance(i, Store) and i.buffer in results]
    runs, share = _best_runs(stores, nest, lane)
    if not runs:
        return nest
    inner = len(nest.loops) - 1
    block = _block(runs, inner, share)

    def streamed(n: int, i: Store, run: _Run) -> Streamed:
        whole = not lane.flat and (run.loop < inner or run.count <= block)
        target = run.start if whole else add(run.start, var(START))
        tensor = TensorType((run.count if whole else block,), i.buffer.type.dtype)
        tile = room.tile(n, share, tensor)
        place = add(i.offset, mul(target, -1))
        return Streamed(i.buffer, i.offset, i.value, i.depth, tile, place, target, run.loop, whole)

    made: dict[Instr, Instr] = {i: streamed(n, i, run) for n, (i, run) in enumerate(runs.items())}
    return replace(nest, body=tuple(made.get(i, i) for i in nest.body))


def _best_runs(stores: Sequence[Store], nest: Nest, lane: Lane) -> tuple[dict[Store, _Run], int]:
    """The runs that are streamed, and the bytes of each one's tile."""
    odd, even = (max(nbytes // max(len(stores), 1), LINE) for nbytes in (ODD_TILES, TILES))
    runs = _runs(stores, nest, lane, odd)
    if all(_is_aligned(i, run) for i, run in runs.items()):
        shorter = _runs(stores, nest, lane, even)
        if shorter.keys() == runs.keys():
            return shorter, even
    return runs, odd


def _runs(stores: Sequence[Store], nest: Nest, lane: Lane, share: int) -> dict[Store, _Run]:
    """The stores to buffers of which the nest writes nothing but long runs, apart from each other."""
    groups: dict[Buffer, list[Store]] = {}
    for i in stores:
        groups.setdefault(i.buffer, []).append(i)
    found: dict[Store, _Run] = {}
    for b, group in groups.items():
        size = b.type.dtype.itemsize
        runs = [r for i in group if (r := _run(i, nest, lane, share // size)) and _is_long(i, r)]
        if len(runs) == len(group) and all(_apart(x, y) for x, y in combinations(runs, 2)):
            found |= dict(zip(group, runs, strict=True))
    return found


def _run(store: Store, nest: Nest, lane: Lane, most: int) -> _Run | None:
    """What the innermost loop writes, and loops around it as long as it is not more than `most` elements."""
    start, count, first = store.offset, 1, len(nest.loops)
    for n, loop in reversed(list(enumerate(nest.loops))):
        turns = lane.share if lane.flat else loop.hi
        rows = loop.var.name == ROW and not lane.flat
        dense = turns == 1 or dict(start.terms).get(loop.var) == count
        if rows or not dense or loop.lo != 0 or (n < len(nest.loops) - 1 and count * turns > most):
            break
        start, count, first = add(start, mul(var(loop.var), -count)), count * turns, n
    inside = [loop.var for loop in nest.loops[first:]]
    if not inside or store.depth < len(nest.loops):
        return None
    moving = any(a in inside or isinstance(a, Dynamic) for a in atoms([start]))
    return None if moving else _Run(start, count, first)


def _is_long(store: Store, run: _Run) -> bool:
    least = RUN if _is_aligned(store, run) else ODD_RUN
    return run.count * store.buffer.type.dtype.itemsize >= least


def _is_aligned(store: Store, run: _Run) -> bool:
    """Whether the run begins at a line of a buffer that does."""
    size = store.buffer.type.dtype.itemsize
    return all(k * size % LINE == 0 for k in (run.start.const, *(k for _, k in run.start.terms)))


def _apart(x: _Run, y: _Run) -> bool:
    """Whether two runs are as long, and never share an element."""
    distance = add(x.start, mul(y.start, -1))
    return x.count == y.count and x.loop == y.loop and distance.is_const and abs(distance.const) >= x.count


def _block(runs: Mapping[Store, _Run], inner: int, share: int) -> int:
    """Elements of the innermost loop in a block: about equal ones that fit into all tiles."""
    count, most = 1, share
    for i, run in runs.items():
        if run.loop == inner:
            count, most = run.count, min(most, share // i.buffer.type.dtype.itemsize)
    even = -(-count // -(-count // most))
    return min(most, -(-even // LINE) * LINE)
