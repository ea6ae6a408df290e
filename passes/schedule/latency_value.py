"""The value that the latency-evaluator gives: times that add."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Latency:
    """Seconds. compute: of arithmetic. memory: of traffic. hidden: of both at once, counted in both.

    launches: of calls, barriers and launches. nbytes: of memory beyond the nearest caches.
    """

    compute: float = 0.0
    memory: float = 0.0
    hidden: float = 0.0
    launches: float = 0.0
    nbytes: float = 0.0

    def __add__(self, other: Latency) -> Latency:
        return Latency(
            self.compute + other.compute,
            self.memory + other.memory,
            self.hidden + other.hidden,
            self.launches + other.launches,
            self.nbytes + other.nbytes,
        )

    @property
    def seconds(self) -> float:
        return self.compute + self.memory - self.hidden + self.launches

    @staticmethod
    def of(compute: float, memory: float, launches: float, nbytes: float, overlap: float) -> Latency:
        """One phase; of the shorter of compute and memory, the share `overlap` is seen."""
        return Latency(compute, memory, (1 - overlap) * min(compute, memory), launches, nbytes)
