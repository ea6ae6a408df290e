"""What tilings need, learned from those that were lowered: rows, times what grows with a block's columns.

64 rows by 128 columns    458,752 bytes                 measured
32 rows by  96 columns    221,184 bytes                 measured
32 rows by  64 columns    212,992 bytes at least        on their line, as bytes for a row: need not be lowered
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jstitch.passes.lower.tile_rows import StepTile


@dataclass
class Room:
    """budget: bytes that there are for tiles. needed: columns of a block -> bytes for each row."""

    budget: int
    needed: dict[int, float] = field(default_factory=dict)

    def learn(self, tile: StepTile, nbytes: int) -> None:
        """What a tiling needs."""
        self.needed[tile.block] = max(nbytes / tile.rows, self.needed.get(tile.block, 0.0))

    def is_short(self, tile: StepTile) -> bool:
        """Whether a tiling surely finds no room."""
        return tile.rows * self._row_bytes(tile.block) > self.budget

    def _row_bytes(self, block: int) -> float:
        """At least: tiles that share bytes need the larger of two, so that what is needed bends upwards."""
        below = [n for n in self.needed if n <= block]
        if below:
            return self.needed[max(below)]
        above = sorted(self.needed)[:2]
        if not above:
            return 0.0
        first = self.needed[above[0]]
        if len(above) == 1:
            return first * block / above[0]
        slope = (self.needed[above[1]] - first) / (above[1] - above[0])
        return first - slope * (above[0] - block)
