"""The estimated time of a launch, what bounds it, and where its warps wait.

    found = timeline(ptx, "k", launch, find_spec("h200"))
    found.seconds, found.peak, found.bound        1.4e-4, 0.55, "latency"

An estimate, never a measurement. Not modelled: the instruction cache, address translation, DRAM's pages, what
an earlier kernel left in L2, and data that decides how long a loop is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.ptx_text import entry_name
from jstitch.codegen.cuda.resources import Resources
from jstitch.codegen.cuda.source import Launch
from jstitch.codegen.cuda.timeline.count_lines import SECTOR, WARP, Extent, WarpCount, count_lines
from jstitch.codegen.cuda.timeline.machine_code import Instruction, machine_code
from jstitch.codegen.cuda.timeline.paths import find_flow
from jstitch.codegen.cuda.timeline.replay import CAUSES, Load, Replayed, replay
from jstitch.codegen.cuda.timeline.work import Origin, rows
from jstitch.device_spec import DeviceSpec, occupancy
from jstitch.ir.types import DType

CEILING = 0.83  # of DRAM's bandwidth that loads of a kernel have; fitted to an H200
_SAMPLED = 4  # multiprocessors that are replayed
_MOST_STEPS = 12_000_000  # instructions that are replayed; of what is longer, the first CTAs are
_CACHE_BYTES = 24 << 10  # of L1, beside what can be shared memory
_FEW, _MANY = 3, 128  # CTAs that are looked at, and those where they differ
_ALIKE = 1.15  # at most so many times as much
_ENOUGH = 0.75  # of a unit's cycles, from which on it bounds the kernel


@dataclass(frozen=True)
class Place:
    """An instruction at which warps wait. share: of all the time that they wait. line: of the PTX."""

    instruction: str
    line: int
    cause: str
    share: float


@dataclass(frozen=True)
class Timeline:
    """seconds: estimated. peak: DRAM's bytes over what its bandwidth would move in that time. ctas_per_sm:
    that fit; rounds: of so many on all multiprocessors. units: share of their cycles that units are busy.
    bound: what of them is busy most, or 'latency', or 'tail' where multiprocessors wait for the last ones.
    issued: by all warps. places: where they wait most, most first. complete: whether every CTA was replayed,
    not the first ones. followed: of the loads, stores, shuffles and barriers of the PTX's runs, the share
    that the way through the machine code has: where it is less than nearly one, nothing is to be believed.
    """

    seconds: float
    dram_bytes: float
    peak: float
    ctas_per_sm: int
    rounds: float
    units: Mapping[str, float]
    bound: str
    issued: int
    resources: Resources
    places: tuple[Place, ...]
    complete: bool
    followed: float


def timeline(ptx: str, kernel: str, launch: Launch, spec: DeviceSpec) -> Timeline:
    """Of a launch of the kernel of that name. Raises ToolError without ptxas and nvdisasm, PtxError for code
    that the PTX interpreter does not know, TooLongError.
    """
    code, resources = machine_code(ptx, spec.arch)
    shared_bytes = resources.shared_bytes + launch.shared_bytes
    fit = max(occupancy(spec, launch.block, resources.registers, shared_bytes), 1)
    l1_bytes = max((spec.shared_per_sm + _CACHE_BYTES) // fit - shared_bytes, 0)
    sizes = tuple(p.elements * DType[p.dtype.upper()].itemsize for p in launch.parameters)
    extent = Extent(launch.grid, launch.block, launch.shared_bytes, sizes, l1_bytes)
    moved = launch.bytes_read + launch.bytes_written
    counted = _sample(ptx, entry_name(kernel, launch.function), extent, moved)
    load, scale, followed = _load(code, counted, extent, fit, spec)
    return _judge(code, resources, extent, load, replay(load), scale, followed, spec)


def _sample(ptx: str, entry: str, extent: Extent, moved: int) -> list[WarpCount]:
    """Warps of the first, middle and last CTA; of many where these do not stand for the others, as lanes of
    one launch do not. moved: bytes that the launch reads and writes.
    """
    last = extent.grid - 1
    few = sorted({0, last // 2, last})
    counted = count_lines(ptx, entry, extent, few)
    totals = [sum(n.runs for w in counted if w.cta == cta for n in w.lines.values()) for cta in few]
    fresh = SECTOR * sum(n.fresh for w in counted for n in w.lines.values()) / len(few) * extent.grid
    touched = {frozenset(n.buffer for w in counted if w.cta == cta for n in w.lines.values()) for cta in few}
    enough = _ALIKE * fresh >= min(moved, sum(extent.sizes))
    if len(few) < _FEW or (len(touched) == 1 and enough and max(totals) <= _ALIKE * min(totals)):
        return counted
    more = sorted({round(last * n / _MANY) for n in range(_MANY + 1)} - set(few))
    return sorted(counted + count_lines(ptx, entry, extent, more), key=lambda w: (w.cta, w.warp))


def _load(
    code: tuple[Instruction, ...], counted: list[WarpCount], extent: Extent, fit: int, spec: DeviceSpec
) -> tuple[Load, float, float]:
    """What is replayed, how many times that much there is, and how well ways are followed, at least."""
    flow, origins = find_flow(code), _origins(counted, extent, spec.sms)
    ways: list[NDArray[np.int64]] = []
    tables: list[NDArray[np.float64]] = []
    known: dict[object, int] = {}
    followed = 1.0
    ctas = sorted({w.cta for w in counted})
    warps = np.zeros((len(ctas), -(-extent.block // WARP)), np.int64)
    for one in counted:
        key = tuple(sorted(one.lines.items()))
        if key not in known:
            known[key] = len(ways)
            reached = {line: n.reached for line, n in one.lines.items()}
            ways.append(flow.walk(reached))
            followed = min(followed, flow.followed(ways[-1], reached))
            tables.append(rows(code, ways[-1], one.lines, origins, spec))
        warps[ctas.index(one.cta), one.warp] = known[key]
    active = min(extent.grid, spec.sms)
    fewest = _MANY * active // extent.grid if len(ctas) > _FEW else 0
    sampled = min(max(_SAMPLED, fewest), active)
    pool = max(round(extent.grid * sampled / active), sampled)
    per_cta = np.array([sum(len(ways[n]) for n in of) for of in warps]).mean()
    whole_waves = max(int(_MOST_STEPS / per_cta / (sampled * fit)), 1) * sampled * fit
    replayed = min(pool, whole_waves)
    places = np.linspace(0, extent.grid - 1, replayed)
    sorts = np.abs(places[:, None] - np.array(ctas)).argmin(1)
    bandwidth = CEILING * spec.bandwidth * sampled / active / spec.clock
    load = Load(tuple(ways), tuple(tables), warps, sorts, sampled, fit, bandwidth)
    return load, pool / replayed, followed


def _origins(counted: list[WarpCount], extent: Extent, sms: int) -> dict[int, Origin]:
    """Where what CTAs touch first of each buffer comes from.

    DRAM has it for the first CTA of all. What every CTA reads, as weights of a norm, is in L1 for all but the
    first one of a multiprocessor, where it is not pushed out by what a CTA touches in between.
    """
    ctas = len({w.cta for w in counted})
    fresh: dict[int, float] = {}
    for warp in counted:
        for line in warp.lines.values():
            fresh[line.buffer] = fresh.get(line.buffer, 0) + SECTOR * line.fresh / ctas
    kept = sum(fresh.values()) <= extent.l1_bytes
    found: dict[int, Origin] = {}
    for buffer, total in fresh.items():
        if buffer >= 0 and total:
            size = extent.sizes[buffer]
            dram = min(1.0, size / (total * extent.grid))
            again = kept and 2 * total >= size
            found[buffer] = Origin(dram, max(dram, min(1.0, sms / extent.grid)) if again else 1.0)
    return found


def _judge(
    code: tuple[Instruction, ...],
    resources: Resources,
    extent: Extent,
    load: Load,
    done: Replayed,
    scale: float,
    followed: float,
    spec: DeviceSpec,
) -> Timeline:
    active = min(extent.grid, spec.sms)
    seconds = done.cycles * scale / spec.clock
    of_all = active / load.multiprocessors * scale
    dram_bytes = done.dram_bytes * of_all
    sm_cycles = done.cycles * load.multiprocessors
    units = {
        "DRAM": done.dram_bytes / (done.cycles * load.bandwidth),
        "issue": done.issued / (4 * sm_cycles),
        "load/store": done.queue_cycles / sm_cycles,
        **{
            name: float(cycles) / (4 * sm_cycles)
            for name, cycles in zip(("FMA", "ALU", "special", "tensor"), done.pipe_cycles, strict=True)
        },
    }
    peak = dram_bytes / (seconds * spec.bandwidth)
    return Timeline(
        seconds,
        dram_bytes,
        peak,
        load.occupancy,
        extent.grid / (spec.sms * load.occupancy),
        units,
        _bound(units, done, active / spec.sms),
        round(done.issued * of_all),
        resources,
        _places(code, done),
        scale == 1.0,
        followed,
    )


def _bound(units: Mapping[str, float], done: Replayed, active: float) -> str:
    most = max(units, key=lambda name: units[name])
    if units[most] >= _ENOUGH:
        return most
    if active * float(done.ends.mean()) / done.cycles < _ENOUGH:
        return "tail"
    return "latency"


def _places(code: tuple[Instruction, ...], done: Replayed, most: int = 8) -> tuple[Place, ...]:
    total = float(done.waits.sum()) or 1.0
    order = np.argsort(done.waits, axis=None)[::-1][:most]
    found = [(int(n) // len(CAUSES), int(n) % len(CAUSES)) for n in order]
    return tuple(
        Place(str(code[n]), code[n].line, CAUSES[cause], float(done.waits[n, cause]) / total)
        for n, cause in found
        if done.waits[n, cause] > 0
    )
