"""The delta-evaluator: what a set of ops saves as one kernel, in seconds (FS-2021 section 5.4).

    f = T_reduced_mem + T_reduced_calls - T_penalty

T_reduced_mem     bytes that XLA's kernels for these ops move, less the pattern's inputs and outputs
T_reduced_calls   launches of those kernels, less our call and its phases
T_penalty         what the kernel does besides: work done again, values kept for a later phase, rows too few
                  for all cores, what XLA has to do because the pattern takes a part of one of its kernels

A `Sketch` is a pattern with its running sums. Ops join it from consumers to producers, each in a few
microseconds, so a search can score thousands of patterns a second. Phases are counted from the pattern's end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from jstitch.ir.graph import Op
from jstitch.passes.base.plan import Score, is_free
from jstitch.passes.cost.cost_model import CostEstimate
from jstitch.passes.explore.tabulate_frame import UNBOUNDED, FrameTable
from jstitch.passes.fuse.pack_patterns import SMALL

SHARED = 0.1  # of a small pattern's call and phases, when others are packed with it


@dataclass(slots=True, eq=False)
class Sketch:
    """A set of ops and its sums. A search shares sketches: `Scorer.added` and `joined` make new ones.

    phases_of: op -> the phases that compute it, as bits; bit 0 is the last phase. reads: value from outside
    -> phases that read it. leaves: values that are read outside. last: the first place outside that waits for
    the pattern. inputs, outputs, kept: bytes read, written, and written for a later phase and read there.
    pending: those of inputs whose makers could still join.
    xla: XLA's kernels that end in the pattern; xla_most: cycles of its ops in all of XLA's kernels. cut: what
    XLA does besides where the pattern begins inside one of its kernels. freed: what it need not do where the
    pattern ends inside one; reread: bytes that it reads there instead.
    """

    phases_of: dict[int, int] = field(default_factory=dict)
    reads: dict[int, int] = field(default_factory=dict)
    leaves: tuple[int, ...] = ()
    phases: int = 0
    rows: int = UNBOUNDED
    last: int = UNBOUNDED
    inputs: float = 0.0
    pending: float = 0.0
    outputs: float = 0.0
    kept: float = 0.0
    cycles: float = 0.0
    xla_launches: int = 0
    xla_bytes: float = 0.0
    xla_cycles: float = 0.0
    xla_most: float = 0.0
    xla_seconds: float = 0.0
    cut_launches: int = 0
    cut_bytes: float = 0.0
    cut_cycles: float = 0.0
    cut_seconds: float = 0.0
    freed_reads: float = 0.0
    freed_cycles: float = 0.0
    reread: float = 0.0
    seconds: float = -math.inf

    def copy(self) -> Sketch:
        return Sketch(
            dict(self.phases_of), dict(self.reads), self.leaves, self.phases, self.rows, self.last,
            self.inputs, self.pending, self.outputs, self.kept, self.cycles,
            self.xla_launches, self.xla_bytes, self.xla_cycles, self.xla_most, self.xla_seconds,
            self.cut_launches, self.cut_bytes, self.cut_cycles, self.cut_seconds,
            self.freed_reads, self.freed_cycles, self.reread,
        )  # fmt: skip


class Scorer:
    """Scores sets of ops of one frame, on the target that its tables are for."""

    def __init__(self, table: FrameTable) -> None:
        self.table, self.machine = table, table.profile.machine
        self._times: dict[tuple[float, float, float], float] = {}

    def score(self, ops: Iterable[Op]) -> Score:
        """Of any ops that patterns may hold."""
        return self.parts(self.sketch(self.table.place[op] for op in ops if not is_free(op)))

    def sketch(self, places: Iterable[int]) -> Sketch:
        """The sketch of a set of ops."""
        found = Sketch()
        for place in sorted(places, reverse=True):
            self._add(found, place)
        return self._rated(found)

    def added(self, sketch: Sketch | None, places: Iterable[int]) -> Sketch:
        """The sketch with more ops, the last one first; none of them reads from an op of the sketch."""
        found = Sketch() if sketch is None else sketch.copy()
        for place in places:
            self._add(found, place)
        return self._rated(found)

    def parts(self, sketch: Sketch) -> Score:
        """The three terms of the score."""
        machine, s = self.machine, sketch
        total = self._saved(s)
        moved = s.inputs + s.outputs
        memory = s.xla_bytes / machine.bandwidth(s.xla_bytes) - moved / machine.bandwidth(moved)
        calls = (s.xla_launches - machine.call - s.phases * machine.phase) * machine.launch
        return Score(memory, calls, memory + calls - total)

    # -- one op more ------------------------------------------------------------------------------------

    def _add(self, s: Sketch, place: int) -> None:
        t = self.table
        phases, kept = self._phases(s, place)
        s.phases_of[place] = phases
        s.phases = max(s.phases, phases.bit_length())
        s.rows = min(s.rows, t.rows[place])
        s.kept += kept
        s.cycles += t.work[place] * phases.bit_count()
        self._add_xla(s, place)
        for value in t.results[place]:
            self._make(s, value)
        for value in t.operands[place]:
            self._read(s, value, phases)

    def _phases(self, s: Sketch, place: int) -> tuple[int, float]:
        """The phases that compute an op, from its users'; and bytes of its results that wait in memory."""
        t = self.table
        with_user = before = waiting = 0
        nbytes = 0.0
        for value in t.results[place]:
            cheap = t.cheap[value]
            for user, far in t.users[value]:
                theirs = s.phases_of.get(user)
                if theirs is None:
                    continue
                if far and not cheap:
                    before |= 1 << theirs.bit_length()
                    waiting |= theirs
                else:
                    with_user |= theirs
            nbytes += t.nbytes[value]
            if not cheap and with_user | before:
                first = 1 << ((with_user | before).bit_length() - 1)
                waiting |= with_user & ~first
                with_user, before = first, 0
        phases = with_user | before or 1
        kept = nbytes * waiting.bit_count() + nbytes if waiting else 0.0
        if t.cross[place]:
            kept += 2.0 * nbytes * t.partials[place]
            phases = 1 << phases.bit_length()
        return phases, kept

    def _make(self, s: Sketch, value: int) -> None:
        """A value is made inside: not read from outside any more, and written if somebody there wants it."""
        t = self.table
        read = s.reads.pop(value, 0)
        if read:
            s.inputs -= t.nbytes[value] * read.bit_count()
            s.pending -= t.nbytes[value] * read.bit_count()
            self._cut(s, value, -1)
        outside = [u.op for u in t.users[value] if u.op not in s.phases_of]
        if outside or t.returned[value]:
            s.leaves += (value,)
            s.outputs += t.nbytes[value]
            s.last = min(s.last, min(outside, default=UNBOUNDED))
            self._relieve(s, value)

    def _read(self, s: Sketch, value: int, phases: int) -> None:
        t = self.table
        known = s.reads.get(value, 0)
        if not known:
            self._cut(s, value, 1)
        s.reads[value] = known | phases
        nbytes = t.nbytes[value] * (phases & ~known).bit_count()
        s.inputs += nbytes
        if t.joins[value]:
            s.pending += nbytes

    def _cut(self, s: Sketch, value: int, sign: int) -> None:
        kernel = self.table.cut(value)
        if kernel is not None:
            s.cut_launches += sign
            s.cut_bytes += sign * kernel.nbytes
            s.cut_cycles += sign * kernel.cycles
            s.cut_seconds += sign * kernel.seconds

    def _relieve(self, s: Sketch, value: int) -> None:
        """XLA's kernel that reads a value from the pattern need not compute it."""
        if self.table.cut(value) is not None:
            kernel = self.table.whole(value)
            s.freed_reads += kernel.nbytes - self.table.nbytes[value]
            s.freed_cycles += kernel.cycles
            s.reread += self.table.nbytes[value]

    # -- two patterns -----------------------------------------------------------------------------------

    def joined(self, a: Sketch, b: Sketch) -> Sketch:
        """Both patterns as one; sums of what they share are those of `a`."""
        if len(a.phases_of) < len(b.phases_of):
            a, b = b, a
        new = b.phases_of.keys() - a.phases_of.keys()
        if not new:
            return a
        found = a.copy()
        self._join_ops(found, b, new)
        self._join_values(found, a, b)
        return self._rated(found)

    def _add_xla(self, s: Sketch, place: int) -> None:
        """What XLA does for the op's values."""
        s.xla_most += self.table.xla_all[place]
        for kernel in self.table.xla[place]:
            s.xla_launches += 1
            s.xla_bytes += kernel.nbytes
            s.xla_cycles += kernel.cycles
            s.xla_seconds += kernel.seconds

    def _join_ops(self, s: Sketch, b: Sketch, new: set[int]) -> None:
        t = self.table
        for place, phases in b.phases_of.items():
            s.phases_of[place] = s.phases_of.get(place, 0) | phases
        s.phases, s.rows = max(s.phases, b.phases), min(s.rows, b.rows)
        share = len(new) / len(b.phases_of)
        s.kept += b.kept * share
        if share == 1:
            s.cycles += b.cycles
        for place in new:
            if share < 1:
                s.cycles += t.work[place] * b.phases_of[place].bit_count()
            self._add_xla(s, place)

    def _join_values(self, s: Sketch, a: Sketch, b: Sketch) -> None:
        t, inside = self.table, s.phases_of
        for value, phases in b.reads.items():
            s.reads[value] = s.reads.get(value, 0) | phases
        s.reads = {v: phases for v, phases in s.reads.items() if t.maker[v] not in inside}
        s.inputs = sum(t.nbytes[v] * phases.bit_count() for v, phases in s.reads.items())
        s.pending = sum(t.nbytes[v] * phases.bit_count() for v, phases in s.reads.items() if t.joins[v])
        s.cut_launches, s.cut_bytes, s.cut_cycles, s.cut_seconds = 0, 0.0, 0.0, 0.0
        s.freed_reads, s.freed_cycles, s.reread = 0.0, 0.0, 0.0
        for value in s.reads:
            self._cut(s, value, 1)
        leaves, s.leaves, s.outputs, s.last = dict.fromkeys((*a.leaves, *b.leaves)), (), 0.0, UNBOUNDED
        for value in leaves:
            self._make(s, value)

    # -- the sum ----------------------------------------------------------------------------------------

    def _rated(self, s: Sketch) -> Sketch:
        s.seconds = self._saved(s)
        return s

    def xla_seconds(self, s: Sketch) -> float:
        """What XLA spends on these ops, less what the pattern makes it spend on others."""
        nbytes = min(s.freed_reads, s.inputs + s.cut_bytes) - s.reread
        cycles = min(s.freed_cycles, max(0.0, s.xla_most - s.xla_cycles + s.cut_cycles))
        return s.xla_seconds - s.cut_seconds + self._time(0.0, nbytes, cycles)

    def potential(self, s: Sketch) -> float:
        """What the pattern would save if all that it reads were made inside for nothing."""
        return s.seconds + s.cut_seconds + s.pending / self.machine.bandwidth(s.inputs)

    def kernel_seconds(self, s: Sketch) -> float:
        """Of the pattern as one kernel."""
        return self._time(*self._ours(s))

    def _saved(self, s: Sketch) -> float:
        """XLA's time for these ops less ours. A small pattern is packed and pays a share of its call."""
        launches, nbytes, cycles = self._ours(s)
        seconds = self._time(launches, nbytes, cycles)
        if seconds < SMALL:
            seconds -= (1 - SHARED) * launches * self.machine.launch
        return self.xla_seconds(s) - seconds

    def _time(self, launches: float, nbytes: float, cycles: float) -> float:
        """Seconds of an estimate: much the same ones come up in every layer of a model."""
        key = (launches, nbytes, cycles)
        if key not in self._times:
            self._times[key] = CostEstimate(*key).seconds(self.machine)
        return self._times[key]

    def _ours(self, s: Sketch) -> tuple[float, float, float]:
        """Launches, bytes and cycles of the kernel."""
        machine = self.machine
        serial = machine.cores if s.rows < machine.cores and s.cycles >= machine.serial_work else 1.0
        moved = (s.inputs + s.outputs + s.kept) * (1 + (serial - 1) / 2)
        return machine.call + s.phases * machine.phase, moved, s.cycles * serial
