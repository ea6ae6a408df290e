"""How fast memory moves, by how much of it is in use: a measured curve.

    BandwidthCurve(((2**15, 120e9), (2**25, 20e9))).at(2**20) == 49e9      halfway on both axes' logarithms

M(V) = V / B(V) of FS-2019 section 4.3.
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class BandwidthCurve:
    """points: (bytes in use, bytes per second), by bytes; between two, both logarithms are interpolated.

    Below the first point and above the last one the curve is level.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        """Raises ValueError without points, out of order, or with a speed that is not positive."""
        sizes = [size for size, _ in self.points]
        good = bool(sizes) and all(a < b for a, b in itertools.pairwise(sizes))
        if not good or any(size <= 0 or speed <= 0 for size, speed in self.points):
            raise ValueError(f"expected points by bytes, all positive, found {self.points}")

    @staticmethod
    def level(speed: float) -> BandwidthCurve:
        """The same speed at every size."""
        return BandwidthCurve(((1.0, speed),))

    def at(self, nbytes: float) -> float:
        """Bytes per second when `nbytes` are in use."""
        after = bisect.bisect_left(self.points, nbytes, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (low, slow), (high, fast) = self.points[after - 1], self.points[after]
        share = math.log(nbytes / low) / math.log(high / low)
        return slow * math.pow(fast / slow, share)

    def seconds(self, nbytes: float, in_use: float | None = None) -> float:
        """The time that `nbytes` take when `in_use` bytes (None: the same) are in use."""
        return nbytes / self.at(nbytes if in_use is None else in_use)
