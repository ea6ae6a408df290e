"""Runs one entry of a PTX text on NumPy arrays, and counts what it does.

run_ptx(text, "k", grid=2, block=64, shared_bytes=0, arguments=[x, y])
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.ptx import carry, compare, convert, floating, integer
from jstitch.codegen.cuda.ptx.batch import Batch
from jstitch.codegen.cuda.ptx.block import Program, build
from jstitch.codegen.cuda.ptx.error import PtxError
from jstitch.codegen.cuda.ptx.flatten import (
    FIRST_VARIABLE,
    LOCAL_BASE,
    PARAMETER_BASE,
    SHARED_BASE,
    WINDOW,
    flatten,
)
from jstitch.codegen.cuda.ptx.frame import Frame
from jstitch.codegen.cuda.ptx.memory import Memory, Region, Tally
from jstitch.codegen.cuda.ptx.order import Clock, Order
from jstitch.codegen.cuda.ptx.parse import parse
from jstitch.codegen.cuda.ptx.shadow import Shadow

FORMS = (carry, compare, convert, floating, integer)  # imported for the forms that they register
BATCH_LANES = 1 << 14
BATCH_BYTES = 1 << 24  # of shared and of local memory


@dataclass(frozen=True)
class Counts:
    """What a launch did. Bytes are of the arguments only.

    instructions: summed over threads. read_bytes, written_bytes: every thread's every access.
    accesses: loads and stores of threads; vector_accesses: those of 16 bytes or more.
    distinct_read, distinct_written: for each argument, the bytes touched at least once (an argument given
    twice counts as the first one). barriers: completed ones, of all CTAs.
    """

    instructions: int
    read_bytes: int
    written_bytes: int
    accesses: int
    vector_accesses: int
    barriers: int
    distinct_read: tuple[int, ...]
    distinct_written: tuple[int, ...]


@dataclass(frozen=True)
class Last:
    """The last CTAs of a launch, for arguments of which only the ends are there.

    ctas: how many. missing: bytes of each argument before its array.
    """

    ctas: int
    missing: Sequence[int]


@functools.lru_cache(maxsize=64)
def load_program(text: str, entry: str) -> Program:
    """The entry of a PTX text, ready to run. Raises PtxError for what is not understood."""
    return build(flatten(parse(text), entry))


def run_ptx(
    text: str,
    entry: str,
    grid: int,
    block: int,
    shared_bytes: int,
    arguments: Sequence[NDArray[Any]],
    last: Last | None = None,
) -> Counts:
    """Run grid x block threads; `arguments`: contiguous arrays, one per pointer parameter, changed in place.

    The same memory may be given twice. last: run no other CTAs. Raises PtxError for any defect: a wild,
    misaligned or racing access, a read of shared memory that nobody wrote, a barrier or shuffle that threads
    miss, an unknown instruction.
    """
    program = load_program(text, entry)
    _check_launch(program, block, arguments)
    regions = _arguments(arguments)
    windows = {**{r.base >> WINDOW: r for r in regions}, **_variables(program)}
    missing = last.missing if last else [0] * len(regions)
    addresses = [r.base - before for r, before in zip(regions, missing, strict=True)]
    parameters = _parameter_region(addresses)
    clock, tally, steps, barriers = Clock(), Tally(), 0, 0
    size = program.flat.shared_bytes + shared_bytes
    per_batch = max(
        1, min(BATCH_LANES // block, BATCH_BYTES // max(size, program.flat.local_bytes * block, 1))
    )
    with np.errstate(all="ignore"):
        for first in range(grid - last.ctas if last else 0, grid, per_batch):
            ctas = min(per_batch, grid - first)
            order = Order(clock, block, ctas, first * block)
            shared, local = _shared(size, ctas, block), _local(program, ctas * block)
            memory = Memory(windows, shared, local, parameters, tally)
            lanes = np.arange(ctas * block)
            frame = Frame(lanes, lanes + first * block, order, [], memory, grid)
            batch = Batch(program, frame, _parameters(program, addresses))
            batch.run()
            steps, barriers = steps + batch.steps, barriers + batch.barriers
    return _counts(regions, tally, steps, barriers)


def argument_regions(sizes: Sequence[int]) -> list[Region]:
    """Arguments of these many bytes, without any: for those who only ask where accesses go."""
    nothing = np.zeros(0, np.uint8)
    return [
        Region(f"buffer {n}", (n + 1) << WINDOW, size, nothing, None, counted=True)
        for n, size in enumerate(sizes)
    ]


def one_cta(
    program: Program, regions: Sequence[Region], shared_bytes: int, block: int
) -> tuple[Memory, dict[int, NDArray[Any]]]:
    """Memory of one CTA, whose accesses nobody checks for races, and its parameters."""
    windows = {**{r.base >> WINDOW: r for r in regions}, **_variables(program)}
    addresses = [r.base for r in regions]
    shared = replace(_shared(program.flat.shared_bytes + shared_bytes, 1, block), shadow=None)
    memory = Memory(windows, shared, _local(program, block), _parameter_region(addresses))
    return memory, _parameters(program, addresses)


def _check_launch(program: Program, block: int, arguments: Sequence[NDArray[Any]]) -> None:
    entry = program.flat.entry
    if len(arguments) != len(entry.formals):
        raise PtxError(f"{entry.name}: expected {len(entry.formals)} arguments, found {len(arguments)}")
    if len(arguments) >= FIRST_VARIABLE:
        raise PtxError(
            f"{entry.name}: expected fewer than {FIRST_VARIABLE} arguments, found {len(arguments)}"
        )
    if block != entry.limits.get("reqntid", block) or block > entry.limits.get("maxntid", 1024):
        raise PtxError(f"{entry.name}: expected a block of {entry.limits or 'at most 1024'}, found {block}")
    for number, array in enumerate(arguments):
        if not array.flags.c_contiguous:
            raise PtxError(f"{entry.name}: argument {number} is not contiguous")


def _arguments(arguments: Sequence[NDArray[Any]]) -> list[Region]:
    """One region per argument; the same memory is the same region."""
    known: dict[tuple[int, int], Region] = {}
    regions = []
    for number, array in enumerate(arguments):
        data = array.reshape(-1).view(np.uint8)
        key = (array.ctypes.data if len(data) else -number, len(data))
        if key not in known:
            base, shadow = (number + 1) << WINDOW, Shadow(len(data), False, False)
            writable = bool(array.flags.writeable)
            known[key] = Region(
                f"buffer {number}", base, len(data), data, shadow, writable=writable, counted=True
            )
        regions.append(known[key])
    return regions


def _variables(program: Program) -> dict[int, Region]:
    windows = {}
    for window, name in program.flat.windows.items():
        variable = program.flat.module.variables[name]
        data = np.frombuffer(variable.data or b"", np.uint8).copy()
        constant = variable.space == "const"
        windows[window] = Region(name, window << WINDOW, len(data), data, None, writable=not constant)
    return windows


def _shared(size: int, ctas: int, block: int) -> Region:
    stride = -(-size // 32) * 32
    data = np.full(ctas * stride, 0xCD, np.uint8)
    units = np.arange(ctas * block) // block
    shadow = Shadow(ctas * stride, True, True)
    return Region("shared memory", SHARED_BASE, size, data, shadow, unit_of=units, stride=stride)


def _local(program: Program, lanes: int) -> Region:
    size = program.flat.local_bytes
    stride = -(-size // 32) * 32
    data = np.full(lanes * stride, 0xCD, np.uint8)
    return Region("local memory", LOCAL_BASE, size, data, None, unit_of=np.arange(lanes), stride=stride)


def _parameters(program: Program, addresses: Sequence[int]) -> dict[int, NDArray[Any]]:
    numbers = (program.operands.numbers[f"{formal}+0"] for formal in program.flat.entry.formals)
    return {n: np.array([address], np.uint64) for n, address in zip(numbers, addresses, strict=True)}


def _parameter_region(addresses: Sequence[int]) -> Region:
    data = np.array(addresses, np.uint64).view(np.uint8)
    return Region("parameters", PARAMETER_BASE, len(data), data, None, writable=False)


def _counts(regions: list[Region], tally: Tally, steps: int, barriers: int) -> Counts:
    seen: set[int] = set()
    read, written = [], []
    for region in regions:
        first = region.base not in seen
        seen.add(region.base)
        pair = region.shadow.distinct() if first and region.shadow is not None else (0, 0)
        read.append(pair[0])
        written.append(pair[1])
    return Counts(
        steps,
        tally.read_bytes,
        tally.written_bytes,
        tally.accesses,
        tally.vector_accesses,
        barriers,
        tuple(read),
        tuple(written),
    )
