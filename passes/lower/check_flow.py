"""Follow a small kernel element by element: who writes each element, and who reads it when.

    phase 0: s0[r] = ...  (program p)        fine: phase 1 reads s0 in any program
    phase 0: o0[0] = ...  (every program)    wrong: programs 0 and 1 both write o0[0]

Every load and store is enumerated over its loops; nothing is computed. A kernel with more points than
`LIMIT` is not followed: its shapes differ from those of a small one in extents only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from jstitch.codegen.kernel_ir import (
    PROGRAM,
    ROW,
    STEP,
    STRIP,
    Buffer,
    Kernel,
    Lane,
    Load,
    LoadPair,
    Nest,
    Space,
    Store,
    StorePair,
    StripLane,
)
from jstitch.codegen.kernel_queries import is_repeated
from jstitch.codegen.print_index import print_index
from jstitch.ir.index import Clamp, Dynamic, FloorDiv, Index, Mod, Var, atoms, const, substitute

LIMIT = 1 << 18  # points of one kernel
NOBODY, ONCE = -1, -1
NUMBER = (1 << 32) - 1  # of a program in its lane


def check_flow(kernel: Kernel) -> Iterator[str]:
    """Reads of what was not written, writes that race, results that are not written."""
    if _points(kernel) > LIMIT:
        return
    flow = _Flow(kernel)
    for p, phase in enumerate(kernel.phases):
        flow.begin()
        for q, lane in enumerate(phase.lanes):
            for turn, s, nest in _in_order(lane):
                found = flow.nest(_Around(lane, q, s, nest, turn), nest)
                yield from (f"phase {p}, lane {q}, stage {s}: {text}" for text in found)
    for n, b in enumerate(kernel.results):
        if n in kernel.updates:
            continue
        missing = int((flow.memory[b].writer == NOBODY).sum())
        if missing:
            yield f"{missing} of {b.type.size} elements of {b.name} are never written"


def _in_order(lane: Lane) -> Iterator[tuple[dict[str, int], int, Nest]]:
    """Nests with the numbers of their stages, as often as loops of stages have turns."""
    for loop, numbers in lane.loops:
        for k in range(loop.lo, loop.hi) if loop is not None else range(1):
            turn = {} if loop is None else {loop.var.name: k}
            yield from ((turn, s, nest) for s in numbers for nest in lane.stages[s].nests)


def _points(kernel: Kernel) -> int:
    total = 0
    for phase in kernel.phases:
        for lane in phase.lanes:
            steps = lane.rows * (lane.strips if isinstance(lane, StripLane) else 1)
            for _, _, nest in _in_order(lane):
                inner = math.prod(x.hi - x.lo for x in nest.loops if x.var.name != ROW)
                total += steps * inner * len(nest.instructions)
    return total + sum(b.type.size for b in (*kernel.args, *kernel.results, *kernel.scratch))


def values_of(e: Index, limit: int, known: Mapping[str, np.ndarray] | None = None) -> np.ndarray | None:
    """Every value of an Index over its variables (or `known` ones); None when unknown or too many."""
    found = sorted({a for a in atoms([e]) if isinstance(a, Var) and a.name not in (known or {})}, key=str)
    if any(isinstance(a, Dynamic) for a in atoms([e])) or math.prod(v.extent for v in found) > limit:
        return None
    grid = np.meshgrid(*(np.arange(v.extent) for v in found), indexing="ij", sparse=True)
    return evaluate_index(e, {**{v.name: g for v, g in zip(found, grid, strict=True)}, **(known or {})})


def evaluate_index(e: Index, known: Mapping[str, np.ndarray]) -> np.ndarray:
    """An Index without Dynamic atoms on arrays of its variables."""
    total = np.asarray(e.const, np.int64)
    for atom, k in e.terms:
        match atom:
            case Var(name, _):
                value = known[name]
            case FloorDiv(of, by):
                value = evaluate_index(of, known) // by
            case Mod(of, by):
                value = evaluate_index(of, known) % by
            case Clamp(of, low, high):
                value = np.clip(evaluate_index(of, known), low, high)
            case Dynamic():
                raise KeyError(f"'{atom}' is known at run time only")
        total = total + value * k
    return total


@dataclass
class _Memory:
    """For each element: the program and step that wrote it last, and the lane; NOBODY before.

    `initial`: the program whose once-stage wrote it. `old`: written in an earlier phase.
    """

    writer: np.ndarray
    step: np.ndarray
    initial: np.ndarray
    old: np.ndarray


class _Flow:
    """The state of memory while a kernel is followed, nest by nest, all programs side by side."""

    def __init__(self, kernel: Kernel) -> None:
        self.memory: dict[Buffer, _Memory] = {}
        for b in (*kernel.results, *kernel.scratch):
            nobody = np.full(b.type.size, NOBODY)
            never = np.zeros(b.type.size, np.bool_)
            self.memory[b] = _Memory(nobody, nobody.copy(), nobody.copy(), never)
        self.updates = {kernel.results[n] for n in kernel.updates}
        self.tiles: dict[Buffer, np.ndarray] = {}

    def begin(self) -> None:
        """A phase begins: everything written so far is there for everyone; arenas are empty."""
        self.tiles = {}
        for m in self.memory.values():
            m.old |= m.writer != NOBODY

    def nest(self, around: _Around, nest: Nest) -> Iterator[str]:
        """All loads, then all stores: a nest may go on from what it stored itself only where that was set."""
        for instr in nest.instructions:
            if isinstance(instr, Load) and instr.buffer.space is not Space.ARG:
                yield from self._load(around, instr)
        loaded = {i.buffer for i in nest.body if isinstance(i, Load)}
        stores = [i for i in nest.instructions if isinstance(i, Store)]
        goes_on = any(i.buffer in loaded for i in stores)  # it accumulates
        for instr in nest.instructions:
            if isinstance(instr, Store):
                yield from self._store(around, instr, goes_on)

    def _load(self, around: _Around, instr: Load) -> Iterator[str]:
        where = f"{instr.buffer.name}[{print_index(instr.offset)}]"
        points = around.points(instr)
        if instr.buffer.space is Space.ARENA:
            written = self.tiles.get(instr.buffer)
            here = None if points is None else (around.owner(instr.buffer, points[0]), points[1])
            fine = written is not None and (written.all() if here is None else written[here].all())
            if not fine:
                yield f"{where} is read before it is written in the same step"
            return
        m = self.memory[instr.buffer]
        if points is None:
            if not m.old.all():
                yield f"{where} is read at run-time offsets before all of it is written"
            return
        step, offset = points
        program = around.program[step]
        mine = (m.writer[offset] == program) & ((m.step[offset] == around.stamp(step)) | around.once)
        mine |= m.initial[offset] == program
        wrong = ~(m.old[offset] | mine)
        if wrong.any():
            yield f"{where} reads {int(wrong.sum())} elements that its program has not written"

    def _store(self, around: _Around, instr: Store, goes_on: bool) -> Iterator[str]:
        where = f"{instr.buffer.name}[{print_index(instr.offset)}]"
        moved = instr.buffer in self.updates
        points = around.points(replace(instr, offset=_unmoved(instr.offset)) if moved else instr)
        if points is None:
            yield f"{where} is a store at a run-time offset"
            return
        step, offset = points
        if instr.buffer.space is Space.ARENA:
            owners = around.owner(instr.buffer, np.arange(around.steps)).max(initial=0) + 1
            empty = np.zeros((owners, instr.buffer.type.size), np.bool_)
            self.tiles.setdefault(instr.buffer, empty)[around.owner(instr.buffer, step), offset] = True
            return
        m, program = self.memory[instr.buffer], around.program[step]
        if m.old[offset].any():
            yield f"{where} writes elements that an earlier phase wrote"
        other = (m.writer[offset] != NOBODY) & (m.writer[offset] != program)
        if other.any():
            yield f"{where} writes {int(other.sum())} elements that another program writes"
        again = (m.writer[offset] == program) & (m.initial[offset] != program)
        if again.any() and not goes_on:
            yield f"{where} writes {int(again.sum())} elements a second time"
        yield from _race(where, offset, program, around.stamp(step), m.initial)
        m.writer[offset], m.step[offset] = program, around.stamp(step)
        if around.once:
            m.initial[offset] = program


def _unmoved(e: Index) -> Index:
    """An update's offset with its block at the beginning: all of a block moves together."""

    def still(atom: object) -> Index | None:
        moves = isinstance(atom, Clamp) and any(isinstance(a, Dynamic) for a in atoms([atom.of]))
        return const(0) if moves else None

    return substitute(e, still)


