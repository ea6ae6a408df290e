"""What a pattern is as a kernel: schedule, schemes, memory, occupancy; lowered, but not compiled.

{sum, rsqrt, multiply} of 4096 x 1024 for h200    ->    one launch of 4096 CTAs, scheme "block", ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.launch_kernel import launch_kernel
from jstitch.codegen.kernel_ir import Kernel, Phase
from jstitch.codegen.launch_ir import LaunchCode
from jstitch.device_spec import DeviceSpec, occupancy
from jstitch.ir.graph import Op
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern, Reason, is_free
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.cost.structure import structure
from jstitch.passes.fuse.absorb_updates import contracted
from jstitch.passes.fuse.judge_kernel import judge_kernel
from jstitch.passes.lower.apply_template import WARP
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.passes.schedule.latency_cpu import cpu_phases
from jstitch.passes.schedule.latency_gpu import WarpWork, lane_homes, launch_latency, thread_work
from jstitch.passes.schedule.latency_value import Latency


@dataclass(frozen=True)
class LaunchFacts:
    """One launch on a GPU. registers: of a thread. shared_bytes: of a CTA.

    occupancy: of the warps that a multiprocessor can hold, the share that it holds.
    """

    grid: int
    block: int
    registers: int
    shared_bytes: int
    occupancy: float


@dataclass(frozen=True)
class LaneFacts:
    """Lanes of a phase that are cut alike, `times` of them.

    rows, step, programs: as the Kernel IR has them. threads: that share a row. work: elements, roughly. flat:
    rows are elements. columns: of the strip that a row is, or 0. stages: what each is for.
    """

    phase: int
    times: int
    rows: int
    step: int
    programs: int
    threads: int
    work: int
    flat: bool
    columns: int
    stages: tuple[str, ...]


@dataclass(frozen=True)
class KernelFacts:
    """schedule: its template. schemes: how its ops share values ('thread', 'warp', 'block', 'phases'), and
    'packing'. phases: barriers and launches apart. programs: pieces that run at once, of the largest phase.
    arena_bytes: of a program. scratch_bytes: of memory for values between phases. launches: on GPUs only.
    lanes: alike ones once. seconds: by the latency-evaluator. products: of matrices, by tiles of registers.
    """

    schedule: str
    schemes: tuple[str, ...]
    phases: int
    programs: int
    arena_bytes: int
    scratch_bytes: int
    launches: tuple[LaunchFacts, ...]
    lanes: tuple[LaneFacts, ...]
    seconds: float
    products: int

    @property
    def shared_bytes(self) -> int:
        """Of the launch that asks for most."""
        return max((launch.shared_bytes for launch in self.launches), default=0)

    @property
    def occupancy(self) -> float | None:
        """Of the launch that has least; None on CPUs."""
        return min((launch.occupancy for launch in self.launches), default=None)


T = TypeVar("T")
Made = KernelFacts | Reason


class KernelMaker:
    """Makes kernels as the pipeline does, patterns that look alike once."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._lowered: dict[object, Kernel | Reason] = {}
        self._known: dict[object, Made] = {}

    def make(self, pattern: FusionPattern) -> Made:
        """The facts, or why no kernel holds the pattern after all."""
        return self._once(self._known, self._make, pattern)

    def lower(self, pattern: FusionPattern) -> Kernel | Reason:
        """The kernel that is built, or why none is."""
        return self._once(self._lowered, self._lower, pattern)

    def _once(self, known: dict[object, T], make: Callable[[FusionPattern], T], pattern: FusionPattern) -> T:
        key = structure(pattern) or pattern
        if key not in known:
            known[key] = make(pattern)
        return known[key]

    def _make(self, pattern: FusionPattern) -> Made:
        kernel = self.lower(pattern)
        if isinstance(kernel, Reason):
            return kernel
        try:
            return _facts(kernel, pattern, self.context.machine)
        except (CannotBuildError, NoRoom) as error:
            return error.reason

    def _lower(self, pattern: FusionPattern) -> Kernel | Reason:
        inputs, _, outputs = contracted(pattern)
        about = pattern.ops, inputs, outputs, self.context, pattern.updates, pattern.template
        try:
            kernel = schedule_kernel(best_kernel("kernel", *about), self.context)
        except (CannotLowerError, CannotBuildError, NoRoom) as error:
            return error.reason
        return judge_kernel(kernel, pattern, self.context) or kernel


