"""What the cost model knows of a machine, and of how XLA runs on it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Seconds, bytes, cycles of one light op on one element of a vector.

    launch: one kernel of XLA's, or one phase of ours. call: phases' worth that a call of ours costs besides.
    lane_cycle: seconds of a cycle when all lanes of all cores work. bandwidths: (working set below, bytes
    per second). serial_work: cycles below which nobody's kernel runs on several cores; cores: what parallel
    programs gain at least. xla_serial_work: cycles below which XLA runs a loop on one core. xla_cycles,
    xla_narrow: of XLA's loops against ours, and of narrow floats. seam_cycles, window_cycles: of an element
    of a concatenate, of one element of a window, in XLA's loops. reads_fuse: XLA fuses what a reduction
    reads into it. sector_bytes: that memory moves for one element whose neighbours no thread next to it
    wants; 0 where a cache keeps them.
    """

    launch: float = 4e-7
    call: float = 5.0
    lane_cycle: float = 2e-11
    bandwidths: tuple[tuple[float, float], ...] = ((1 << 20, 120e9), (1 << 24, 70e9), (math.inf, 25e9))
    serial_work: float = 1 << 18
    xla_serial_work: float = 1 << 20
    cores: float = 2.0
    xla_cycles: float = 1.3
    xla_narrow: float = 6.0
    seam_cycles: float = 10.0
    window_cycles: float = 8.0
    reads_fuse: bool = False
    sector_bytes: int = 0

    def bandwidth(self, nbytes: float) -> float:
        """Bytes per second of a working set of this size."""
        return next(speed for below, speed in self.bandwidths if nbytes < below)
