"""Run the text of a CUDA kernel on NumPy arrays, in lockstep, and check what a GPU would not tell.

    counts = simulate(source, [[x, y]])      # one list of arrays for each launch; y is written in place

Threads are lanes of arrays; a batch of CTAs runs at once. Errors (SimulationError, with line, CTA, thread,
buffer and index): accesses out of bounds or misaligned, stores to read-only parameters, races in shared and
global memory, barriers and shuffles under divergence, values that were never assigned, indices that overflow.
Lockstep alone would hide a missing barrier; vector clocks (simulate_order.py) do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from jstitch.codegen.cuda.simulate_calls import Calls, smallest_shared_element
from jstitch.codegen.cuda.simulate_cells import Addresses, Cell
from jstitch.codegen.cuda.simulate_functions import DTYPES
from jstitch.codegen.cuda.simulate_global import GlobalMemory, total
from jstitch.codegen.cuda.simulate_lanes import Array, Lanes
from jstitch.codegen.cuda.simulate_order import Order
from jstitch.codegen.cuda.simulate_scopes import escaping_names
from jstitch.codegen.cuda.simulate_shared import Arena, stride
from jstitch.codegen.cuda.simulate_state import State
from jstitch.codegen.cuda.simulate_text import Walker
from jstitch.codegen.cuda.simulate_threads import Threads
from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.codegen.launch_ir import Parameter
from jstitch.codegen.parse_text import functions_of

LANES = 16384
SHADOW_ELEMENTS = 1 << 24

_functions = lru_cache(maxsize=64)(functions_of)


@dataclass(frozen=True)
class LaunchCounts:
    """What one launch did. Bytes and vector accesses are of global memory, once for each access of a thread.

    distinct_read, distinct_written: elements, by parameter. barriers, team_barriers, warp_barriers: one for
    each CTA, team or warp that waited. shared_bytes: the arena up to the last byte touched.
    """

    function: str
    bytes_read: int
    bytes_written: int
    vector_accesses: int
    distinct_read: Mapping[str, int]
    distinct_written: Mapping[str, int]
    barriers: int
    team_barriers: int
    warp_barriers: int
    shared_bytes: int


@dataclass(frozen=True)
class Counts:
    """All launches of a source, in order."""

    launches: tuple[LaunchCounts, ...]

    @property
    def bytes_read(self) -> int:
        return sum(launch.bytes_read for launch in self.launches)

    @property
    def bytes_written(self) -> int:
        return sum(launch.bytes_written for launch in self.launches)


def simulate(
    source: CudaSource, arguments: Mapping[int, Sequence[Array]] | Sequence[Sequence[Array]]
) -> Counts:
    """Run every launch in order; arguments[k]: the arrays of launch k's parameters, written in place.

    Arrays are of rank 1, contiguous, of the parameter's dtype and size; two parameters of mode 'update' may
    be given one array, and count as the later one. Raises SimulationError, and
    ValueError for arrays that are not the launch's.
    """
    return Counts(
        tuple(simulate_launch(source, launch, arguments[k]) for k, launch in enumerate(source.launches))
    )


def simulate_launch(source: CudaSource, launch: Launch, arrays: Sequence[Array]) -> LaunchCounts:
    """Run one launch on its parameters' arrays. Raises as `simulate` does."""
    function = _functions(source.text)[launch.function]
    _check_arrays(launch, arrays)
    slots = _slots(launch, granule := smallest_shared_element(source.text))
    order = Order(slots, warps := -(-launch.block // 32))
    memories = _memories(launch, arrays, order)
    arena = Arena(launch.shared_bytes, slots, warps, granule, order)
    threads = Threads(order)
    lines, escaping = source.text.splitlines(), escaping_names(function)
    names = [a.arg for a in function.args.args]
    given = {n: Cell(Addresses((m,), np.asarray(0))) for n, m in zip(names, memories, strict=True)}
    with np.errstate(all="ignore"):
        for first in range(0, launch.grid, slots):
            order.start_batch()
            lanes = Lanes.of(np.arange(first, min(first + slots, launch.grid)), launch.block)
            state = State(launch.function, lines, lanes, given, escaping=escaping)
            Walker(state, Calls(state, arena, threads), launch.index_bits, launch.grid).run(function.body)
    return _counts(launch, memories, threads, arena)


def _slots(launch: Launch, granule: int) -> int:
    """CTAs of a batch: enough lanes for NumPy to be fast, few enough for the arena's shadows."""
    shadows = stride(launch.shared_bytes) // granule * -(-launch.block // 32)
    return max(1, min(LANES // launch.block, launch.grid, SHADOW_ELEMENTS // max(shadows, 1)))


def _check_arrays(launch: Launch, arrays: Sequence[Array]) -> None:
    if len(arrays) != len(launch.parameters):
        raise ValueError(
            f"{launch.function} has {len(launch.parameters)} parameters, found {len(arrays)} arrays"
        )
    for parameter, array in zip(launch.parameters, arrays, strict=True):
        _check_array(parameter, array)
    _check_overlap(launch, arrays)


def _check_overlap(launch: Launch, arrays: Sequence[Array]) -> None:
    """Memory that is written belongs to one parameter, or to several that update all of it."""
    cover: int | None = None  # of those before, the one that ends last
    for k in sorted((k for k, a in enumerate(arrays) if a.size), key=lambda k: _address(arrays[k])):
        if cover is not None and _address(arrays[k]) < _end(arrays[cover]):
            one, other = launch.parameters[cover], launch.parameters[k]
            same = one.mode == other.mode == "update" and _address(arrays[cover]) == _address(arrays[k])
            if not same and (one.mode != "read" or other.mode != "read"):
                raise ValueError(f"{one.name} and {other.name} share memory that is written")
        if cover is None or _end(arrays[k]) > _end(arrays[cover]):
            cover = k


def _end(array: Array) -> int:
    return _address(array) + array.nbytes


def _address(array: Array) -> int:
    return array.ctypes.data


def _memories(launch: Launch, arrays: Sequence[Array], order: Order) -> list[GlobalMemory]:
    """One for each parameter; parameters that update one buffer share the last one's."""
    found = [GlobalMemory(p, a, order) for p, a in zip(launch.parameters, arrays, strict=True)]
    updated = {_address(m.data): m for m in found if m.parameter.mode == "update" and m.data.size}
    return [updated.get(_address(m.data), m) if m.parameter.mode == "update" else m for m in found]


def _check_array(parameter: Parameter, array: Array) -> None:
    dtype = DTYPES[parameter.dtype].numpy
    if array.dtype != dtype or array.shape != (parameter.elements,) or not array.flags.c_contiguous:
        raise ValueError(
            f"{parameter.name} is {dtype}[{parameter.elements}], contiguous; found {array.dtype}{array.shape}"
        )
    if parameter.mode != "read" and not array.flags.writeable:
        raise ValueError(f"{parameter.name} is written, and its array is read-only")


def _counts(launch: Launch, memories: Sequence[GlobalMemory], threads: Threads, arena: Arena) -> LaunchCounts:
    alone = {m.name: m for m in memories}
    sums = total([*alone.values()])
    return LaunchCounts(
        launch.function,
        sums["bytes_read"],
        sums["bytes_written"],
        sums["vectors"],
        {name: m.distinct_read for name, m in alone.items()},
        {name: m.distinct_written for name, m in alone.items()},
        threads.barriers,
        threads.team_barriers,
        threads.warp_barriers,
        arena.used,
    )
