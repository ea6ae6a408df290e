"""What is asked of parts of a Kernel: the buffers of an instruction, the stages that repeat another's."""

from __future__ import annotations

from jstitch.codegen.kernel_ir import Buffer, Instr, Lane, Let, Streamed, StripLane


def touched_by(i: Instr) -> tuple[Buffer, ...]:
    """The buffers that an instruction reads or writes."""
    match i:
        case Let():
            return ()
        case Streamed(tile=tile):
            return i.buffer, tile
    return (i.buffer,)


def is_repeated(lane: Lane, stage: int, program: int) -> bool:
    """Whether the program does in that stage what the first band does, too, which stores its results."""
    return isinstance(lane, StripLane) and stage < lane.before and program >= lane.strips
