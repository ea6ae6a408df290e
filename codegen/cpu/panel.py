"""What a product packs of its right operand at a time, and what it takes: known without Numba."""

from __future__ import annotations

from jstitch.ir.types import DType

DEPTH = 256  # rows of a panel
VECTOR = 16  # floats of the widest machine's registers
WIDEST = 2 * VECTOR  # columns of a panel, on any machine
PANEL_BYTES = DEPTH * WIDEST * 4
UNPACKED_ROWS = 48  # that read a right operand's neighbouring columns where they are

PRODUCT_CYCLES = 0.45  # of a multiplication and an addition in a vector, two of which start each cycle
PACK_CYCLES, FAR_PACK_CYCLES = 7.0, 25.0  # of an element of a right operand
FAR_BYTES = 1 << 21  # of a right operand that comes from beyond a core's own cache each time


def is_packed(rows: int, column: int, of: DType) -> bool:
    """Whether a right operand is. rows: that it is multiplied by; column: elements from one to the next."""
    return rows > UNPACKED_ROWS or column != 1 or of is not DType.F32


def product_cycles(rows: int, columns: int, depth: int) -> float:
    """Of one lane, for multiplying: columns are vectors, whole ones."""
    return PRODUCT_CYCLES * rows * depth * -(-columns // VECTOR) * VECTOR


def pack_cycles(columns: int, depth: int) -> float:
    """Of one lane, for packing a right operand once."""
    size = columns * depth
    return size * (FAR_PACK_CYCLES if 4 * size > FAR_BYTES else PACK_CYCLES)
