"""Runs a program on the lanes of some CTAs in lockstep.

While all lanes stand at one block it runs on whole registers. After they part, the lanes at the lowest block
go first, on registers of their own, until all meet again. Where a warp's lanes meet, the first ones wait
while others can still come.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.ptx.block import Barrier, Block, Program
from jstitch.codegen.cuda.ptx.error import Fault, PtxError
from jstitch.codegen.cuda.ptx.frame import Frame
from jstitch.codegen.cuda.ptx.group import Lanes
from jstitch.codegen.cuda.ptx.scalar import UNSIGNED, Array

BARRIERS = 16


def _poison(bits: int) -> Array:
    """The content of a register that nobody has written."""
    return np.zeros(1, bool) if bits == 1 else np.full(bits // 8, 0xCD, np.uint8).view(UNSIGNED[bits])


class Batch:
    """frame: all lanes. values: what parameter registers hold. steps, barriers: counts so far."""

    def __init__(self, program: Program, frame: Frame, values: dict[int, Array]) -> None:
        self.program, self.frame, self.end = program, frame, len(program.blocks)
        frame.registers = [_poison(bits) for bits in program.operands.widths]
        for number, value in values.items():
            frame.registers[number] = value
        self.place = np.zeros(frame.size, np.int64)
        self.waits: Lanes = np.full(frame.size, -1)  # the barrier that each lane waits at, in its CTA
        self.wait_line = np.zeros(frame.size, np.int64)
        self.steps = self.barriers = 0

    def run(self) -> None:
        """Until every lane has ended. Raises PtxError."""
        together: int | None = 0
        while together != self.end:
            together = self._some() if together is None else self._all(together)

    def _all(self, number: int) -> int | None:
        block = self.program.blocks[number]
        goes = self._execute(self.frame, block)
        if block.barrier is None:
            return self._go(self.frame, block, goes, number)
        if block.barrier.count is None and len(barrier := block.barrier.number(self.frame)) == 1:
            self._check_number(int(barrier[0]), block, 0)
            self.frame.order.cta_barrier(slice(None))
            self.barriers += self.frame.size // self.frame.order.block
            return number + 1
        self.place[:] = number + 1
        self._arrive(self.frame, block, block.barrier)
        return number + 1 if (self.waits < 0).all() else None

    def _some(self) -> int | None:
        """Run the lanes at the lowest block; that block, without running it, where all lanes stand there."""
        runnable = (self.place < self.end) & (self.waits < 0)
        if not runnable.any():
            if (self.waits >= 0).any():
                raise self._deadlock()
            return self.end
        number, lanes = self._next(runnable)
        if len(lanes) == self.frame.size:
            return number
        block = self.program.blocks[number]
        frame = self.frame.subset(lanes, block.needed)
        goes = self._execute(frame, block)
        self._scatter(frame, block)
        if block.barrier is not None:
            self.place[lanes] = number + 1
            self._arrive(frame, block, block.barrier)
        elif (next_place := self._go(frame, block, goes, number, lanes)) is not None:
            self.place[lanes] = next_place
        return None

    def _next(self, runnable: Array) -> tuple[int, Lanes]:
        """The block to run next, and the lanes that run it."""
        places = [int(n) for n in np.unique(self.place[runnable])]
        for number in places:
            here = runnable & (self.place == number)
            if self.program.blocks[number].meets:
                warps = self.frame.order.slot // 32
                here &= ~np.isin(warps, warps[runnable & (self.place != number)])
            if here.any():
                return number, np.flatnonzero(here)
        return places[0], np.flatnonzero(runnable & (self.place == places[0]))

    def _scatter(self, frame: Frame, block: Block) -> None:
        for number in block.written:
            value = frame.registers[number]
            whole = np.broadcast_to(self.frame.registers[number].view(value.dtype), self.frame.size).copy()
            whole[frame.lanes] = value
            self.frame.registers[number] = whole

    def _execute(self, frame: Frame, block: Block) -> Array | None:
        """Run the steps; then the guard's value."""
        self.steps += block.cost * frame.size
        order = frame.order
        step = block.last
        try:
            for step, run in block.steps:
                order.line = step.line
                run(frame)
        except Fault as fault:
            assert step is not None
            cta, thread = divmod(int(frame.threads[fault.position]), order.block)
            raise PtxError(
                fault.reason, step.line, thread, cta, fault.address, fault.buffer, str(step)
            ) from None
        if block.last is not None:
            order.line = block.last.line
        return None if block.guard is None else block.guard(frame) != block.negated

    def _go(
        self, frame: Frame, block: Block, goes: Array | None, number: int, lanes: Lanes | slice = slice(None)
    ) -> int | None:
        """The next block of all the frame's lanes; where they part, None, with their places set."""
        if block.target is None:
            return number + 1
        target = int(block.target)
        if goes is None or goes.all():
            return target
        if not goes.any():
            return number + 1
        self.place[lanes] = np.where(goes, target, number + 1)
        return None

    def _check_number(self, barrier: int, block: Block, lane: int) -> None:
        if barrier >= BARRIERS:
            raise self._error(f"barrier {barrier}: expected a number below {BARRIERS}", block, lane)

    def _error(self, reason: str, block: Block, lane: int) -> PtxError:
        cta, thread = divmod(int(self.frame.threads[lane]), self.frame.order.block)
        line = block.last.line if block.last else None
        return PtxError(reason, line, thread, cta, text=str(block.last))

    def _arrive(self, frame: Frame, block: Block, barrier: Barrier) -> None:
        """The frame's lanes wait; whoever is complete goes on."""
        size = self.frame.order.block
        numbers = frame.spread(barrier.number(frame)).astype(np.int64)
        self._check_number(int(numbers.max()), block, int(frame.lanes[int(np.argmax(numbers))]))
        keys = frame.lanes // size * BARRIERS + numbers
        expected = np.full(frame.size, size) if barrier.count is None else frame.spread(barrier.count(frame))
        self.waits[frame.lanes] = keys
        self.wait_line[frame.lanes] = frame.order.line
        self._check_lines(keys, int(self.place[frame.lanes[0]]), block)
        arrived = np.bincount(self.waits[self.waits >= 0], minlength=int(keys.max()) + 1)[keys]
        if (arrived > expected).any():
            first = int(np.argmax(arrived > expected))
            reason = f"{arrived[first]} threads reach barrier {numbers[first]}, it expects {expected[first]}"
            raise self._error(reason, block, int(frame.lanes[first]))
        self._release(keys[arrived == expected], int(expected.max()) == size)

    def _check_lines(self, keys: Lanes, place: int, block: Block) -> None:
        """Raises PtxError when threads meet at a barrier from different instructions."""
        same = np.isin(self.waits, keys)
        waiting = np.flatnonzero(same & (self.place != place))
        if len(waiting):
            lane = int(waiting[0])
            other = f"thread {int(self.frame.threads[lane]) % self.frame.order.block} at line"
            reason = f"a barrier that other threads reach at line {self.frame.order.line}: diverged barriers"
            raise self._error(f"{reason}; {other} {self.wait_line[lane]} waits for the same", block, lane)

    def _release(self, keys: Lanes, whole: bool) -> None:
        complete: NDArray[np.int64] = np.unique(keys)
        if not len(complete):
            return
        lanes = np.flatnonzero(np.isin(self.waits, complete))
        if whole:
            self.frame.order.cta_barrier(lanes)
        else:
            self.frame.order.team_barrier(lanes, self.waits[lanes])
        self.waits[lanes] = -1
        self.barriers += len(complete)

    def _deadlock(self) -> PtxError:
        """The error for lanes that wait while no lane can run."""
        size = self.frame.order.block
        lane = int(np.flatnonzero(self.waits >= 0)[0])
        cta, key = lane // size, int(self.waits[lane])
        mine = slice(cta * size, (cta + 1) * size)
        absent = np.flatnonzero(self.waits[mine] != key)
        other = int(absent[0])
        ended = self.place[mine][other] == self.end
        where = "has ended" if ended else f"waits at line {int(self.wait_line[mine][other])}"
        reason = f"deadlock: {size - len(absent)} of {size} threads wait at barrier {key % BARRIERS}"
        thread = int(self.frame.threads[lane]) % size
        number = int(self.frame.threads[lane]) // size
        return PtxError(f"{reason}; thread {other} {where}", int(self.wait_line[lane]), thread, number)
