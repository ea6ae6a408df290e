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

from jstitch.codegen.intrinsics import INTRINSICS
from jstitch.codegen.kernel_ir import (
    PROGRAM,
    ROW,
    STEP,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    Nest,
    Stage,
    Store,
)
from jstitch.ir.expr import Call, Const, Expr, Number, Ref
from jstitch.ir.index import Atom, Clamp, Dynamic, FloorDiv, Index, Mod, Var
from jstitch.ir.types import DType


class KernelError(Exception):
    """A kernel that reads what was not written or leaves its buffers; the message says which."""


class _Memory:
    """One buffer: its elements, and which of them were written."""

    def __init__(self, buffer: Buffer, given: np.ndarray | None = None) -> None:
        self.name = buffer.name
        dtype = buffer.type.dtype
        self.data = np.zeros(buffer.type.size, dtype.numpy) if given is None else given.reshape(-1).copy()
        self.compute = dtype.compute.numpy
        self.written = np.full(buffer.type.size, given is not None)

    def load(self, i: int) -> Any:
        self._check(i)
        if not self.written[i]:
            raise KernelError(f"{self.name}[{i}] is read before it is written")
        return self.data[i : i + 1].astype(self.compute)[0]

    def store(self, i: int, value: Any) -> None:
        self._check(i)
        self.data[i], self.written[i] = np.asarray(value).astype(self.data.dtype), True

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
    with np.errstate(all="ignore"):
        for phase in kernel.phases:
            programs = [(lane, p) for lane in phase.lanes for p in range(lane.programs)]
            if order is not None:
                order.shuffle(programs)
            for lane, p in programs:
                _Program(memory, kernel.arena, lane, p).run()
    for b in kernel.results:
        if not memory[b].written.all():
            raise KernelError(f"{b.name} has {int((~memory[b].written).sum())} elements that nobody wrote")
    return tuple(memory[b].data.reshape(b.type.shape) for b in kernel.results)


class _Program:
    """One program of a lane."""

    def __init__(self, memory: Mapping[Buffer, _Memory], arena: Sequence[Buffer], lane: Lane, p: int) -> None:
        self.memory, self.arena, self.lane = dict(memory), arena, lane
        self.names: dict[str, Any] = {PROGRAM: p}

    def run(self) -> None:
        for stage in self.lane.stages:
            if stage.once:
                self._stage(stage)
        for q in self._steps():
            self.memory |= {b: _Memory(b) for b in self.arena}
            self.names |= {STEP: q, ROW: q * self.lane.step}
            for stage in self.lane.stages:
                if not stage.once:
                    self._stage(stage)

    def _steps(self) -> range:
        lane, p = self.lane, int(self.names[PROGRAM])
        steps = lane.rows // lane.step
        if lane.flat:
            share = lane.share
            return range(min(p * share, steps), min(p * share + share, steps))
        return range(p * steps // lane.programs, (p + 1) * steps // lane.programs)

    def _stage(self, stage: Stage) -> None:
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
            loop = nest.loops[depth]
            first = int(self.names[STEP]) * self.lane.step if loop.var.name == ROW else 0
            for i in range(first + loop.lo, first + loop.hi):
                self.names[loop.var.name] = i
                self._nest(nest, depth + 1)
        for instr in nest.after:
            if instr.depth == depth:
                self._instr(instr)

    def _instr(self, instr: Instr) -> None:
        match instr:
            case Let(name, value, _):
                self.names[name] = self._value(value)
            case Load(name, buffer, offset, _):
                self.names[name] = self.memory[buffer].load(self._place(offset))
            case Store(buffer, offset, value, _):
                self.memory[buffer].store(self._place(offset), self._value(value))

    def _value(self, e: Expr) -> Any:
        match e:
            case Const(value, DType.BOOL):
                return np.bool_(value)
            case Const(value, dtype):
                return np.asarray(value).astype(dtype.numpy)[()]
            case Ref(name):
                return self.names[name]
            case Number(index):
                return np.int64(self._place(index))
            case Call(function, args):
                return INTRINSICS[function].reference(*map(self._value, args))

    def _place(self, e: Index) -> int:
        """An index at this point of the loops."""
        return e.const + sum(k * self._atom(atom) for atom, k in e.terms)

    def _atom(self, atom: Atom) -> int:
        match atom:
            case Var(name, _):
                return int(self.names[name])
            case FloorDiv(of, by):
                return self._place(of) // by
            case Mod(of, by):
                return self._place(of) % by
            case Clamp(of, low, high):
                return min(max(self._place(of), low), high)
            case Dynamic(operand, _):
                return int(self.names[str(operand)])