def _race(
    where: str, offset: np.ndarray, program: np.ndarray, step: np.ndarray, initial: np.ndarray
) -> Iterator[str]:
    """Elements that different programs, or different steps of one, write in one nest."""
    order = np.lexsort((step.ravel(), offset.ravel()))
    o, p, s = (x.ravel()[order] for x in (offset, program, step))
    same = o[1:] == o[:-1]
    if (same & (p[1:] != p[:-1])).any():
        yield f"{where} writes the same elements in several programs"
    elif (same & (s[1:] != s[:-1]) & (initial[o[1:]] != p[1:])).any():
        yield f"{where} writes the same elements in several steps"


class _Around:
    """The steps of a lane, each with its program, and a nest's points in them."""

    def __init__(self, lane: Lane, number: int, stage: int, nest: Nest, turn: Mapping[str, int]) -> None:
        self.lane, self.loops, self.once, self.stage = lane, nest.loops, lane.stages[stage].once, stage
        self.turn = {name: np.asarray(k) for name, k in turn.items()}
        strips = lane.strips if isinstance(lane, StripLane) else 1
        self.strips = strips
        self.steps = lane.programs if self.once else lane.rows // lane.step * strips
        owner = np.arange(lane.programs) if self.once else _owners(lane, strips)
        self.program = owner + (number << 32)  # programs of different lanes differ

    def stamp(self, step: np.ndarray) -> np.ndarray:
        return np.full_like(step, ONCE) if self.once else step

    def owner(self, tile: Buffer, step: np.ndarray) -> np.ndarray:
        """Whose a tile is: a step's, or its program's where that keeps it for all its rows."""
        kept = tile in self.lane.common or (isinstance(self.lane, StripLane) and self.once)
        return self.program[step] & NUMBER if kept else step

    def points(self, i: Load | Store) -> tuple[np.ndarray, np.ndarray] | None:
        """(step, element) of every access; None for offsets known at run time only."""
        if any(isinstance(a, Dynamic) for a in atoms([i.offset])):
            return None
        inside = self.loops[: i.depth]
        loops = [x for x in inside if x.var.name != ROW]
        row_loops = [x for x in inside if x.var.name == ROW]
        rows = self.lane.step if row_loops else 1
        each = row_loops[0].each if row_loops else 1
        axes = [np.arange(0, self.steps, each), np.arange(rows), *(np.arange(x.lo, x.hi) for x in loops)]
        step, row, *inner = np.meshgrid(*axes, indexing="ij")
        known = {x.var.name: values for x, values in zip(loops, inner, strict=True)} | self.turn
        program = self.program[step] & NUMBER
        turn = (step // self.strips * self.lane.step + row) // each
        known |= {PROGRAM: program, STRIP: program % self.strips, STEP: step, ROW: turn}
        found = np.broadcast_to(evaluate_index(i.offset, known), step.shape).ravel()
        step = step.ravel()
        if isinstance(i, Store) and i.buffer.space is not Space.ARENA:
            stored = ~self._repeated()[step]
            step, found = step[stored], found[stored]
        if not isinstance(i, LoadPair | StorePair):
            return step, found
        # The second element is the next row's where a turn takes two rows.
        return np.concatenate([step, step + each - 1]), np.concatenate([found, found + 1])

    def _repeated(self) -> np.ndarray:
        """The steps whose results another program stores."""
        programs = range(self.lane.programs)
        repeated = np.array([is_repeated(self.lane, self.stage, p) for p in programs])
        return np.take(repeated, self.program & NUMBER)


def _owners(lane: Lane, strips: int) -> np.ndarray:
    """The program of each step; each step of a lane of strips is a row of a strip."""
    steps, shares = lane.rows // lane.step, lane.programs // strips
    if lane.flat:
        return np.arange(steps) // lane.share
    ends = (np.arange(shares) + 1) * steps // shares
    share = np.searchsorted(ends, np.arange(steps), side="right")
    return (share[:, None] * strips + np.arange(strips)).ravel()
