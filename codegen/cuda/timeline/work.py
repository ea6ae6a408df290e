"""What each instruction of a kernel takes of a multiprocessor, each time that a warp issues it.

    LDG.E.128   ->   16 sectors through the load/store unit, 512 bytes from DRAM, a scoreboard 1,200 cycles on

Rates are of the CUDA programming guide's throughput table and the published microbenchmarks of sm_80 and
sm_90; latencies are estimates. `ROW` names the columns of a row of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.timeline.count_lines import SECTOR, Line
from jstitch.codegen.cuda.timeline.machine_code import Instruction
from jstitch.device_spec import DeviceSpec


class Kind(IntEnum):
    """What the replay does with an instruction."""

    PLAIN = 0
    LOAD = 1
    STORE = 2
    BARRIER = 3
    COPY = 4  # to shared memory, not waited for
    CLOSE = 5  # of a group of copies
    WAIT = 6  # for all groups but some
    PREFETCH = 7  # to L2, not waited for


class Pipe(IntEnum):
    """Units of a quarter of a multiprocessor, each with a rate of its own."""

    NONE = -1
    FMA = 0
    ALU = 1
    SPECIAL = 2
    TENSOR = 3


PIPES = tuple(p.name for p in Pipe if p >= 0)
ROW = (
    *("kind", "pipe", "cost", "stall", "writes", "reads", "waits"),
    *("queue", "dram", "l2", "latency", "number", "count", "asked"),
)
"""cost: cycles of the pipe. queue: of the load/store unit. dram, l2: bytes from there; asked: those of l2
that its CTA asked for before. latency: cycles to the
result beyond these. number, count: of a barrier, and of the warps that it waits for; of copies, those left.
"""

_ALU = frozenset(
    "IADD3 LOP3 SHF PRMT ISETP FSETP FMNMX SEL FSEL LEA VIADD VIMNMX MOV F2FP IABS PLOP3 FCHK IMNMX R2P P2R"
    " BMSK SGXT LOP CS2R HSETP2 HMNMX2 FSWZADD VABSDIFF ISCADD".split()
)
_FMA = frozenset("FFMA FADD FMUL HFMA2 HADD2 HMUL2 FFMA2 FADD2 FMUL2 HFMA2_MMA".split())
_SPECIAL = frozenset("MUFU I2F F2I F2F FRND POPC FLO I2FP F2IP BREV".split())
_DOUBLE = frozenset("DADD DMUL DFMA DSETP".split())
_SHARED = frozenset("LDS STS LDL STL LDSM ATOMS STSM".split())
_GLOBAL = {"LDG": Kind.LOAD, "LD": Kind.LOAD, "STG": Kind.STORE, "ST": Kind.STORE, "LDGSTS": Kind.COPY}
_PLAIN, _SPECIAL_CYCLES, _DOUBLE_CYCLES, _TENSOR_CYCLES = 4, 18, 40, 33  # to a result
_L1, _L2, _SHARED_CYCLES, _SHUFFLE = 33, 270, 23, 23
_TENSOR_MACS = 4 * 2048  # of a 16x8x16 product, for a quarter's share of the rate
_SYSTEM = {"LDC": 30, "S2R": 25, "S2UR": 25}
_FAST_DOUBLES = ((7, 0), (8, 0), (9, 0), (10, 0))
DRAM_SECONDS = 550e-9  # from the request to the data; fitted to an H200 (420 ns where little is asked for)


@dataclass(frozen=True)
class Origin:
    """Of what CTAs touch first of a buffer: the share that DRAM has, and that which L1 has not."""

    dram: float = 1.0
    beyond: float = 1.0


def rows(
    code: tuple[Instruction, ...],
    way: NDArray[np.int64],
    lines: Mapping[int, Line],
    origins: Mapping[int, Origin],
    spec: DeviceSpec,
) -> NDArray[np.float64]:
    """[instructions, len(ROW)]. way: what a warp issues. origins: of each buffer's first touches."""
    times = np.bincount(way, minlength=len(code))
    memory_runs: dict[int, int] = {}
    for number, one in enumerate(code):
        if one.name in _GLOBAL or one.name in _SHARED or one.name == "UBLKPF":
            memory_runs[one.line] = memory_runs.get(one.line, 0) + int(times[number])
    return np.array([_row(one, lines, memory_runs, origins, spec) for one in code], np.float64)


