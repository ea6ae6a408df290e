"""Instructions in which the lanes of a warp meet: shfl, vote, redux, activemask, bar.warp.sync.

All lanes that the member mask names must run the instruction together; who comes first waits.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from jstitch.codegen.cuda.ptx.error import Fault
from jstitch.codegen.cuda.ptx.flatten import Instruction
from jstitch.codegen.cuda.ptx.frame import Frame, Run
from jstitch.codegen.cuda.ptx.group import Lanes
from jstitch.codegen.cuda.ptx.operand import Operands
from jstitch.codegen.cuda.ptx.scalar import DTYPES, Array

_WARP = re.compile(
    r"(?P<shfl>shfl\.sync\.(?P<way>bfly|idx|up|down)\.b32)|(?P<vote>vote\.sync\.(?P<kind>any|all|uni|ballot)"
    r"\.(?:pred|b32))|(?P<redux>redux\.sync\.(?P<op>add|min|max|and|or|xor)\.(?P<t>[busf]32))|(?P<bar>bar\.warp\.sync)"
    r"|(?P<active>activemask\.b32)"
)
_REDUCE: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def is_meeting(step: Instruction) -> bool:
    """Whether the instruction waits for the lanes that its member mask names."""
    found = _WARP.fullmatch(step.opcode)
    return found is not None and not found["active"]


def meet(step: Instruction, operands: Operands) -> Run | None:
    """What a warp instruction does, None for another instruction. Raises ValueError."""
    found = _WARP.fullmatch(step.opcode)
    if found is None:
        return None
    if found["shfl"]:
        return _shuffle(step, operands, found["way"])
    if found["vote"]:
        return _vote(step, operands, found["kind"])
    if found["redux"]:
        return _redux(step, operands, found["op"], found["t"])
    if found["bar"]:
        mask = operands.source(step.operands[0], "u32")
        return lambda frame: _barrier(frame, mask(frame))
    write = operands.target(step.operands[0], "u32")
    return lambda frame: write(frame, _ballot(frame, np.ones(1, bool)))


def _slots(frame: Frame) -> Lanes:
    return frame.order.slot[frame.lanes]


def _ballot(frame: Frame, votes: Array) -> Array:
    """For each lane, the bits of its warp's lanes that vote true."""
    present = np.zeros(frame.order.slots, np.uint32)
    present[_slots(frame)] = frame.spread(votes)
    masks = (present.reshape(-1, 32) << np.arange(32, dtype=np.uint32)).sum(1, dtype=np.uint32)
    return np.asarray(masks[_slots(frame) // 32])


def _check_members(frame: Frame, mask: Array) -> None:
    """Raises Fault when a lane runs alone: it, or one that the mask names, is not here."""
    if frame.size == frame.order.slots and (mask == np.uint32(2**32 - 1)).all():
        return
    mask, here = frame.spread(mask), _ballot(frame, np.ones(1, bool))
    lane = (_slots(frame) % 32).astype(np.uint32)
    if (outside := np.flatnonzero((mask >> lane & np.uint32(1)) == 0)).size:
        reason = f"its member mask {int(mask[outside[0]]):#010x} does not name the lane itself"
        raise Fault(reason, int(outside[0]))
    if (missing := np.flatnonzero(mask & ~here)).size:
        first = int(missing[0])
        names = f"names lanes {int(mask[first]):#010x}, but only {int(here[first]):#010x} meet here"
        raise Fault(f"its member mask {names}", first)


def _barrier(frame: Frame, mask: Array) -> None:
    _check_members(frame, mask)
    whole = frame.spread(mask) == np.uint32(2**32 - 1)
    frame.order.warp_barrier(frame.lanes[whole])


def _shuffle(step: Instruction, operands: Operands, way: str) -> Run:
    target, *texts = step.operands
    value, *rest = (operands.source(text, "u32") for text in texts)
    register, _, flag = target.partition("|")
    write = operands.target(register.strip(), "b32")
    write_flag = operands.target(flag.strip() or "_", "pred")

    def run(frame: Frame) -> None:
        by, clamp, mask = (read(frame) for read in rest)
        _check_members(frame, mask)
        source, inside = _source_lane(way, _slots(frame) % 32, by.astype(np.int64), clamp.astype(np.int64))
        write(frame, _gather(frame, frame.spread(value(frame)), source))
        write_flag(frame, inside)

    return run


def _source_lane(way: str, lane: Lanes, by: Lanes, clamp: Lanes) -> tuple[Lanes, Array]:
    """The lane that each lane reads, and whether that is in its segment."""
    by, clamp, segment = by & 31, clamp & 31, clamp >> 8 & 31
    first, last = lane & segment, (lane & segment) | (clamp & ~segment)
    if way == "up":
        source = lane - by
        inside = source >= last
    else:
        table = {"bfly": lane ^ by, "down": lane + by, "idx": first | (by & ~segment)}
        source = table[way]
        inside = source <= last
    return np.where(inside, source, lane), inside


def _gather(frame: Frame, value: Array, source: Lanes) -> Array:
    slots = _slots(frame)
    position = np.full(frame.order.slots, -1)
    position[slots] = np.arange(frame.size)
    found = position[slots - slots % 32 + source]
    if (absent := np.flatnonzero(found < 0)).size:
        raise Fault(f"reads lane {int(source[absent[0]])}, which is not here", int(absent[0]))
    return np.asarray(value[found])


def _vote(step: Instruction, operands: Operands, kind: str) -> Run:
    vote, mask = operands.source(step.operands[1], "pred"), operands.source(step.operands[2], "u32")
    write = operands.target(step.operands[0], "u32" if kind == "ballot" else "pred")

    def run(frame: Frame) -> None:
        members = mask(frame)
        _check_members(frame, members)
        votes = _ballot(frame, vote(frame)) & members
        table = {"any": votes != 0, "all": votes == members, "uni": (votes == 0) | (votes == members)}
        write(frame, votes if kind == "ballot" else table[kind])

    return run


def _redux(step: Instruction, operands: Operands, name: str, type_name: str) -> Run:
    read, mask = operands.source(step.operands[1], type_name), operands.source(step.operands[2], "u32")
    write, reduce = operands.target(step.operands[0], type_name), _REDUCE[name]

    def run(frame: Frame) -> None:
        members, slots = frame.spread(mask(frame)), _slots(frame)
        _check_members(frame, members)
        if (members != np.uint32(2**32 - 1)).any():
            raise Fault("redux of a part of a warp is not supported", 0)
        warps = np.zeros(frame.order.slots, DTYPES[type_name])
        warps[slots] = frame.spread(read(frame))
        write(frame, reduce.reduce(warps.reshape(-1, 32), axis=1, dtype=warps.dtype)[slots // 32])

    return run
