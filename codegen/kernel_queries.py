"""What is asked of parts of a Kernel: the buffers of an instruction, the stages that repeat another's."""

from __future__ import annotations

import numpy as np

from jstitch.codegen.kernel_ir import Buffer, InPairs, Instr, Lane, Let, Space, Streamed, StripLane
from jstitch.ir.types import DType, TensorType


def held(name: str, tensor: TensorType, space: Space, number: int) -> Buffer:
    """The buffer of an argument or a result."""
    kind = InPairs if tensor.dtype.is_complex else Buffer
    return kind(name, tensor.in_memory, space, number)


def numbers_each(buffer: Buffer) -> int:
    """Numbers of an element, side by side."""
    return 2 if isinstance(buffer, InPairs) else 1


def array_type(buffer: Buffer) -> TensorType:
    """What those who call the kernel have in the buffer."""
    if not isinstance(buffer, InPairs):
        return buffer.type
    dtype = DType.of(np.result_type(buffer.type.dtype.numpy, np.complex64))
    return TensorType(buffer.type.shape[:-1], dtype)


def numbers_in(array: np.ndarray) -> np.ndarray:
    """The numbers of an array in memory, in one dimension; of complex ones both parts."""
    array = np.ascontiguousarray(array).reshape(-1)
    return array.view(DType.of(array.dtype).part.numpy)


def array_of(buffer: Buffer, numbers: np.ndarray) -> np.ndarray:
    """The array that has these numbers in memory."""
    kind = array_type(buffer)
    return numbers.view(kind.dtype.numpy).reshape(kind.shape)


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
