"""More threads for each row where rows are too few to fill a GPU.

8 rows of 512 elements, 132 multiprocessors     8 teams of 32 threads in one CTA  ->  8 CTAs of 512 threads

A row's team is as small as its registers allow, which is right where there are rows enough for every
multiprocessor. Where there are not, the latency-evaluator says how many threads are best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.launch_kernel import launch_kernel
from jstitch.codegen.kernel_ir import Kernel, Lane, Phase, StripLane
from jstitch.device_spec import DeviceSpec
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.schedule.latency_gpu import lone_seconds

TEAMS = 64, 128, 256, 512, 1024
"""Threads that are tried."""

WORTH = 0.95
"""Of the seconds with a row's usual threads: a smaller difference the evaluator does not see."""


def widen_teams(kernel: Kernel, context: Context) -> Kernel:
    """The kernel with as many threads a row as are fastest, in launches that leave multiprocessors idle."""
    device = context.machine.device
    if device is None:
        return kernel
    phases = tuple(_widened(phase, kernel, context.machine, device) for phase in kernel.phases)
    return kernel if phases == kernel.phases else replace(kernel, phases=phases)


def _widened(phase: Phase, kernel: Kernel, machine: Machine, device: DeviceSpec) -> Phase:
    asked = any(lane.exact or lane.counted for lane in phase.lanes)  # their CTAs would grow, too
    if asked or not any(map(_may_widen, phase.lanes)) or not _is_small(phase, kernel, device):
        return phase
    timed = [(lone_seconds(form, kernel, machine, device), form) for form in _forms(phase)]
    seconds, best = min(timed, key=lambda x: x[0])
    return best if seconds <= WORTH * timed[0][0] else phase


def _forms(phase: Phase) -> Iterator[Phase]:
    """As it is, then with other numbers of threads."""
    yield phase
    for threads in TEAMS:
        lanes = (replace(lane, threads=threads) if _may_widen(lane) else lane for lane in phase.lanes)
        yield Phase(tuple(lanes))


def _may_widen(lane: Lane) -> bool:
    """Whether nobody asked for its threads, and it has rows, or elements of one, that can have some each."""
    given = lane.threads or lane.counted or lane.multiplies
    return not (lane.flat or given or isinstance(lane, StripLane))


def _is_small(phase: Phase, kernel: Kernel, device: DeviceSpec) -> bool:
    """Whether its launch has fewer CTAs than the device has multiprocessors."""
    try:
        made = launch_kernel(replace(kernel, phases=(phase,)), device.shared_optin)
    except NoRoom:
        return False
    return sum(code.grid for code in made.codes) < device.sms
