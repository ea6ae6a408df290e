"""Which way a warp goes through machine code, from how often it comes to each line of the PTX.

    counts {71: 62, ...}   ->   numbers of instructions, in the order in which the warp issues them

ptxas unrolls, moves and predicates, so that a line may stand in several blocks: their flows are found by an
integer program, the flow through the blocks that fits the counts best. Loads, stores, shuffles and barriers,
which ptxas does not duplicate within a block but by unrolling, count most. The way is then walked: a loop's
branch is taken as often in a row as the flows say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from jstitch.codegen.cuda.timeline.machine_code import Instruction

_ENDS = ("BRA", "EXIT", "RET", "BSYNC", "BREAK", "CALL", "BRX", "JMP")
_ANCHORS = ("LDG", "STG", "LDS", "STS", "LDGSTS", "SHFL", "BAR", "LDSM", "HMMA", "MUFU")
_SURE, _UNSURE = 1.0, 0.02  # what a count that is missed by one costs
_STEP = 1e-6  # what a run of a block costs, so that none runs for nothing
MOST_STEPS = 4_000_000
"""Instructions of one warp, beyond which nothing is replayed."""


class TooLongError(Exception):
    """A warp's way is longer than MOST_STEPS, or has no end."""


@dataclass(frozen=True)
class Flow:
    """The blocks of a kernel: [starts[n], starts[n + 1]). edges: pairs of blocks; -1 is the end."""

    code: tuple[Instruction, ...]
    starts: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]

    @cached_property
    def copies(self) -> Mapping[int, Mapping[int, tuple[int, bool]]]:
        """By line, by block: how often the block does what the line says, and whether that is sure."""
        found: dict[int, dict[int, tuple[int, bool]]] = defaultdict(dict)
        for number in range(len(self.starts) - 1):
            block = self.code[self.starts[number] : self.starts[number + 1]]
            opcodes: dict[int, Counter[str]] = defaultdict(Counter)
            for one in block:
                if one.line:
                    opcodes[one.line][one.opcode] += 1
            for line, counts in opcodes.items():
                anchored = [n for opcode, n in counts.items() if opcode.partition(".")[0] in _ANCHORS]
                times = min(anchored or counts.values())
                if anchored or times == 1:
                    found[line][number] = times, bool(anchored)
        return found

    def followed(self, way: NDArray[np.int64], counts: Mapping[int, int]) -> float:
        """Of the runs of lines with loads, stores, shuffles or barriers, the share that the way has."""
        times = np.bincount(way, minlength=len(self.code))
        wanted = found = 0
        for line, blocks in self.copies.items():
            if line in counts and all(is_sure for _, is_sure in blocks.values()):
                runs = sum(times[self.starts[block]] * n for block, (n, _) in blocks.items())
                wanted, found = wanted + counts[line], found + min(counts[line], int(runs))
        return found / wanted if wanted else 1.0

    def walk(self, counts: Mapping[int, int]) -> NDArray[np.int64]:
        """The instructions of a warp that comes to each line that often. Raises TooLongError."""
        flows = self._fit(counts)
        leaving: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for (block, to), flow in zip(self.edges, flows, strict=True):
            leaving[block].append((to, flow))
        way, block, steps, visits = [], 0, 0, Counter[int]()
        taken: Counter[tuple[int, int]] = Counter()
        while block >= 0:
            way.append(block)
            steps += self.starts[block + 1] - self.starts[block]
            if steps > MOST_STEPS:
                raise TooLongError(f"a warp issues more than {MOST_STEPS:,} instructions")
            visits[block] += 1
            to = _next(block, leaving[block], visits[block], taken)
            taken[block, to] += 1
            block = to
        spans = [np.arange(self.starts[n], self.starts[n + 1]) for n in range(len(self.starts) - 1)]
        return np.concatenate([spans[n] for n in way])

    def _fit(self, counts: Mapping[int, int]) -> NDArray[np.float64]:
        """The flow of each edge, whole numbers. One unit enters the first block."""
        lines = [line for line in self.copies if line in counts]
        edges, blocks = len(self.edges), len(self.starts) - 1
        entries = [*self._conservation(), *self._comings(lines)]
        for n in range(len(lines)):  # what a count is missed by, either way
            entries += [(blocks + n, edges + 2 * n, 1.0), (blocks + n, edges + 2 * n + 1, -1.0)]
        sure = [all(is_sure for _, is_sure in self.copies[line].values()) for line in lines]
        costs = [*[_STEP] * edges, *(_SURE if one else _UNSURE for one in sure for _ in range(2))]
        entered = [self.copies[line].get(0, (0, False))[0] for line in lines]
        ends = [1, *[0] * (blocks - 1), *(counts[line] - n for line, n in zip(lines, entered, strict=True))]
        rows, columns, values = zip(*entries, strict=True)
        matrix = csr_array((values, (rows, columns)), shape=(blocks + len(lines), edges + 2 * len(lines)))
        whole = np.repeat((1, 0), (edges, 2 * len(lines)))
        below = self._loops(max(counts.values(), default=1), matrix.shape[1])
        done = linprog(
            costs, A_eq=matrix, b_eq=ends, A_ub=below, b_ub=np.zeros(below.shape[0]), integrality=whole
        )
        if done.x is None:
            raise TooLongError("no way through the code fits the counts of its lines")
        return np.asarray(np.rint(done.x[:edges]), np.float64)

    def _conservation(self) -> Iterator[tuple[int, int, float]]:
        """What leaves a block is what enters it: (row of the block, edge, coefficient)."""
        for number, (block, to) in enumerate(self.edges):
            yield block, number, 1.0
            if to >= 0:
                yield to, number, -1.0

    def _loops(self, most: int, columns: int) -> csr_array:
        """Nothing goes back to where nothing comes from before: rows of what is not to be above zero."""
        back = [number for number, (block, to) in enumerate(self.edges) if 0 <= to <= block]
        entries = [(n, number, 1.0) for n, number in enumerate(back)]
        for n, number in enumerate(back):
            head = self.edges[number][1]
            before = (k for k, (block, to) in enumerate(self.edges) if to == head and block < head)
            entries += [(n, k, -float(most)) for k in before]
        rows, places, values = zip(*entries, strict=True) if entries else ((), (), ())
        return csr_array((values, (rows, places)), shape=(len(back), columns))

    def _comings(self, lines: Sequence[int]) -> Iterator[tuple[int, int, float]]:
        """How often the blocks with a line are entered, times what they have of it."""
        entering: dict[int, list[int]] = defaultdict(list)
        for number, (_, to) in enumerate(self.edges):
            entering[to].append(number)
        for n, line in enumerate(lines):
            for block, (times, _) in self.copies[line].items():
                for number in entering[block]:
                    yield len(self.starts) - 1 + n, number, float(times)


