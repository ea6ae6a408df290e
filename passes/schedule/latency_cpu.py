"""A kernel's time on a CPU: waves of programs over cores, cycles by vectors, bytes by the cache they are in.

phase 0: 1024 rows in 32 programs, work 5e6      16 waves on 2 cores, one fork
phase 1: 1 row in 1 program                      one core, no fork

Every buffer's first touch in a lane moves its bytes at the speed of memory that holds the whole kernel. Later
ones cost their instructions, unless the rows of one step are more than a core's own cache holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jstitch.codegen.intrinsics import cpu_cycles
from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Phase, Space
from jstitch.passes.base.machine import F32_BYTES, Machine
from jstitch.passes.schedule.latency_value import Latency
from jstitch.passes.schedule.nest_work import Access, NestWork, count
from jstitch.runtime.process_block import AWAKE_NS

LINE = 64  # bytes that memory moves at once
UNROLLED = 8  # vectors of a loop so short that its sums end in step with the next loop's
WAYS = 8  # lines of a set of the near cache


def cpu_phases(kernel: Kernel, machine: Machine) -> Iterator[Latency]:
    """The latency of each phase, without the call."""
    in_use = sum(b.type.nbytes for b in _touched(kernel.phases))
    for phase in kernel.phases:
        yield _phase(phase, machine, in_use)


def _touched(phases: Iterable[Phase]) -> set[Buffer]:
    nests = (nest for p in phases for lane in p.lanes for stage in lane.stages for nest in stage.nests)
    found = {a.buffer for nest in nests for a in count(nest).accesses}
    return {b for b in found if b.space is not Space.ARENA}


def _phase(phase: Phase, machine: Machine, in_use: float) -> Latency:
    programs = sum(lane.programs for lane in phase.lanes)
    costs = [_LaneCost(lane, machine, in_use) for lane in phase.lanes]
    alone = _on_cores(1, programs, costs, machine)
    cores = int(min(machine.cores, programs))
    if cores == 1 or alone.seconds < AWAKE_NS * 1e-9:
        return alone
    return _on_cores(cores, programs, costs, machine)


def _on_cores(cores: int, programs: int, costs: Sequence[_LaneCost], machine: Machine) -> Latency:
    """Of a phase's lanes, whose programs so many cores share."""
    cycles = sum(cost.cycles for cost in costs)
    near = sum(cost.near for cost in costs)
    share = math.ceil(programs / cores) / programs  # of the work, on the core that ends last
    far = machine.bandwidths if cores > 1 else machine.lone_bandwidths
    memory = near * share + sum(far.seconds(nbytes, level) for cost in costs for nbytes, level in cost.far)
    fork = machine.fork if cores > 1 else 0.0
    nbytes = sum(moved for cost in costs for moved, _ in cost.far)
    return Latency.of(cycles * machine.cycle * share, memory, fork, nbytes, machine.overlap)


@dataclass(frozen=True)
class _Run:
    """A nest and how often the lane runs it, in the mean."""

    work: NestWork
    times: float


class _LaneCost:
    """cycles: of one core, for all programs. near: seconds of one core.

    far: (bytes, bytes in use) that come from memory.
    """

    def __init__(self, lane: Lane, machine: Machine, in_use: float) -> None:
        self.lane, self.machine = lane, machine
        self.steps = 1 if lane.flat else lane.rows // lane.step
        rows = lane.rows if lane.flat else None
        self.runs = [
            _Run(count(nest, cpu_cycles, rows), lane.programs if stage.once else self.steps * stage.turns)
            for stage in lane.stages
            for nest in stage.nests
        ]
        self.cycles = sum(self._cycles(run.work) * run.times for run in self.runs)
        self.step_bytes = self._step_bytes()
        self.near = 0.0
        self.far: list[tuple[float, float]] = []
        self._move(in_use)

    def _cycles(self, work: NestWork) -> float:
        """Of one run of a nest."""
        m = self.machine
        lanes = m.vector_bytes // max(work.lane_bytes, F32_BYTES)
        vector = work.inner + m.narrow_cycles * (work.narrow + self._narrow(work))
        width = lanes if work.turns >= lanes else max(1, work.turns // 2)
        return (
            vector / width
            + work.outer * m.scalar_cycles
            + work.loops
            * (m.loop_cycles + work.reduced * m.sum_cycles * min(1.0, work.turns / (UNROLLED * lanes)))
            + work.scattered * m.scattered_cycles
            + work.divisions * m.division_cycles
        )

    @staticmethod
    def _narrow(work: NestWork) -> float:
        return sum(a.times for a in work.accesses if a.rounded)

    # -- memory ---------------------------------------------------------------------------------------

    def _step_bytes(self) -> float:
        """Bytes that one step touches: what is near when a later stage comes to it."""
        if self.lane.flat:
            return float(LINE * len(self.runs))
        found: dict[Buffer, float] = {}
        for run in self.runs:
            for a in run.work.accesses:
                found[a.buffer] = max(found.get(a.buffer, 0.0), self._lines(a, a.distinct))
        return sum(found.values())

    def _lines(self, a: Access, elements: float) -> float:
        """Bytes that memory moves for so many elements of an access."""
        apart = LINE if a.scattered and a.reach > self._held(a.stride * a.size) else a.size
        return elements * max(apart, a.size)

    def _held(self, stride: int) -> int:
        """Lines, so many bytes apart, that the near cache holds at once: a distance of 2^k meets few sets."""
        sets = self.machine.near_bytes // (LINE * WAYS)
        return WAYS * (sets // math.gcd(sets, max(1, stride // LINE)))

    def _move(self, in_use: float) -> None:
        touched: dict[Buffer, float] = {}
        moved: dict[Buffer, float] = {}
        for run in self.runs:
            for a in run.work.accesses:
                moved[a.buffer] = moved.get(a.buffer, 0.0) + self._lines(a, a.times * run.times)
                touched[a.buffer] = max(touched.get(a.buffer, 0.0), self._distinct(a, run.times))
        for b, nbytes in moved.items():
            first = min(touched[b], nbytes)
            if b.space is Space.ARENA:
                first = 0.0
            else:
                level = min(in_use, 4.0 * b.type.nbytes) if b.space is Space.SCRATCH else in_use
                self.far.append((first, max(level, 1.0)))
            if self.step_bytes > self.machine.near_bytes:
                self.near += self.machine.lone_bandwidths.seconds(nbytes - first, self.step_bytes)

    def _distinct(self, a: Access, times: float) -> float:
        """Bytes of different elements that the lane reaches by an access."""
        elements = a.distinct * (times if a.by_step else self.lane.programs if a.by_program else 1)
        return self._lines(a, min(elements, a.buffer.type.size))
