"""What a product packs of its right operand at a time: known where kernels are planned, without Numba."""

from __future__ import annotations

DEPTH = 256  # rows of a panel
VECTOR = 16  # floats of the widest machine's registers
WIDEST = 2 * VECTOR  # columns of a panel, on any machine
PANEL_BYTES = DEPTH * WIDEST * 4