def _facts(kernel: Kernel, pattern: FusionPattern, machine: Machine) -> KernelFacts:
    launches: tuple[LaunchFacts, ...] = ()
    phases: Sequence[Phase] = kernel.phases
    if machine.device is None:
        buffers = len(kernel.args) + len(kernel.results)
        called = Latency(launches=machine.call_seconds + buffers * machine.operand)
        latency = sum(cpu_phases(kernel, machine), called)
        lanes = tuple(_lanes(phases))
    else:
        spec = machine.device
        made = launch_kernel(kernel, spec.shared_optin)
        phases, given = made.phases, made.codes
        works = [thread_work(phase, launch, spec) for phase, launch in zip(phases, given, strict=True)]
        timed = list(zip(works, given, strict=True))
        latency = sum((launch_latency(w, launch, machine, spec) for w, launch in timed), Latency())
        launches = tuple(_launch(w, launch, spec) for w, launch in timed)
        lanes = tuple(replace(x, threads=_team(phases[x.phase], x, given, spec)) for x in _lanes(phases))
    return KernelFacts(
        str(kernel.template or ""),
        tuple(_schemes(lanes, len(phases), pattern)),
        len(phases),
        max((sum(lane.programs for lane in phase.lanes) for phase in phases), default=0),
        kernel.arena_bytes,
        kernel.scratch_bytes,
        launches,
        lanes,
        latency.seconds,
        kernel.products,
    )


def _launch(work: WarpWork, launch: LaunchCode, spec: DeviceSpec) -> LaunchFacts:
    held = occupancy(spec, launch.block, work.registers, launch.shared_bytes)
    warps = held * -(-launch.block // WARP)
    return LaunchFacts(
        launch.grid, launch.block, work.registers, launch.shared_bytes, warps / spec.warps_per_sm
    )


def _lanes(phases: Sequence[Phase]) -> Iterator[LaneFacts]:
    for number, phase in enumerate(phases):
        found = Counter(
            LaneFacts(number, 1, x.rows, x.step, x.programs, x.threads or 1, x.work, x.flat, x.owns, notes)
            for x in phase.lanes
            for notes in [tuple(stage.note for stage in x.stages)]
        )
        yield from (replace(lane, times=times) for lane, times in found.items())


def _team(phase: Phase, facts: LaneFacts, launches: Sequence[LaunchCode], spec: DeviceSpec) -> int:
    """Threads that share a row, as the emitter chooses them."""
    lane = next(x for x in phase.lanes if (x.rows, x.work) == (facts.rows, facts.work))
    block = launches[facts.phase].block
    try:
        homes, _ = lane_homes(lane, spec.shared_optin, block)[-1]
    except NoRoom:  # emitted in turned tiles
        return block
    return homes.team.threads


def _schemes(lanes: Sequence[LaneFacts], phases: int, pattern: FusionPattern) -> Iterator[str]:
    """FS-2021's composition schemes, and what goes through memory from phase to phase."""
    if any(not is_reduction(producer) for producer in _inner(pattern)):
        yield "thread"
    shared = {lane.threads for lane in lanes if len(lane.stages) > 1}
    if any(1 < threads <= WARP for threads in shared):
        yield "warp"
    if shared and (1 in shared or max(shared) > WARP):
        yield "block"
    if phases > 1:
        yield "phases"
    if any(lane.times > 1 for lane in lanes) or len(lanes) > len({lane.phase for lane in lanes}):
        yield "packing"


def _inner(pattern: FusionPattern) -> Iterator[Op]:
    """Ops whose results are read in the pattern."""
    producers = {v: op for op in pattern.ops if not is_free(op) for v in op.results}
    return (producers[v] for op in pattern.ops for v in op.operands if v in producers)
