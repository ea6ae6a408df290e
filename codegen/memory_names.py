"""The functions of kernel text that touch memory, by name: what each does, to which dtype, how many elements.

MEMORY["shared_load_f32x4"]   ==   MemoryName("load", True, DType.F32, 4)
"""

from __future__ import annotations

from dataclasses import dataclass

from jstitch.ir.ops.numerics import kernel_name
from jstitch.ir.types import HALVES, DType

WIDTHS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class MemoryName:
    """verb: load, store, or read: load what nobody writes. shared: of the arena.

    copy: from global memory, while the thread goes on; matrices, turned: what a warp multiplies.
    """

    verb: str
    shared: bool
    dtype: DType
    width: int

    @property
    def name(self) -> str:
        """As the text has it."""
        tail = f"x{self.width}" if self.width > 1 else ""
        return f"{'shared_' * self.shared}{self.verb}_{kernel_name(self.dtype)}{tail}"


_ALL = (
    MemoryName(verb, shared, dtype, width)
    for verb, shared in (("read", False), *((v, s) for v in ("load", "store") for s in (False, True)))
    for dtype in DType
    if kernel_name(dtype) is not None
    for width in WIDTHS
)
_MATRICES = (
    *(MemoryName(verb, True, d, 8) for verb in ("copy", "matrices", "turned") for d in HALVES),
    *(MemoryName(verb, True, DType.F32, 4) for verb in ("copy", "matrices")),
)
MEMORY = {found.name: found for found in (*_ALL, *_MATRICES)}
