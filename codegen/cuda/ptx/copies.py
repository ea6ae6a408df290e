"""cp.async: copies from global to shared memory, or to the L2 cache, that a thread does not wait for.

Until the thread has waited for a copy, the bytes at its destination are all ones, which is NaN in any float;
the data is written when it waits, by a second checked write. Whoever reads too early, or without a barrier
after the wait, meets a Fault or NaN.
"""

from __future__ import annotations

import re

import numpy as np

from jstitch.codegen.cuda.ptx.flatten import Instruction
from jstitch.codegen.cuda.ptx.frame import Frame, Run
from jstitch.codegen.cuda.ptx.memory import PIECE, Access, Copies, Copy
from jstitch.codegen.cuda.ptx.operand import Operands

_COPY = re.compile(r"cp\.async\.(?:cg|ca)\.shared(?:::cta)?\.global(?:\.L2::\w+)?")
_WORD = np.dtype(np.uint32)


def copy(step: Instruction, operands: Operands) -> Run | None:
    """What a cp.async instruction does, None for another. Raises ValueError."""
    if _COPY.fullmatch(step.opcode):
        return _begin(step, operands)
    if step.opcode == "cp.async.bulk.prefetch.L2.global":
        return _prefetch(step, operands)
    match step.opcode:
        case "cp.async.commit_group":
            return _commit
        case "cp.async.wait_all":
            return lambda frame: _wait(frame, 0)
        case "cp.async.wait_group":
            pending = int(step.operands[0])
            return lambda frame: _wait(frame, pending)
    return None


def _of(frame: Frame) -> Copies:
    if frame.memory.copies is None:
        frame.memory.copies = Copies(np.zeros(frame.order.slots, np.int64))
    return frame.memory.copies


def _begin(step: Instruction, operands: Operands) -> Run:
    to, source = (operands.address(place) for place in step.operands[:2])
    size = int(step.operands[2])
    if size not in (4, 8, 16) or len(step.operands) != 3:
        raise ValueError("expected a copy of 4, 8 or 16 bytes")
    read, write = (
        Access(_WORD, size // 4, space, verb) for space, verb in (("global", "reads"), ("shared", "writes"))
    )

    def run(frame: Frame) -> None:
        copies, at = _of(frame), frame.spread(to(frame))
        words = [frame.spread(word) for word in frame.memory.load(frame, source(frame), read)]
        unknown = np.full(frame.size, np.uint32(2**32 - 1))
        frame.memory.store(frame, at, [unknown] * len(words), write)
        copies.under_way.append(Copy(frame.lanes, copies.closed[frame.lanes], at, words, write))

    return run


def _prefetch(step: Instruction, operands: Operands) -> Run:
    place, nbytes = operands.address(step.operands[0]), int(step.operands[1])
    if nbytes <= 0 or nbytes % PIECE.size:
        raise ValueError("expected a multiple of 16 bytes")
    return lambda frame: frame.memory.prefetch(frame, place(frame), nbytes)


def _commit(frame: Frame) -> None:
    _of(frame).closed[frame.lanes] += 1


def _wait(frame: Frame, pending: int) -> None:
    """The frame's lanes wait until no more than `pending` of their groups are under way."""
    copies, rest = _of(frame), list[Copy]()
    for c in copies.under_way:
        done = np.isin(c.lanes, frame.lanes) & (c.groups < copies.closed[c.lanes] - pending)
        if done.any():
            here = frame.part(np.flatnonzero(np.isin(frame.lanes, c.lanes[done])))
            frame.memory.store(here, c.to[done], [word[done] for word in c.words], c.access)
        if not done.all():
            left = ~done
            words = [word[left] for word in c.words]
            rest.append(Copy(c.lanes[left], c.groups[left], c.to[left], words, c.access))
    copies.under_way[:] = rest
