"""Warps of some multiprocessors, instruction by instruction, until all of their CTAs have ended.

Four schedulers a multiprocessor, of which each issues one instruction a cycle; pipes, a load/store unit and a
port to the L2 cache that are busy for as long as an instruction takes of them; scoreboards; barriers; one
queue for DRAM that all multiprocessors share. Compiled by Numba.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.timeline.machine_code import NO_SCOREBOARD
from jstitch.codegen.cuda.timeline.work import PIPES, ROW, Kind

CAUSES = ("memory", "result", "copies", "barrier", "pipe", "queue", "issue")
"""What a warp waits for: data of global memory; another scoreboard; cp.async; the CTA; a busy pipe; the
load/store unit's queue or the L2 port; the scheduler, or its own last instruction.
"""
_MEMORY, _RESULT, _COPIES, _BARRIER, _PIPE, _QUEUE, _ISSUE = range(len(CAUSES))
_KIND, _PIPE_AT, _COST, _STALL, _WRITES, _READS, _WAITS = range(7)
_QUEUED, _DRAM, _L2, _LATENCY, _NUMBER, _COUNT, _ASKED = range(7, len(ROW))
_LOAD, _STORE, _BAR, _COPY, _CLOSE, _WAIT, _PREFETCH = (int(k) for k in Kind if k)
_QUEUE_DEPTH = 64.0  # cycles of work that the load/store unit takes in advance
_PORT_DEPTH = 400.0  # that stores may have before it
_DRAM_DEPTH = 6000.0  # that stores may be behind
_PORT_BYTES = 48.0  # to and from L2, a cycle and multiprocessor
_WRITTEN = 1.15  # times as long as a byte read, for DRAM
_TAKEN = 12.0  # cycles until a register that was read may be written
_SPREAD = 0.2  # cycles between the first CTAs
_QUARTERS, _BOARDS, _BARRIERS, _GROUPS = 4, 6, 16, 8
_CTA_CYCLES = 300.0  # until a CTA's place is taken by the next one
_RESUME = 20.0  # cycles after a barrier


@dataclass(frozen=True)
class Load:
    """Multiprocessors with CTAs. traces: ways of warps and their tables of rows, which of them each warp of
    each sort of CTA follows ([sorts, warps]), and the sort of each CTA in order. bandwidth: DRAM's bytes a
    cycle for all of these multiprocessors.
    """

    ways: tuple[NDArray[np.int64], ...]
    tables: tuple[NDArray[np.float64], ...]
    warps: NDArray[np.int64]
    sorts: NDArray[np.int64]
    multiprocessors: int
    occupancy: int
    bandwidth: float


@dataclass(frozen=True)
class Replayed:
    """cycles: of all. ends: when each multiprocessor had no CTA left. issued: instructions. waits: cycles of
    warps by [instruction, cause]. queue_cycles, pipe_cycles: for which the load/store units and each pipe of
    all multiprocessors are busy.
    """

    cycles: float
    ends: NDArray[np.float64]
    issued: int
    waits: NDArray[np.float64]
    dram_bytes: float
    queue_cycles: float
    pipe_cycles: NDArray[np.float64]


class _Code(NamedTuple):
    """What warps run. `way[starts[n]:starts[n + 1]]` is trace n, `tables[n]` its rows."""

    way: Any
    starts: Any
    tables: Any


class _Warps(NamedTuple):
    """By warp that has a place. at, last: in the way. copied: when its copies so far are there; groups: when
    those of the last eight groups are, of `group` ones.
    """

    trace: Any
    at: Any
    last: Any
    ready: Any
    boards: Any
    from_memory: Any
    copied: Any
    groups: Any
    group: Any
    quarter: Any
    barrier: Any


class _Units(NamedTuple):
    """Until when units are busy, by multiprocessor, quarter and pipe. dram: one element. met, arrived: of the
    barriers of each CTA's place; asked: when what it prefetched last is in L2, and what it
    had before it met last. given: warps so far.
    """

    schedulers: Any
    pipes: Any
    queue: Any
    port: Any
    dram: Any
    arrived: Any
    met: Any
    asked: Any
    given: Any


class _Sums(NamedTuple):
    """What is counted. totals: instructions, bytes of DRAM, cycles of load/store units."""

    waits: Any
    pipe_cycles: Any
    totals: Any
    ends: Any


def replay(load: Load) -> Replayed:
    """Run it."""
    starts = np.concatenate(([0], np.cumsum([len(way) for way in load.ways]))).astype(np.int64)
    code = _Code(np.concatenate(load.ways), starts, np.stack(load.tables))
    slots = load.multiprocessors * load.occupancy
    warps, units = _warps(slots * load.warps.shape[1]), _units(load.multiprocessors, slots)
    sums = _Sums(
        np.zeros((code.tables.shape[1], len(CAUSES))),
        np.zeros(len(PIPES)),
        np.zeros(3),
        np.zeros(load.multiprocessors),
    )
    _run(code, warps, units, sums, load.warps, load.sorts, load.occupancy, load.bandwidth)
    cycles = float(max(sums.ends.max(), units.dram[0]))
    issued, dram, queued = (float(n) for n in sums.totals)
    return Replayed(cycles, sums.ends, int(issued), sums.waits, dram, queued, sums.pipe_cycles)


def _warps(count: int) -> _Warps:
    boards, memory, groups = np.zeros((count, 6)), np.zeros((count, 6), np.bool_), np.zeros((count, _GROUPS))
    trace, at, last, group, quarter = (np.zeros(count, np.int64) for _ in range(5))
    ready, copied = np.zeros(count), np.zeros(count)
    barrier = np.full(count, -1, np.int64)
    return _Warps(trace, at, last, ready, boards, memory, copied, groups, group, quarter, barrier)


def _units(sms: int, slots: int) -> _Units:
    schedulers, pipes = np.zeros((sms, _QUARTERS)), np.zeros((sms, _QUARTERS, len(PIPES)))
    arrived, met = np.zeros((slots, _BARRIERS), np.int64), np.zeros((slots, _BARRIERS))
    given = np.zeros(sms, np.int64)
    queue, port, dram, asked = np.zeros(sms), np.zeros(sms), np.zeros(1), np.zeros((slots, 2))
    return _Units(schedulers, pipes, queue, port, dram, arrived, met, asked, given)


@numba.njit
def _run(code, warps, units, sums, warps_of, sorts, occupancy, bandwidth):  # type: ignore[no-untyped-def]
    """Events in the order of time: a warp that may issue now. One that may not, yet, comes back later."""
    sms, per_cta = len(units.queue), warps_of.shape[1]
    running = np.zeros(sms * occupancy, np.int64)
    heap = [(0.0, np.int64(0)) for _ in range(0)]
    begun = 0
    for n in range(min(sms * occupancy, len(sorts))):
        slot = n % sms * occupancy + n // sms
        running[slot] = per_cta
        _begin(code, warps, units, heap, slot, occupancy, warps_of[sorts[n]], _SPREAD * (37 * n % 1000))
        begun += 1
    while len(heap) > 0:
        now, w = heapq.heappop(heap)
        slot = w // per_cta
        sm = slot // occupancy
        number = code.way[warps.at[w]]
        row = code.tables[warps.trace[w], number]
        since = max(now, warps.ready[w])
        time, cause = _when(row, warps, units, sm, w, since)
        if time > since + 1e-9:
            sums.waits[number, cause] += time - since
            heapq.heappush(heap, (time, w))
            continue
        if row[_KIND] == _PREFETCH:
            _prefetch(row, units, sums, slot, time, bandwidth)
        _issue(row, warps, units, sums, sm, slot, w, time, bandwidth)
        warps.at[w] += 1
        if warps.at[w] < warps.last[w]:
            if row[_KIND] == _BAR:
                _meet(row, warps, units, sums, heap, slot, w, number, time, per_cta)
            else:
                heapq.heappush(heap, (warps.ready[w], w))
            continue
        sums.ends[sm] = max(sums.ends[sm], time)
        running[slot] -= 1
        if running[slot] == 0 and begun < len(sorts):
            running[slot] = per_cta
            of = warps_of[sorts[begun]]
            _begin(code, warps, units, heap, slot, occupancy, of, time + _CTA_CYCLES)
            begun += 1


@numba.njit
def _begin(code, warps, units, heap, slot, occupancy, traces, time):  # type: ignore[no-untyped-def]
    """A CTA in a place, its warps to the quarters in turn."""
    sm = slot // occupancy
    for k in range(len(traces)):
        w = slot * len(traces) + k
        warps.trace[w], warps.ready[w], warps.copied[w], warps.group[w] = traces[k], time, 0.0, 0
        warps.at[w], warps.last[w] = code.starts[traces[k]], code.starts[traces[k] + 1]
        warps.boards[w, :] = 0.0
        warps.quarter[w] = units.given[sm] % _QUARTERS
        units.given[sm] += 1
        heapq.heappush(heap, (time, np.int64(w)))


@numba.njit
def _when(row, warps, units, sm, w, time):  # type: ignore[no-untyped-def]
    """When the warp can issue, not before `time`, and which of CAUSES says so."""
    cause, q, mask = _ISSUE, warps.quarter[w], int(row[_WAITS])
    for b in range(_BOARDS):
        if mask >> b & 1 and warps.boards[w, b] > time:
            time, cause = warps.boards[w, b], _MEMORY if warps.from_memory[w, b] else _RESULT
    if row[_KIND] == _WAIT and warps.group[w] > row[_COUNT]:
        due = warps.groups[w, (warps.group[w] - 1 - int(row[_COUNT])) % _GROUPS]
        if due > time:
            time, cause = due, _COPIES
    if units.schedulers[sm, q] > time:
        time, cause = units.schedulers[sm, q], _ISSUE
    unit = int(row[_PIPE_AT])
    if unit >= 0 and units.pipes[sm, q, unit] > time:
        time, cause = units.pipes[sm, q, unit], _PIPE
    if row[_QUEUED] > 0 and units.queue[sm] > time + _QUEUE_DEPTH:
        time, cause = units.queue[sm] - _QUEUE_DEPTH, _QUEUE
    if row[_KIND] == _STORE and units.port[sm] > time + _PORT_DEPTH:
        time, cause = units.port[sm] - _PORT_DEPTH, _QUEUE
    return time, cause


@numba.njit
def _issue(row, warps, units, sums, sm, slot, w, time, bandwidth):  # type: ignore[no-untyped-def]
    """What the instruction takes of units, and when its result is there."""
    unit, q = int(row[_PIPE_AT]), warps.quarter[w]
    units.schedulers[sm, q] = time + 1.0
    sums.totals[0] += 1
    if unit >= 0:
        units.pipes[sm, q, unit] = time + row[_COST]
        sums.pipe_cycles[unit] += row[_COST]
    done = time + row[_LATENCY]
    if row[_QUEUED] > 0:
        units.queue[sm] = max(units.queue[sm], time) + row[_QUEUED]
        sums.totals[2] += row[_QUEUED]
        done = max(done, units.queue[sm] + row[_LATENCY])
    if row[_ASKED] > 0:
        done = max(done, units.asked[slot, 1] + row[_LATENCY])
    if row[_DRAM] + row[_L2] > 0 and row[_KIND] != _PREFETCH:
        done = max(done, _move(row, units, sums, sm, time, bandwidth) + row[_LATENCY])
    if row[_KIND] == _COPY:
        warps.copied[w] = max(warps.copied[w], done)
    elif row[_KIND] == _CLOSE:
        warps.groups[w, warps.group[w] % _GROUPS] = warps.copied[w]
        warps.group[w] += 1
    elif row[_WRITES] != NO_SCOREBOARD:
        board = int(row[_WRITES])
        warps.boards[w, board] = max(warps.boards[w, board], done)
        warps.from_memory[w, board] = row[_KIND] == _LOAD
    if row[_READS] != NO_SCOREBOARD:
        board = int(row[_READS])
        taken = units.queue[sm] if row[_QUEUED] > 0 else time
        warps.boards[w, board] = max(warps.boards[w, board], taken + _TAKEN)
        warps.from_memory[w, board] = False
    warps.ready[w] = time + max(1.0, row[_STALL])


@numba.njit
def _prefetch(row, units, sums, slot, time, bandwidth):  # type: ignore[no-untyped-def]
    """Bytes from DRAM to L2, for the last of which the CTA's loads wait once it has met."""
    units.dram[0] = max(units.dram[0], time) + row[_DRAM] / bandwidth
    sums.totals[1] += row[_DRAM]
    units.asked[slot, 0] = max(units.asked[slot, 0], units.dram[0] + row[_LATENCY])


