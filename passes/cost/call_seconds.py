"""How long a call of a kernel takes on the CPU where all else is XLA's: the call, its buffers, its work."""

from __future__ import annotations

from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost.after_slices import after_slices
from jstitch.passes.cost.recurrence_cost import cost_of


def call_seconds(pattern: FusionPattern, profile: Profile) -> float:
    """Of a call of the pattern's kernel."""
    machine, cost = profile.machine, cost_of(after_slices(pattern), profile)
    buffers = len(pattern.inputs) + len(pattern.outputs)
    cores = 1.0 if cost.cycles < machine.serial_work else machine.cores
    work = work_seconds(machine, cost.cycles, cost.nbytes, cores)
    return machine.call_seconds + buffers * machine.operand + work


def work_seconds(machine: Machine, cycles: float, nbytes: float, cores: float) -> float:
    """Of one kernel, anybody's, on so many cores."""
    speeds = machine.lone_bandwidths if cores == 1.0 else machine.bandwidths
    arithmetic = cycles * machine.lane_cycle * machine.cores / cores
    memory = speeds.seconds(nbytes)
    return max(arithmetic, memory) + machine.overlap * min(arithmetic, memory)
