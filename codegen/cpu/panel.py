"""What a product packs of its right operand at a time: known where kernels are planned, without Numba."""

from __future__ import annotations

DEPTH = 256  # rows of a panel
WIDEST = 32  # columns of a panel, on any machine
PANEL_BYTES = DEPTH * WIDEST * 4