@numba.njit
def _move(row, units, sums, sm, time, bandwidth):  # type: ignore[no-untyped-def]
    """Bytes through the L2 port and DRAM; when the last one has passed."""
    units.port[sm] = max(units.port[sm], time) + (row[_DRAM] + row[_L2]) / _PORT_BYTES
    passed = units.port[sm]
    if row[_DRAM] > 0:
        taken = row[_DRAM] / bandwidth * (_WRITTEN if row[_KIND] == _STORE else 1.0)
        units.dram[0] = max(units.dram[0], passed) + taken
        sums.totals[1] += row[_DRAM]
        passed = units.dram[0]
        if row[_KIND] == _STORE and passed > time + _DRAM_DEPTH:
            units.port[sm] = max(units.port[sm], passed - _DRAM_DEPTH)
    return passed


@numba.njit
def _meet(row, warps, units, sums, heap, slot, w, number, time, per_cta):  # type: ignore[no-untyped-def]
    """A warp waits at a barrier; the last one lets all go on."""
    b = int(row[_NUMBER])
    units.arrived[slot, b] += 1
    units.met[slot, b] = max(units.met[slot, b], time)
    warps.barrier[w] = b
    if units.arrived[slot, b] < row[_COUNT]:
        return
    go = units.met[slot, b] + _RESUME
    for other in range(slot * per_cta, (slot + 1) * per_cta):
        if warps.barrier[other] == b:
            sums.waits[number, _BARRIER] += max(go - warps.ready[other], 0.0)
            warps.ready[other] = max(warps.ready[other], go)
            warps.barrier[other] = -1
            heapq.heappush(heap, (warps.ready[other], np.int64(other)))
    units.arrived[slot, b], units.met[slot, b] = 0, 0.0
    units.asked[slot, 1] = units.asked[slot, 0]
