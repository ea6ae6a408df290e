"""Room for more tiles behind a kernel's own.

room = ArenaRoom(kernel);  tile = room.tile("d", 48, DType.F32);  kernel = room.given(kernel)
"""

from __future__ import annotations

from dataclasses import replace

from jstitch.codegen.kernel_ir import CACHE_LINE, Buffer, Kernel, Space
from jstitch.ir.types import DType, TensorType


class ArenaRoom:
    """Tiles that begin at lines of a cache."""

    def __init__(self, kernel: Kernel) -> None:
        self.end = -(-kernel.arena_bytes // CACHE_LINE) * CACHE_LINE
        self.tiles: list[Buffer] = []

    def tile(self, kind: str, size: int, dtype: DType) -> Buffer:
        """One more of `size` elements; `kind` and its number are its name."""
        made = Buffer(f"{kind}{len(self.tiles)}", TensorType((size,), dtype), Space.ARENA, 0, self.end)
        self.tiles.append(made)
        self.end += -(-made.type.nbytes // CACHE_LINE) * CACHE_LINE
        return made

    def given(self, kernel: Kernel) -> Kernel:
        """The kernel with an arena that has the tiles, too."""
        return replace(kernel, arena=(*kernel.arena, *self.tiles), arena_bytes=self.end)
