"""The lanes that do something together, and the order of their accesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.ptx.order import Order
from jstitch.codegen.cuda.ptx.scalar import Array

Lanes = NDArray[np.int64]


@dataclass
class Group:
    """lanes: numbers in the batch, ascending. threads: the same lanes, numbered over the whole launch."""

    lanes: Lanes
    threads: Lanes
    order: Order

    @property
    def size(self) -> int:
        """Number of lanes."""
        return len(self.lanes)

    def spread(self, value: Array) -> Array:
        """The value with one element per lane."""
        return value if len(value) == len(self.lanes) else np.broadcast_to(value, len(self.lanes))

    def part(self, positions: Any) -> Group:
        """The lanes at `positions`."""
        return Group(self.lanes[positions], self.threads[positions], self.order)
