"""How often each warp of some CTAs runs each line of a PTX text, and what it touches there.

    warps = count_lines(text, "k", extent, ctas=(0, 99))      warps[0].lines[71].runs == 62

The PTX interpreter runs these CTAs alone. Global memory has no content: every load gives zeros, so paths
that hang on data are those of zeros.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.ptx.batch import Batch
from jstitch.codegen.cuda.ptx.block import Block, Program
from jstitch.codegen.cuda.ptx.frame import Frame
from jstitch.codegen.cuda.ptx.group import Group, Lanes
from jstitch.codegen.cuda.ptx.memory import PIECE, Access, Memory, Region
from jstitch.codegen.cuda.ptx.order import Clock, Order
from jstitch.codegen.cuda.ptx.run import argument_regions, load_program, one_cta
from jstitch.codegen.cuda.ptx.scalar import Array

WARP, SECTOR, LINE, BANKS, WORD = 32, 32, 128, 32, 4
_ASKED = -1  # the stamp of a sector that L2 was asked for, and nobody touched since
_TOUCHED = ("sectors", "fresh", "far", "asked", "passes")


@dataclass(frozen=True)
class Extent:
    """Of a launch. sizes: bytes of each argument. shared_bytes: of the dynamic arena of a CTA. l1_bytes: of
    a CTA's share of the cache.
    """

    grid: int
    block: int
    shared_bytes: int
    sizes: tuple[int, ...]
    l1_bytes: int


@dataclass(frozen=True)
class Line:
    """What a warp does at a line, all its runs together.

    reached: times that it came there; runs: with some lane at work. sectors: of 32 bytes that loads and
    stores of global memory touch; fresh: those that its CTA touches for the first time; far: those touched
    so long ago that the cache has lost them; asked: those that L2 was asked for before. passes: cycles of
    L1, or of the shared memory's banks. barrier: number and warps of the last one, or None. buffer: argument,
    or -1.
    """

    reached: int = 0
    runs: int = 0
    sectors: int = 0
    fresh: int = 0
    far: int = 0
    asked: int = 0
    passes: int = 0
    buffer: int = -1
    barrier: tuple[int, int] | None = None


@dataclass(frozen=True)
class WarpCount:
    """The lines of one warp."""

    cta: int
    warp: int
    lines: Mapping[int, Line]


def count_lines(text: str, entry: str, extent: Extent, ctas: Sequence[int]) -> list[WarpCount]:
    """Every warp of the CTAs, which are numbers in the grid. Raises PtxError as `run_ptx`."""
    program = load_program(text, entry)
    return [warp for cta in ctas for warp in _count_cta(program, extent, cta)]


def _count_cta(program: Program, extent: Extent, cta: int) -> list[WarpCount]:
    regions = argument_regions(extent.sizes)
    counts = _Counts(-(-extent.block // WARP), regions, extent.l1_bytes)
    memory, parameters = one_cta(program, regions, extent.shared_bytes, extent.block)
    counted = _Memory(
        memory.windows, memory.shared, memory.local, memory.parameters, memory.tally, counts=counts
    )
    lanes = np.arange(extent.block)
    order = Order(Clock(), extent.block, 1, cta * extent.block)
    frame = Frame(lanes, lanes + cta * extent.block, order, [], counted, extent.grid)
    with np.errstate(all="ignore"):
        _Batch(program, frame, parameters, counts).run()
    return counts.warps(program, cta)


@dataclass
class _Counts:
    """Of one CTA. Arrays have one number per warp."""

    size: int
    regions: Sequence[Region]
    l1_bytes: int
    blocks: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    touched: dict[tuple[int, str], NDArray[np.int64]] = field(default_factory=dict)
    buffers: dict[int, int] = field(default_factory=dict)
    barriers: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    stamps: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    moved: int = 1  # bytes so far; a sector's stamp is what they were when it was touched last, 0 for never

    def run(self, block: Block, lanes: Lanes) -> None:
        """A block, by some lanes."""
        self.blocks.setdefault(id(block), np.zeros(self.size, np.int64))[np.unique(lanes // WARP)] += 1

    def touch_global(self, line: int, region: Region, lanes: Lanes, offsets: Lanes, nbytes: int) -> None:
        """Each lane's access lies within one sector. Passes are the lines of each group of lanes that would
        have one together, were they neighbours."""
        number, stamps = self._stamps(region)
        groups = lanes // max(1, LINE // nbytes)
        together = np.unique(np.stack((groups, offsets // LINE)), axis=1)[0]
        self._add(line, "passes", together * max(1, LINE // nbytes) // WARP)
        pairs = np.unique(np.stack((offsets // SECTOR, lanes // WARP)), axis=1)
        sectors, first = np.unique(pairs[0], return_index=True)
        is_fresh, is_asked = stamps[sectors] == 0, stamps[sectors] == _ASKED
        is_far = ~is_fresh & ~is_asked & (self.moved - stamps[sectors] > self.l1_bytes)
        self.moved += SECTOR * len(sectors)
        stamps[sectors] = self.moved
        self.buffers[line] = number
        warps = pairs[1][first]
        self._add(line, "sectors", pairs[1])
        self._add(line, "fresh", warps[is_fresh])
        self._add(line, "far", warps[is_far])
        self._add(line, "asked", warps[is_asked])

    def prefetch(self, line: int, region: Region, lanes: Lanes, offsets: Lanes, nbytes: int) -> None:
        """Each lane's bytes, which only L2 has then."""
        number, stamps = self._stamps(region)
        self.buffers[line] = number
        for lane, offset in zip(lanes, offsets, strict=True):
            part = stamps[offset // SECTOR : (offset + nbytes - 1) // SECTOR + 1]
            fresh = part == 0
            part[fresh] = _ASKED
            warps = np.full(int(fresh.sum()), lane // WARP)
            self._add(line, "sectors", warps)
            self._add(line, "fresh", warps)

    def _stamps(self, region: Region) -> tuple[int, NDArray[np.int64]]:
        """The buffer's number, and when its sectors were touched last."""
        number = self.regions.index(region)
        return number, self.stamps.setdefault(number, np.zeros(region.size // SECTOR + 1, np.int64))

    def touch_shared(self, line: int, lanes: Lanes, offsets: Lanes, nbytes: int) -> None:
        """Passes are the most words of one bank that a warp asks for."""
        words = offsets[:, None] // WORD + np.arange(-(-nbytes // WORD))
        warps = np.broadcast_to((lanes // WARP)[:, None], words.shape)
        pairs = np.unique(np.stack((warps.ravel(), words.ravel())), axis=1)
        places = np.bincount(pairs[0] * BANKS + pairs[1] % BANKS, minlength=self.size * BANKS)
        self._total(line, "passes")[:] += places.reshape(self.size, BANKS).max(1)

    def _total(self, line: int, what: str) -> NDArray[np.int64]:
        return self.touched.setdefault((line, what), np.zeros(self.size, np.int64))

    def _add(self, line: int, what: str, warps: NDArray[np.int64]) -> None:
        self._total(line, what)[:] += np.bincount(warps, minlength=self.size)

    def _of(self, line: int, what: str, warp: int) -> int:
        return int(self.touched[line, what][warp]) if (line, what) in self.touched else 0

    def warps(self, program: Program, cta: int) -> list[WarpCount]:
        """All that was counted, warp by warp."""
        runs, reached = _by_line(program, self.blocks, self.size)
        found = []
        for warp in range(self.size):
            lines = {line: Line(int(n[warp]), int(runs[line][warp])) for line, n in reached.items()}
            for line in {line for line, _ in self.touched}:
                sectors, fresh, far, asked, passes = (self._of(line, what, warp) for what in _TOUCHED)
                touched = replace(lines[line], sectors=sectors, fresh=fresh, far=far, asked=asked)
                lines[line] = replace(touched, passes=passes, buffer=self.buffers.get(line, -1))
            for (line, of), barrier in self.barriers.items():
                if of == warp:
                    lines[line] = replace(lines[line], barrier=barrier)
            found.append(WarpCount(cta, warp, lines))
        return found


def _by_line(
    program: Program, blocks: Mapping[int, NDArray[np.int64]], size: int
) -> tuple[dict[int, NDArray[np.int64]], dict[int, NDArray[np.int64]]]:
    """Runs and arrivals of each line. A guarded instruction is reached wherever its guard is asked."""
    runs: dict[int, NDArray[np.int64]] = defaultdict(lambda: np.zeros(size, np.int64))
    reached: dict[int, NDArray[np.int64]] = defaultdict(lambda: np.zeros(size, np.int64))
    asked: NDArray[np.int64] | None = None
    for block in program.blocks:
        count = blocks.get(id(block), np.zeros(size, np.int64))
        own = [step.line for step, _ in block.steps]
        last = block.last
        if last is not None and last.line:
            own.append(last.line)
        for line in dict.fromkeys(own):
            runs[line] += count
            reached[line] += count if asked is None else asked
        guards = last is not None and not last.line and last.guard is not None
        asked = count if guards else None
    return runs, reached


@dataclass
class _Memory(Memory):
    """Counts accesses; arguments have sizes, and no bytes."""

    counts: _Counts = field(kw_only=True)

    def load(self, group: Group, address: Array, access: Access) -> list[Array]:
        if self._see(group, address, access):
            return [np.zeros(group.size, access.dtype)] * access.count
        return super().load(group, address, access)

    def store(self, group: Group, address: Array, values: Sequence[Array], access: Access) -> None:
        if not self._see(group, address, access):
            super().store(group, address, values, access)

    def prefetch(self, group: Group, address: Array, nbytes: int) -> None:
        super().prefetch(group, address, nbytes)
        for region, positions, offsets in self._locate(group, group.spread(address), PIECE):
            lanes = group.lanes if positions is None else group.lanes[positions]
            self.counts.prefetch(group.order.line, region, lanes, offsets, nbytes)

    def _see(self, group: Group, address: Array, access: Access) -> bool:
        """Whether it is of an argument."""
        of_argument = False
        for region, positions, offsets in self._locate(group, group.spread(address), access):
            lanes = group.lanes if positions is None else group.lanes[positions]
            if region.counted:
                self.counts.touch_global(group.order.line, region, lanes, offsets, access.size)
                of_argument = True
            elif region is self.shared:
                self.counts.touch_shared(group.order.line, lanes, offsets, access.size)
        return of_argument


class _Batch(Batch):
    """Counts blocks and barriers."""

    def __init__(self, program: Program, frame: Frame, values: dict[int, Array], counts: _Counts) -> None:
        super().__init__(program, frame, values)
        self.counts = counts

    def _execute(self, frame: Frame, block: Block) -> Any:
        self.counts.run(block, frame.lanes)
        goes = super()._execute(frame, block)
        if block.barrier is not None:
            self._meet(frame, block)
        return goes

    def _meet(self, frame: Frame, block: Block) -> None:
        barrier, line = block.barrier, frame.order.line
        assert barrier is not None
        numbers = frame.spread(barrier.number(frame)).astype(np.int64)
        block_size = frame.order.block
        threads = [block_size] if barrier.count is None else frame.spread(barrier.count(frame))
        threads = np.broadcast_to(threads, len(numbers))
        warps, first = np.unique(frame.lanes // WARP, return_index=True)
        for warp, at in zip(warps, first, strict=True):
            self.counts.barriers[line, int(warp)] = int(numbers[at]), -(-int(threads[at]) // WARP)