def _next(
    block: int, leaving: Sequence[tuple[int, float]], visit: int, taken: Mapping[tuple[int, int], int]
) -> int:
    """Where the warp goes at its `visit`-th time in a block: back, or where most flow goes, until another
    edge's share of all visits is due.
    """
    total = sum(flow for _, flow in leaving)
    if total <= 0:
        return -1
    usual = max(leaving, key=lambda edge: (0 <= edge[0] <= block and edge[1] > 0, edge[1]))
    for to, flow in leaving:
        if to != usual[0] and visit * flow / total + 1e-6 >= taken.get((block, to), 0) + 1:
            return to
    return usual[0]


def find_flow(code: tuple[Instruction, ...]) -> Flow:
    """The blocks. Subroutines are never entered: they are for numbers that are rare."""
    starts = {0, len(code)}
    for number, one in enumerate(code):
        if one.name in _ENDS:
            starts.add(number + 1)
        if one.target is not None:
            starts.add(one.target)
    ordered = sorted(s for s in starts if s <= len(code))
    block_at = {start: n for n, start in enumerate(ordered[:-1])}
    meets: dict[str, int | None] = {}  # where threads meet, by register: of the BSSY before, in the text
    edges: list[tuple[int, int]] = []
    for n, (start, end) in enumerate(pairwise(ordered)):
        meets |= {one.operands.partition(",")[0]: one.target for one in code[start:end] if one.name == "BSSY"}
        after = block_at.get(end, -1)
        edges += [(n, to) for to in dict.fromkeys(_leads(code[end - 1], after, block_at, meets))]
    return Flow(code, tuple(ordered), tuple(edges))


def _leads(
    last: Instruction, after: int, block_at: Mapping[int, int], meets: Mapping[str, int | None]
) -> list[int]:
    """Blocks that may follow one with this last instruction. after: the next one in the text."""
    falls = [after] if last.guard and not _is_never(last.guard) else []
    match last.name:
        case "BRA" | "JMP" if last.target is not None:
            return [block_at.get(last.target, -1), *(falls or ([after] if _asks(last) else []))]
        case "EXIT" | "RET":
            return [-1, *falls]
        case "BSYNC" if (met := meets.get(last.operands)) is not None:
            return [block_at.get(met, -1), *falls]
    return [after]


def _asks(branch: Instruction) -> bool:
    """A branch with a predicate or condition among its operands, as `BRA.DIV UR4, L` or `BRA P0, L`."""
    return "," in branch.operands


def _is_never(guard: str) -> bool:
    return guard in ("@PT", "@UPT")
