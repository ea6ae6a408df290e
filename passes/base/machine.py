"""What the cost models know of a machine, and of how XLA runs on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jstitch.device_spec import DeviceSpec
from jstitch.passes.base.bandwidth_curve import BandwidthCurve
from jstitch.passes.base.hashed_once import hashed_once

F32_BYTES = 4
_KIB, _MIB = 1024.0, 1024.0**2

ALL_CORES = BandwidthCurve(((_MIB, 100e9), (4 * _MIB, 125e9), (16 * _MIB, 108e9), (32 * _MIB, 55e9)))
"""Of two Zen 3 cores with 32 MiB of shared cache, as `jstitch calibrate` measures them."""

ONE_CORE = BandwidthCurve(
    ((128 * _KIB, 76e9), (512 * _KIB, 73e9), (4 * _MIB, 62e9), (16 * _MIB, 48e9), (32 * _MIB, 30e9))
)
"""Of one of these cores."""


@hashed_once
@dataclass(frozen=True)
class Machine:
    """Seconds, bytes, cycles of one light op on one element of a vector.

    What `jstitch calibrate` measures: launch: one kernel of XLA's, on GPUs one phase of ours. call_seconds:
    of a call of ours; operand: of each buffer that it is given. lane_cycle: seconds of a cycle when all lanes
    of all cores work; cores: what parallel programs gain at least. bandwidths: of memory, all cores at once;
    lone_bandwidths: of one core. fork: seconds of a phase on all cores, besides its work. vector_bytes: of a
    core's registers. near_bytes: of a core's own cache.

    Of our code, fitted to measured kernels: one core's cycles to start an innermost loop (loop_cycles), to
    end an accumulator of it (sum_cycles); of an access whose neighbours in the loop are none in memory
    (scattered_cycles), of a division of indices, of a light op outside vectors (scalar_cycles), of a rounding
    to a narrow float. overlap: the share of the shorter of memory and arithmetic that does not hide behind
    the other.

    Of what XLA runs at each turn of a loop: in_order: seconds of starting one kernel after another; queue: of
    starting those that are ready, until none is left, besides `queued` of each.

    Of XLA's code: serial_work: cycles below which nobody's kernel runs on several cores; xla_serial_work:
    below which XLA runs a loop on one. xla_cycles, xla_narrow: of its loops against ours, and of narrow
    floats. seam_cycles, window_cycles: of an element of a concatenate, of one element of a window.
    seam_circular: times as long as in vectors, sines of which each element wants one of several.
    reads_fuse: it fuses what a reduction reads into it. reads_vectors: it has vectors for circular functions
    there, and only there. library_threads: multiplications of a product below which its library starts no
    threads; library_narrow: lane cycles of one of narrow floats.

    Of GPUs: sector_bytes: that memory moves for one element whose neighbours no thread next to it wants; 0
    where a cache keeps them. device: the GPU, where the machine is one.
    """

    launch: float = 4e-7
    call_seconds: float = 1.9e-7
    lane_cycle: float = 2e-11
    bandwidths: BandwidthCurve = ALL_CORES
    lone_bandwidths: BandwidthCurve = ONE_CORE
    serial_work: float = 0.3 * (1 << 18)
    xla_serial_work: float = 0.3 * (1 << 20)
    cores: float = 2.0
    xla_cycles: float = 1.3
    xla_narrow: float = 6.0
    seam_cycles: float = 10.0
    seam_circular: float = 5.0
    window_cycles: float = 8.0
    reads_fuse: bool = False
    reads_vectors: bool = False
    library_threads: float = 16384.0
    library_narrow: float = 1.2
    sector_bytes: int = 0
    vector_bytes: int = 32
    near_bytes: int = 1 << 19
    fork: float = 2e-7
    operand: float = 1.3e-8
    loop_cycles: float = 5.0
    sum_cycles: float = 14.0
    scattered_cycles: float = 1.9
    division_cycles: float = 4.0
    scalar_cycles: float = 0.3
    narrow_cycles: float = 5.0
    overlap: float = 0.1
    in_order: float = 1e-8
    queue: float = 7.5e-7
    queued: float = 4e-8
    device: DeviceSpec | None = None

    def bandwidth(self, nbytes: float) -> float:
        """Bytes per second of a working set of this size."""
        return self.bandwidths.at(nbytes)

    @property
    def call(self) -> float:
        """A call of ours, in launches."""
        return self.call_seconds / self.launch

    @property
    def phase(self) -> float:
        """A phase of our kernels, in launches: on GPUs it is one, on CPUs no more than a fork."""
        return 1.0 if self.device is not None else min(1.0, self.fork / self.launch)

    @property
    def units(self) -> int:
        """Cores, or multiprocessors."""
        return math.ceil(self.cores) if self.device is None else self.device.sms

    @property
    def lanes(self) -> int:
        """Numbers of 4 bytes that one instruction works on."""
        return self.vector_bytes // F32_BYTES

    @property
    def cycle(self) -> float:
        """Seconds of a cycle of one core."""
        return self.lane_cycle * self.lanes * self.cores


def busy_share(pieces: int, units: int) -> float:
    """The share of the units' time that has a piece of the work."""
    return pieces / (-(-pieces // units) * units)
