"""A kernel's time on a GPU: L = N_wave x L_warp, and bytes over the device's bandwidth (FS-2021 section 4.3).

N_wave = N_warp / occupancy       warps of the grid, over those that the device holds at once
L_warp = N_instruction x CPI      a warp's instructions, with the latency that nobody hides

Occupancy comes from the launch (its Launch IR): its CTAs, its shared memory, and the registers that the life
times of its values need. Many warps hide each other's latencies until a multiprocessor issues an instruction
in every cycle; few also have too little of memory's traffic under way at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.deal import WARP, Dealt, Mode
from jstitch.codegen.cuda.exchange import combining_steps
from jstitch.codegen.cuda.homes import Homes, NoRoom, find_homes
from jstitch.codegen.cuda.launch_kernel import BLOCK, launch_kernel
from jstitch.codegen.cuda.launch_products import product_parts
from jstitch.codegen.cuda.launch_strips import strip_homes
from jstitch.codegen.cuda.live_values import FIXED, live_registers
from jstitch.codegen.cuda.tiling import depth_of
from jstitch.codegen.cuda.traffic import row_bytes
from jstitch.codegen.kernel_ir import Instr, Kernel, Lane, Let, Phase, Space, Store, StripLane
from jstitch.codegen.launch_ir import LaunchCode
from jstitch.device_spec import DeviceSpec, occupancy
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.tensor_cores import tensor_seconds
from jstitch.passes.schedule.latency_value import Latency
from jstitch.passes.schedule.nest_work import expr_cycles

ISSUE = 4  # instructions that a multiprocessor starts in a cycle
ALU_CYCLES = 4.5  # until a warp may use what a light instruction made
SHUFFLE_CYCLES = 23.0  # a shuffle, or an access to shared memory
BARRIER_CYCLES = 30.0
MMA = 16 * 8  # multiplications of one instruction, for each element of its depth
MEMORY_SECONDS = 6.5e-7  # from a launch's first load to its value
FLIGHT_SECONDS = 4.2e-7  # from a load of a loop over rows to its value; measured on an H200
BEND = 3.0
"""How sharply speed stops growing with what is on its way; fits 4 to 128 KiB for each multiprocessor."""

FLYING_BYTES = 32 * WARP  # of one warp's loads on their way at once, where it has one row
MOST_FLYING = 128 * WARP
"""Of one warp's loads in a loop over rows: a thread has registers for no more than eight vectors of them."""

RUN_BYTES = 40.0
"""That a short run of written bytes costs besides: a copy by runs of 128 takes 1.18 times as long there."""


def gpu_phases(kernel: Kernel, machine: Machine, spec: DeviceSpec) -> Iterator[Latency]:
    """The latency of each launch of a kernel that its target's passes are done with.

    Raises NoRoom for one that the device cannot hold.
    """
    made = launch_kernel(kernel, spec.shared_optin)
    for phase, launch in zip(made.phases, made.codes, strict=True):
        yield launch_latency(thread_work(phase, launch, spec), launch, machine, spec)


def lone_seconds(phase: Phase, kernel: Kernel, machine: Machine, spec: DeviceSpec) -> float:
    """Of one launch by itself; infinite where the device cannot hold it."""
    try:
        return sum(gpu_phases(replace(kernel, phases=(phase,)), machine, spec), Latency()).seconds
    except (NoRoom, CannotBuildError):
        return math.inf


@dataclass(frozen=True)
class WarpWork:
    """cycles: instructions of all warps, weighted by CPI relative to an add; waits: cycles of exchanges.

    registers: of a thread. flying: bytes of a warp's loads that are on their way at once. reread: bytes that
    come from the second-level cache, which is not much faster than memory. runs: of bytes that are written
    to strips of rows, each shorter than a row. tensor: cycles of a
    multiprocessor's tensor cores, for all CTAs; their instructions do not wait for one another.
    """

    cycles: float
    waits: float
    registers: int
    flying: float = FLYING_BYTES
    reread: int = 0
    tensor: float = 0.0
    runs: float = 0.0


