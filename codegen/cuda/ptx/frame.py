"""The lanes that run a block together, and how an instruction reads and writes their registers.

A register is an array of one element per lane, or of one element for all lanes. It is never written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jstitch.codegen.cuda.ptx.group import Group, Lanes
from jstitch.codegen.cuda.ptx.memory import Memory
from jstitch.codegen.cuda.ptx.scalar import Array


@dataclass
class Frame(Group):
    """A group with its registers, the launch's memory, and its number of CTAs."""

    registers: list[Array]
    memory: Memory
    grid: int

    def subset(self, positions: Lanes, needed: Sequence[int]) -> Frame:
        """The lanes at `positions`, with the registers that they need."""
        registers = list(self.registers)
        for number in needed:
            value = registers[number]
            registers[number] = value if len(value) == 1 else value[positions]
        return Frame(
            self.lanes[positions], self.threads[positions], self.order, registers, self.memory, self.grid
        )


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
