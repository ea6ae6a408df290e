"""ldmatrix and mma.sync: a warp reads small matrices from shared memory, and multiplies them.

mma.sync.aligned.m16n8k16 {d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}     d = a * b + c

What is multiplied as tf32 (m16n8k8) must be rounded before: what becomes of other bits is not documented.
Sums are made in f32, in the order of NumPy's product; a GPU's own order is not documented.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np

from jstitch.codegen.cuda.ptx.error import Fault
from jstitch.codegen.cuda.ptx.flatten import Instruction
from jstitch.codegen.cuda.ptx.frame import Frame, Read, Run
from jstitch.codegen.cuda.ptx.memory import Access
from jstitch.codegen.cuda.ptx.operand import Operands, elements
from jstitch.codegen.cuda.ptx.scalar import Array

WARP = 32
_LOAD = re.compile(r"ldmatrix\.sync\.aligned\.m8n8\.x(?P<n>[124])(?P<turned>\.trans)?\.shared(?:::cta)?\.b16")
_PRODUCT = re.compile(
    r"mma\.sync\.aligned\.m16n8k(?:16\.row\.col\.f32\.(?P<t>bf16|f16)\.(?P=t)|8\.row\.col\.f32\.tf32\.tf32)\.f32"
)
_FLOATS = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16), "tf32": np.dtype(np.float32)}
_IGNORED = np.uint32((1 << 13) - 1)  # bits of an f32 that tf32 does not have
_ROW = Access(np.dtype(np.uint32), 4, "shared", "reads")


def is_of_warp(opcode: str) -> bool:
    """Whether all lanes of a warp run the instruction together."""
    return bool(_LOAD.fullmatch(opcode) or _PRODUCT.fullmatch(opcode))


def multiply(step: Instruction, operands: Operands) -> Run | None:
    """What an ldmatrix or mma does, None for another instruction. Raises ValueError."""
    if found := _LOAD.fullmatch(step.opcode):
        return _load(step, operands, int(found["n"]), found["turned"] is not None)
    if found := _PRODUCT.fullmatch(step.opcode):
        return _product(step, operands, found["t"] or "tf32")
    return None


def _warps(frame: Frame) -> int:
    """How many there are. Raises Fault where a lane of one is missing."""
    slots = frame.order.slot[frame.lanes]
    whole = frame.size % WARP == 0
    if not whole or (slots.reshape(-1, WARP) != slots[::WARP, None] + np.arange(WARP)).any():
        raise Fault("only a part of a warp runs it", 0)
    return frame.size // WARP


def _load(step: Instruction, operands: Operands, count: int, turned: bool) -> Run:
    address = operands.address(step.operands[1])
    writes = [operands.target(register, "b32") for register in elements(step.operands[0])]
    if len(writes) != count:
        raise ValueError(f"expected {count} registers")

    def run(frame: Frame) -> None:
        warps, at = _warps(frame), frame.spread(address(frame))
        leads = np.flatnonzero(np.arange(frame.size) % WARP < 8 * count)
        rows = np.stack(frame.memory.load(frame.part(leads), at[leads], _ROW), 1)
        matrices = np.ascontiguousarray(rows).view(np.uint16).reshape(warps, count, 8, 8)
        if turned:
            matrices = matrices.swapaxes(2, 3)
        words = np.ascontiguousarray(matrices).view(np.uint32).reshape(warps, count, WARP)
        for n, write in enumerate(writes):
            write(frame, np.ascontiguousarray(words[:, n]).reshape(-1))

    return run


def _product(step: Instruction, operands: Operands, name: str) -> Run:
    to, left, right, plus = map(elements, step.operands)
    a, b = ([operands.source(register, "b32") for register in part] for part in (left, right))
    c = [operands.source(register, "f32") for register in plus]
    writes = [operands.target(register, "f32") for register in to]  # after what is read: they may be the same
    if [len(part) for part in (writes, a, b, c)] != [4, 4, 2, 4]:
        raise ValueError("expected 4, 4, 2 and 4 registers")

    def quarter(frame: Frame, read: Read) -> Array:
        """8 rows of 16 bytes for each warp."""
        words = np.ascontiguousarray(frame.spread(read(frame)))
        floats = words.view(_FLOATS[name])
        if name == "tf32" and (np.isfinite(floats) & ((words.view(np.uint32) & _IGNORED) != 0)).any():
            raise Fault("an operand is not rounded to tf32", 0)
        return np.asarray(floats.reshape(len(words) // WARP, 8, -1).astype(np.float32))

    def run(frame: Frame) -> None:
        _warps(frame)
        a0, a1, a2, a3 = (quarter(frame, read) for read in a)
        rows = np.concatenate([np.concatenate([a0, a2], 2), np.concatenate([a1, a3], 2)], 1)
        columns = np.concatenate([quarter(frame, read) for read in b], 2)
        found = rows @ columns.swapaxes(1, 2)
        for n, (write, add) in enumerate(zip(writes, c, strict=True)):
            half = found[:, 8 * (n // 2) : 8 * (n // 2) + 8, n % 2 :: 2]
            write(frame, half.reshape(-1) + frame.spread(add(frame)))

    return run