def launch_latency(work: WarpWork, launch: LaunchCode, machine: Machine, spec: DeviceSpec) -> Latency:
    """One launch: waves of warps, or the time its bytes take, whichever is longer, and the launch itself."""
    warps = -(-launch.block // WARP)
    held = max(1, occupancy(spec, launch.block, work.registers, launch.shared_bytes))
    waves = math.ceil(launch.grid / (held * spec.sms))
    resident = min(held, -(-launch.grid // spec.sms)) * warps  # on one multiprocessor
    each = 1 / (launch.grid * warps)
    latency = max(ALU_CYCLES, resident / ISSUE)  # cycles from one instruction of a warp to its next
    cycles = waves * (work.cycles * latency + work.waits) * each
    cycles += waves * resident / warps * work.tensor / launch.grid
    nbytes = launch.bytes_read + launch.bytes_written + work.reread
    whole, rest = divmod(launch.grid, held * spec.sms)
    rounds = [(held * spec.sms, whole), (rest, 1)]  # CTAs that are there at once, how often
    memory = MEMORY_SECONDS
    waited_for = max(launch.bytes_read + work.reread, 1) / max(nbytes, 1)  # writes are not
    for ctas, times in rounds:
        speed = _speed(machine.bandwidth(nbytes), ctas * warps * work.flying / waited_for)
        memory += times * ctas / launch.grid * (nbytes + RUN_BYTES * work.runs) / speed if ctas else 0.0
    return Latency.of(cycles / spec.clock, memory, machine.launch, nbytes, machine.overlap)


def _speed(most: float, flying: float) -> float:
    """Bytes per second: at most `most`, and what is on its way at once in the time that it takes."""
    asked = flying / MEMORY_SECONDS
    return float((most**-BEND + asked**-BEND) ** (-1 / BEND)) if asked else 0.0


def thread_work(phase: Phase, launch: LaunchCode, spec: DeviceSpec) -> WarpWork:
    return _together([_lane_work(lane, launch.block, spec) for lane in phase.lanes])


def _lane_work(lane: Lane, block: int, spec: DeviceSpec) -> WarpWork:
    if lane.multiplies:
        return _product_lane_work(lane, block, spec)
    try:
        parts = [_work(lane, homes, turns) for homes, turns in lane_homes(lane, spec.shared_optin, block)]
    except NoRoom:  # emitted in turned tiles, which need no homes
        return WarpWork(lane.work / WARP, 0.0, FIXED)
    return replace(_together(parts), runs=_runs(lane))


def _product_lane_work(lane: Lane, block: int, spec: DeviceSpec) -> WarpWork:
    """One part after another: rows, a warp each, and products, by all warps of a CTA."""
    parts = []
    for part, turns in product_parts(lane, spec.shared_optin, max(block, BLOCK)):
        if isinstance(part, Homes):
            parts.append(_work(lane, part, lane.rows * turns))
        else:
            ctas = lane.rows // lane.step * turns
            products = part.instructions * MMA * depth_of(part.dtype)
            seconds = tensor_seconds(products, spec, part.dtype) * ctas
            tensor = seconds * spec.clock * spec.sms / min(1.0, part.tiling.busy / ISSUE)
            waits = BARRIER_CYCLES * ctas * part.tiling.warps * part.tiling.turns
            flying = max(FLYING_BYTES, max(1, part.ring - 1) * part.panel_bytes / part.tiling.warps)
            again = part.reread(ctas)
            parts.append(WarpWork(0.0, waits, FIXED + part.registers, flying, again, tensor))
    return _together(parts)


def _together(parts: Sequence[WarpWork]) -> WarpWork:
    return WarpWork(
        sum(p.cycles for p in parts),
        sum(p.waits for p in parts),
        max(p.registers for p in parts),
        max(p.flying for p in parts),
        sum(p.reread for p in parts),
        sum(p.tensor for p in parts),
        sum(p.runs for p in parts),
    )


def lane_homes(lane: Lane, arena_bytes: int, block: int) -> list[tuple[Homes, int]]:
    """Where a lane's threads keep values, and how often a team works so; its rows last. Raises NoRoom."""
    block = max(block, BLOCK)
    if not isinstance(lane, StripLane):
        return [(find_homes(lane, arena_bytes, block), 1 if lane.flat else lane.rows)]
    columns, rows = strip_homes(lane, arena_bytes, block)
    return [*([(columns, lane.programs)] if columns else []), (rows, lane.rows * lane.strips)]


def _work(lane: Lane, homes: Homes, turns: float) -> WarpWork:
    warps = turns * homes.team.threads / WARP  # teams smaller than a warp share one
    cycles = sum(_nest_cycles(homes, d) for d in homes.nests)
    waits = sum(_wait_cycles(homes, d) for d in homes.nests)
    ahead = sum(p.nbytes for stage in lane.stages for p in stage.prefetches)  # of a team's next row
    flying: float = FLYING_BYTES
    if homes.carries or (isinstance(homes.lane, StripLane) and not homes.lane.before):  # a loop over rows
        asked = row_bytes(homes) * WARP / homes.team.threads * MEMORY_SECONDS / FLIGHT_SECONDS
        flying = min(max(asked, WARP), MOST_FLYING)
    flying += ahead * WARP / homes.team.threads
    return WarpWork(cycles * warps, waits * warps, live_registers(homes), flying)


def _runs(lane: Lane) -> float:
    """Written runs of bytes of a strip's rows."""
    if not isinstance(lane, StripLane) or lane.strips == 1:
        return 0.0
    instructions = (i for stage in lane.stages[lane.before :] for n in stage.nests for i in n.instructions)
    written = {i.buffer for i in instructions if isinstance(i, Store) and i.buffer.space is Space.RESULT}
    return float(len(written) * lane.rows * lane.strips)


def _nest_cycles(homes: Homes, d: Dealt) -> float:
    """Instructions that each thread of a team issues for one row."""
    serial = math.prod(loop.hi - loop.lo for loop in d.serial)
    inner = math.prod(loop.hi - loop.lo for loop in d.inner)
    width = homes.widths.get(d.size, 1) if d.loops else 1
    rounds = homes.rounds(d.size) if d.loops else 1
    total = 0.0
    for i in d.instructions:
        level = d.level(i)
        around = serial if level else 1
        if level > len(d.serial):
            around *= rounds * (1 if _in_vectors(homes, i) else width)
        if level > len(d.serial) + len(d.loops):
            around *= max(1, inner // homes.parts(d))
        total += around * _cycles(i)
    return total


def _in_vectors(homes: Homes, i: Instr) -> bool:
    return not isinstance(i, Let) and i.buffer not in homes.tiles


def _cycles(i: Instr) -> float:
    return expr_cycles(i.value) if isinstance(i, Let) else 2.0  # an address, and the access


def _wait_cycles(homes: Homes, d: Dealt) -> float:
    """Shuffles and barriers after a row's reduction, or accesses to what threads left of shared sums."""
    serial = math.prod(loop.hi - loop.lo for loop in d.serial)
    threads, sums = homes.team.threads, max(1, len(d.nest.accumulators))
    if d.mode is Mode.REDUCE:
        steps = math.log2(max(2, threads)) * sums
        return serial * (steps * SHUFFLE_CYCLES + (BARRIER_CYCLES if threads > WARP else 0.0))
    if homes.lane.rows == 1 and d.long:  # by slices, in a CTA for each warp's elements
        ctas = -(-d.size // WARP)
        return ctas * (combining_steps(threads // WARP) * sums * SHUFFLE_CYCLES + BARRIER_CYCLES)
    steps = combining_steps(homes.parts(d)) * sums
    return serial * (steps * SHUFFLE_CYCLES + BARRIER_CYCLES) if steps else 0.0