def _row(
    one: Instruction,
    lines: Mapping[int, Line],
    memory_runs: Mapping[int, int],
    origins: Mapping[int, Origin],
    spec: DeviceSpec,
) -> tuple[float, ...]:
    runs = max(memory_runs.get(one.line, 1), 1)
    control = {"stall": one.stall, "writes": one.writes, "reads": one.reads, "waits": one.waits}
    uses = _uses(one, lines.get(one.line, Line()), runs, origins, spec)
    found = {"pipe": Pipe.NONE, "latency": _PLAIN, **control, **uses}
    return tuple(found.get(name, 0.0) for name in ROW)


def _uses(
    one: Instruction, line: Line, runs: int, origins: Mapping[int, Origin], spec: DeviceSpec
) -> Mapping[str, float]:
    """Columns that are not of the control word. runs: of all loads and stores of the line."""
    match one.name:
        case name if name in _GLOBAL:
            return _global(_GLOBAL[name], line, runs, origins.get(line.buffer, Origin()), spec)
        case name if name in _SHARED:
            return {"queue": max(1.0, line.passes / runs), "latency": _SHARED_CYCLES}
        case "SHFL":
            return {"queue": 1.0, "latency": _SHUFFLE}
        case "UBLKPF":
            dram = SECTOR * line.fresh * origins.get(line.buffer, Origin()).dram / runs
            return {"kind": Kind.PREFETCH, "dram": dram, "latency": DRAM_SECONDS * spec.clock}
        case "BAR" if line.barrier is not None:
            return {"kind": Kind.BARRIER, "number": line.barrier[0], "count": line.barrier[1]}
        case "LDGDEPBAR":
            return {"kind": Kind.CLOSE}
        case "DEPBAR" if "," in one.operands:
            return {"kind": Kind.WAIT, "count": int(one.operands.split(",")[1].strip(), 16)}
    pipe, cost, latency = _arithmetic(one, spec)
    return {"pipe": pipe, "cost": cost, "latency": latency}


def _global(kind: Kind, line: Line, runs: int, origin: Origin, spec: DeviceSpec) -> Mapping[str, float]:
    """Stores go through to L2, loads where L1 has lost the data."""
    dram = SECTOR * line.fresh * origin.dram / runs
    passed = line.sectors if kind is Kind.STORE else line.fresh * origin.beyond + line.far + line.asked
    l2 = SECTOR * passed / runs - dram
    touched = max(SECTOR * line.sectors / runs, dram + l2, 1.0)
    far = dram * DRAM_SECONDS * spec.clock + l2 * _L2 + (touched - dram - l2) * _L1
    queue = max(1.0, line.passes / runs)
    asked = SECTOR * line.asked / runs
    return {"kind": kind, "queue": queue, "dram": dram, "l2": l2, "latency": far / touched, "asked": asked}


def _arithmetic(one: Instruction, spec: DeviceSpec) -> tuple[Pipe, float, float]:
    """Pipe, its cycles, cycles to the result where a scoreboard says when."""
    match one.name:
        case name if name in _FMA:
            return Pipe.FMA, 128 / spec.fpus_per_sm, _PLAIN
        case "IMAD":
            return Pipe.FMA, 2, _PLAIN
        case name if name in _ALU:
            return Pipe.ALU, 2, _PLAIN
        case name if name in _SPECIAL:
            return Pipe.SPECIAL, 8, _SPECIAL_CYCLES
        case name if name in _DOUBLE:
            return Pipe.TENSOR, 2 if spec.capability in _FAST_DOUBLES else 64, _DOUBLE_CYCLES
        case "HMMA" | "IMMA" | "QMMA":
            return Pipe.TENSOR, _TENSOR_MACS / spec.warp_macs, _TENSOR_CYCLES
    return Pipe.NONE, 0, _SYSTEM.get(one.name, _PLAIN)
