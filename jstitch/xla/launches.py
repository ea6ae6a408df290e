"""The kernels that a compiled program launches, loop bodies times their trips, with the bytes each one moves.

A loop whose trip count XLA does not know counts as one trip. Of a conditional, the branch that is modelled to
take longest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from jstitch.device_spec import DeviceSpec
from jstitch.xla.hlo import Computation, Instruction, Module
from jstitch.xla.thunks import Thunk
from jstitch.xla.traffic import Traffic, traffic

Kind = Literal["memory", "copy", "gemm", "library", "collective"]

# Thunks that launch nothing themselves.
_FREE = frozenset(
    "kWhile kConditional kSequential kCommandBuffer kAsyncStart kAsyncDone kDynamicSliceFusion kDynamicSlice "
    "kWaitForStreams kCopyDone kHostSend kHostRecv kHostSendDone kHostRecvDone".split()
)
_COPIES = frozenset(
    "kCopy kMemset32BitValue kMemzero kDynamicMemcpy kHostToDeviceCopy kDeviceToHostCopy".split()
)
_GEMMS = frozenset("kGemm kCublasLtMatmul kCublasLtGroupedMatmul kConvolution kCuDnn".split())
_KERNELS = frozenset("kKernel kCustomKernel".split())
_COLLECTIVES = tuple(
    "all-reduce all-gather all-to-all reduce-scatter collective-permute collective-broadcast "
    "ragged-all-to-all".split()
)
_CONTRACTIONS = frozenset(("dot", "convolution", "scaled-dot", "ragged-dot"))


@dataclass(frozen=True)
class Launch:
    """One kernel, or one copy, memset, library call or collective, and how often the program launches it.

    name: the HLO instruction. entry: the kernel's name, "" when it is not a kernel. traffic: of one launch.
    seconds: modelled time of one launch: bytes over bandwidth, plus the cost of launching.
    """

    name: str
    entry: str
    kind: Kind
    times: int
    traffic: Traffic
    shared_bytes: int
    seconds: float


@dataclass(frozen=True)
class Program:
    """A compiled program: its HLO, its thunks by instruction, and the device it is for.

    known: traffic of kernels by entry name, for kernels that XLA cannot look into. temporaries: bytes of
    memory that it needs besides arguments and results.
    """

    module: Module
    thunks: Mapping[str, tuple[Thunk, ...]]
    spec: DeviceSpec
    known: Mapping[str, Traffic] = field(default_factory=dict)
    temporaries: int = 0


def launches(program: Program) -> tuple[tuple[Launch, ...], tuple[str, ...]]:
    """All launches of one run, in program order, and the names of loops whose trips are unknown."""
    unknown: list[str] = []
    found = tuple(_walk(program, program.module.entry, 1, unknown))
    return found, tuple(unknown)


def _walk(program: Program, computation: str, times: int, unknown: list[str]) -> Iterator[Launch]:
    scope = program.module.computations[computation]
    for instruction in scope.instructions.values():
        if instruction.opcode == "while":
            yield from _loop(program, instruction, times, unknown)
        elif instruction.branches:
            walks = [tuple(_walk(program, b, times, unknown)) for b in instruction.branches]
            yield from max(walks, key=seconds)
        elif instruction.opcode in ("call", "async-start"):
            for called in (*instruction.called, *filter(None, (instruction.attribute("to_apply"),))):
                yield from _walk(program, called, times, unknown)
        yield from own(program, scope, instruction, times)


def _loop(program: Program, loop: Instruction, times: int, unknown: list[str]) -> Iterator[Launch]:
    """A loop's body. Its condition runs on the device only when XLA does not know how often it turns."""
    trips = loop.trips
    if trips is None:
        unknown.append(loop.name)
        yield from _walk(program, loop.attribute("condition"), times, unknown)
    yield from _walk(program, loop.attribute("body"), times * (1 if trips is None else trips), unknown)


def own(program: Program, scope: Computation, instruction: Instruction, times: int) -> Iterator[Launch]:
    """What one instruction launches itself. Its bytes count for the last of its launches."""
    thunks = [t for t in program.thunks.get(instruction.name, ()) if t.kind not in _FREE]
    for number, thunk in enumerate(thunks, 1):
        moved = _moved(program, scope, instruction, thunk) if number == len(thunks) else Traffic()
        kind = _kind(program.module, instruction, thunk)
        time = moved.total / program.spec.bandwidth + program.spec.launch_seconds
        yield Launch(instruction.name, thunk.entry, kind, times, moved, thunk.shared_bytes, time)


def _moved(program: Program, scope: Computation, instruction: Instruction, thunk: Thunk) -> Traffic:
    known = program.known.get(thunk.entry) if instruction.opcode == "custom-call" else None
    return traffic(program.module, scope, instruction) if known is None else known


def _kind(module: Module, instruction: Instruction, thunk: Thunk) -> Kind:
    if instruction.opcode.startswith(_COLLECTIVES):
        return "collective"
    if thunk.kind in _COPIES:
        return "copy"
    if thunk.kind in _GEMMS:
        return "gemm"
    if thunk.kind not in _KERNELS:
        return "library"
    bodies = [module.computations[name] for name in instruction.called]
    opcodes = {i.opcode for body in bodies for i in body.instructions.values()}
    return "gemm" if opcodes & _CONTRACTIONS else "memory"


def seconds(found: tuple[Launch, ...]) -> float:
    """Modelled time of launches, one after the other."""
    return sum(launch.seconds * launch.times for launch in found)


def merged(found: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """One entry per instruction and kernel, with the times of its launches added up."""
    by_name: dict[tuple[str, str], Launch] = {}
    for launch in found:
        key = (launch.name, launch.entry)
        times = launch.times + (by_name[key].times if key in by_name else 0)
        by_name[key] = replace(launch, times=times)
    return tuple(by_name.values())
