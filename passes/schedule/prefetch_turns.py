"""Ask the L2 cache for a team's next rows, where its CTA works on several rows in turn (sm_90 and later).

    for r in range(lo, hi):                  for r in range(lo, hi):
        # multiply, reduce add        ->         # multiply, reduce add
        ...                                      for i1 in range(0, 4096): ...
                                                 prefetch_bulk(b0, (r + 1) * 16384, 16384)

A kernel that carries sums over rows holds few CTAs, for each has the sums of all columns, and all of them
wait for memory at the same time: at the start of a row. What is asked for a row ahead comes meanwhile. The
latency-evaluator says whether that pays: where enough is under way already, it does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jstitch.codegen.cuda.homes import Homes, NoRoom
from jstitch.codegen.kernel_ir import CACHE_LINE, Kernel, Lane, Phase, Prefetch, Space, StripLane
from jstitch.codegen.launch_ir import PIECE_BYTES
from jstitch.device_spec import DeviceSpec
from jstitch.passes.base.context import Context
from jstitch.passes.schedule.latency_gpu import lane_homes, lone_seconds
from jstitch.passes.schedule.row_streams import streams

BULK = 9, 0  # the compute capability from which one instruction asks for many bytes
SHARE = 0.5  # of the L2 cache that the next rows may have


def prefetch_turns(kernel: Kernel, context: Context) -> Kernel:
    """The kernel with the next rows asked for in launches that are faster so."""
    device = context.machine.device
    if device is None or device.capability < BULK:
        return kernel
    phases = tuple(_best(phase, kernel, context, device) for phase in kernel.phases)
    return kernel if phases == kernel.phases else replace(kernel, phases=phases)


def _best(phase: Phase, kernel: Kernel, context: Context, device: DeviceSpec) -> Phase:
    asking = Phase(tuple(_asking(lane, device) for lane in phase.lanes))
    if asking == phase:
        return phase
    now, then = (lone_seconds(form, kernel, context.machine, device) for form in (phase, asking))
    return asking if then < now else phase


def _asking(lane: Lane, device: DeviceSpec) -> Lane:
    """The lane whose first stage asks for the rows of the next turn."""
    if lane.flat or lane.step > 1 or lane.multiplies or isinstance(lane, StripLane):
        return lane
    numbers = [n for n, stage in enumerate(lane.stages) if not stage.once and stage.turn is None]
    try:
        ((homes, _),) = lane_homes(lane, device.shared_optin, 0)
    except NoRoom:
        return lane
    asked = tuple(_prefetches(lane))
    if not (numbers and asked and homes.carries) or not _fits(asked, homes, device):
        return lane
    stages = list(lane.stages)
    stages[numbers[0]] = replace(stages[numbers[0]], prefetches=asked)
    return replace(lane, stages=tuple(stages))


def _prefetches(lane: Lane) -> Iterable[Prefetch]:
    """Of whole rows; of what an earlier launch wrote, too."""
    for b, nbytes in streams(lane, (Space.ARG, Space.SCRATCH)).items():
        if nbytes % PIECE_BYTES == 0 and b.offset % PIECE_BYTES == 0 and nbytes > 0:
            yield Prefetch(b, nbytes, 0, -(-nbytes // CACHE_LINE), 1)


def _fits(asked: Iterable[Prefetch], homes: Homes, device: DeviceSpec) -> bool:
    """Whether the next rows of all teams that a device can hold are a part of its L2 cache."""
    teams = device.threads_per_sm // homes.team.threads * device.sms
    teams = min(teams, homes.lane.programs * homes.team.teams)
    return teams * sum(p.nbytes for p in asked) <= SHARE * device.l2_bytes
