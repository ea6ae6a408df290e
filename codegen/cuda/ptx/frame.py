"""The lanes that run an instruction together, and how an instruction reads and writes their registers.

A register is an array of one element per lane, or of one element for all lanes. It is never written in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.ptx.scalar import Array

if TYPE_CHECKING:
    from jstitch.codegen.cuda.ptx.memory import Memory
    from jstitch.codegen.cuda.ptx.order import Order

Lanes = NDArray[np.int64]


@dataclass
class Frame:
    """lanes: numbers in the batch, ascending. threads: the same lanes, numbered over the whole launch."""

    registers: list[Array]
    lanes: Lanes
    threads: Lanes
    grid: int
    order: Order
    memory: Memory

    @property
    def size(self) -> int:
        """Number of lanes."""
        return len(self.lanes)

    def spread(self, value: Array) -> Array:
        """The value with one element per lane."""
        return value if len(value) == len(self.lanes) else np.broadcast_to(value, len(self.lanes))

    def subset(self, positions: Lanes) -> Frame:
        """The same instruction's lanes at `positions` only, without registers."""
        return Frame([], self.lanes[positions], self.threads[positions], self.grid, self.order, self.memory)


Read = Callable[[Frame], Array]
Write = Callable[[Frame, Array], None]
Run = Callable[[Frame], None]

_ZERO = np.zeros(1, np.uint32)


def _number(value: int) -> Array:
    return np.array([value], np.uint32)


def _lane(frame: Frame) -> Any:
    return frame.threads % frame.order.block % 32


SPECIAL: dict[str, Callable[[Frame], Array]] = {
    "%tid.x": lambda f: (f.threads % f.order.block).astype(np.uint32),
    "%ctaid.x": lambda f: (f.threads // f.order.block).astype(np.uint32),
    "%ntid.x": lambda f: _number(f.order.block),
    "%nctaid.x": lambda f: _number(f.grid),
    "%laneid": lambda f: _lane(f).astype(np.uint32),
    "%warpid": lambda f: (f.threads % f.order.block // 32).astype(np.uint32),
    "%lanemask_eq": lambda f: (1 << _lane(f)).astype(np.uint32),
    "%lanemask_lt": lambda f: ((1 << _lane(f)) - 1).astype(np.uint32),
    "%lanemask_le": lambda f: ((2 << _lane(f)) - 1).astype(np.uint32),
    "%lanemask_gt": lambda f: (-(2 << _lane(f))).astype(np.uint32),
    "%lanemask_ge": lambda f: (-(1 << _lane(f))).astype(np.uint32),
    **{f"%{name}.{axis}": lambda f: _ZERO for name in ("tid", "ctaid") for axis in "yz"},
    **{f"%{name}.{axis}": lambda f: _number(1) for name in ("ntid", "nctaid") for axis in "yz"},
}
