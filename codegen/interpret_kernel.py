"""Run a Kernel in Python, one scalar at a time: slow, and right whatever the emitters do.

    (y,) = interpret_kernel(kernel, [x], order=random.Random(0))

The programs of a phase run in a shuffled order; memory starts unwritten (arenas for each program and step),
and a read of an element that nobody wrote raises KernelError. Stands between the Graph interpreter and
compiled kernels: whichever pair differs, is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from jstitch.codegen.interpret_expr import Formulas
from jstitch.codegen.kernel_ir import (
    PROGRAM,
    ROW,
    START,
    STEP,
    STRIP,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    LoadPair,
    Loop,
    Nest,
    Space,
    Store,
    StorePair,
    Streamed,
    StripLane,
    Turns,
    Unless,
)
from jstitch.codegen.kernel_queries import array_of, is_repeated, numbers_in
from jstitch.ir.expr import Expr
from jstitch.ir.index import Index


class KernelError(Exception):
    """A kernel that reads what was not written or leaves its buffers; the message says which."""


class _Memory:
    """One buffer: its elements, and which of them were written."""

    def __init__(self, buffer: Buffer, given: np.ndarray | None = None) -> None:
        self.name = buffer.name
        dtype = buffer.type.dtype
        self.data = np.zeros(buffer.type.size, dtype.numpy) if given is None else numbers_in(given).copy()
        self.compute = dtype.compute.numpy
        self.written = bytearray([given is not None]) * self.data.size

    def load(self, i: int) -> Any:
        self._check(i)
        if not self.written[i]:
            raise KernelError(f"{self.name}[{i}] is read before it is written")
        if self.data.dtype == self.compute:
            return self.data[i]
        return self.data[i : i + 1].astype(self.compute)[0]

    def load_pair(self, i: int) -> Any:
        """The word that holds elements i and i + 1."""
        if i % 2:
            raise KernelError(f"{self.name}[{i}] is in the middle of a word")
        self.load(i), self.load(i + 1)
        return self.data[i : i + 2].view(np.uint32)[0]

    def store(self, i: int, value: Any) -> None:
        self._check(i)
        self.data[i], self.written[i] = np.asarray(value).astype(self.data.dtype), 1

    def _check(self, i: int) -> None:
        if not 0 <= i < self.data.size:
            raise KernelError(f"{self.name}[{i}] is outside its {self.data.size} elements")


def interpret_kernel(
    kernel: Kernel, args: Sequence[np.ndarray], order: Random | None = None
) -> tuple[np.ndarray, ...]:
    """The kernel's results for its arguments, in their declared shapes and dtypes.

    order: shuffles the programs of every phase; None runs them in order. Raises KernelError.
    """
    memory = {b: _Memory(b, np.asarray(a)) for b, a in zip(kernel.args, args, strict=True)}
    memory |= {b: _Memory(b) for b in (*kernel.results, *kernel.scratch)}
    memory |= {kernel.results[n]: _Memory(kernel.results[n], args[kernel.aliases[n]]) for n in kernel.updates}
    formulas = Formulas()
    with np.errstate(all="ignore"):
        for phase in kernel.phases:
            programs = [(lane, p) for lane in phase.lanes for p in range(lane.programs)]
            if order is not None:
                order.shuffle(programs)
            for lane, p in programs:
                _Program(memory, formulas, kernel.arena, lane, p).run()
    for b in kernel.results:
        if missing := memory[b].written.count(0):
            raise KernelError(f"{b.name} has {missing} elements that nobody wrote")
    return tuple(array_of(b, memory[b].data) for b in kernel.results)


class _Program:
    """One program of a lane."""

    def __init__(
        self,
        memory: Mapping[Buffer, _Memory],
        formulas: Formulas,
        arena: Sequence[Buffer],
        lane: Lane,
        p: int,
    ) -> None:
        self.memory, self.formulas, self.arena, self.lane = dict(memory), formulas, arena, lane
        self.names: dict[str, Any] = {PROGRAM: p}
        if isinstance(lane, StripLane):
            self.names[STRIP] = p % lane.strips
        self.silent = False  # in a stage of which another program writes the results

    def run(self) -> None:
        """A flat lane runs each nest over all its rows; others run all their nests step by step."""
        lane = self.lane
        self.memory |= {b: _Memory(b) for b in self.arena}
        self._stages(once=True)
        if lane.flat:
            self._stages(once=False)
            return
        for q in self._share():
            self.memory |= {b: _Memory(b) for b in self.arena if b not in lane.common}
            self.names |= {STEP: q, ROW: q * lane.step}
            self._stages(once=False)

    def _share(self) -> range:
        """The program's steps; a flat lane's are rows."""
        lane, p = self.lane, int(self.names[PROGRAM])
        if lane.flat:
            return range(min(p * lane.share, lane.rows), min(p * lane.share + lane.share, lane.rows))
        shares, steps = lane.programs, lane.rows // lane.step
        if isinstance(lane, StripLane):
            p, shares = p // lane.strips, lane.bands
        return range(p * steps // shares, (p + 1) * steps // shares)

    def _stages(self, once: bool) -> None:
        for loop, numbers in self.lane.loops:
            for turn in self._stage_turns(loop) if loop is not None else range(1):
                if loop is not None:
                    self.names[loop.var.name] = turn
                for number in numbers:
                    self._stage(number, once)

    def _stage_turns(self, loop: Loop) -> range:
        """The turns of a loop of stages."""
        match loop:
            case Turns(first=first, unless=None):
                return range(loop.lo, min(self._place(first), loop.hi))
            case Turns(first=first, unless=Unless(tile, above)):
                rows = (self.memory[tile].load(r) for r in range(self.lane.step))
                done = all(x > above for x in rows)
                return range(loop.hi if done else max(self._place(first), loop.lo), loop.hi)
        return range(loop.lo, loop.hi)

    def _stage(self, number: int, once: bool) -> None:
        stage = self.lane.stages[number]
        if stage.once == once:
            self.silent = is_repeated(self.lane, number, int(self.names[PROGRAM]))
            for nest in stage.nests:
                self._nest(nest, 0)

    def _nest(self, nest: Nest, depth: int) -> None:
        for instr in nest.body:
            if instr.depth == depth:
                self._instr(instr)
        if depth < len(nest.loops):
            for a in nest.accumulators:
                if a.depth == depth:
                    self.names[a.name] = self._value(a.init)
            self._loop(nest, depth)
        for instr in nest.after:
            if instr.depth == depth:
                self._instr(instr)

    def _loop(self, nest: Nest, depth: int) -> None:
        """A loop; where results are streamed in blocks, at the end of which their tiles are copied."""
        loop = nest.loops[depth]
        streamed = [s for s in nest.body if isinstance(s, Streamed) and s.loop == depth]
        for block in _blocks(self._turns(loop), streamed):
            self.names[START.name] = block.start
            self.memory |= {s.tile: _Memory(s.tile) for s in streamed}
            for i in block:
                self.names[loop.var.name] = i
                self._nest(nest, depth + 1)
            for s in streamed:
                self._copy(s, s.tile.type.size if s.whole else len(block))

    def _turns(self, loop: Loop) -> range:
        if loop.var.name != ROW:
            return range(loop.lo, loop.hi)
        if self.lane.flat:
            share = self._share()
            return range(share.start // loop.each, share.stop // loop.each)
        first = int(self.names[STEP]) * self.lane.step
        return range(first + loop.lo, first + loop.hi)

    def _copy(self, s: Streamed, count: int) -> None:
        target = self._place(s.target)
        for k in range(count):
            self.memory[s.buffer].store(target + k, self.memory[s.tile].load(k))

    def _instr(self, instr: Instr) -> None:
        match instr:
            case Let(name, value, _):
                self.names[name] = self._value(value)
            case LoadPair(name, buffer, offset, _):
                self.names[name] = self.memory[buffer].load_pair(self._place(offset))
            case Load(name, buffer, offset, _):
                self.names[name] = self.memory[buffer].load(self._place(offset))
            case StorePair(buffer, offset, value, _, second):
                self.memory[buffer].store(self._place(offset), self._value(value))
                self.memory[buffer].store(self._place(offset) + 1, self._value(second))
            case Streamed(tile=tile, place=place, value=value):
                self.memory[tile].store(self._place(place), self._value(value))
            case Store(buffer, offset, value, _):
                if self.silent and buffer.space is not Space.ARENA:
                    return
                self.memory[buffer].store(self._place(offset), self._value(value))

    def _value(self, e: Expr) -> Any:
        return self.formulas.value(e)(self.names)

    def _place(self, e: Index) -> int:
        """An index at this point of the loops."""
        return self.formulas.place(e)(self.names)


def _blocks(turns: range, streamed: Sequence[Streamed]) -> list[range]:
    """The turns of a loop, cut where tiles that do not hold all of it are full."""
    if not streamed or streamed[0].whole:
        return [turns]
    size = streamed[0].tile.type.size
    return [turns[k : k + size] for k in range(0, len(turns), size)]
