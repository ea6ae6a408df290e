"""A profile in numbers: time in kernels of ours, with their scopes, lines, bytes, flops, and in XLA's own.

summarize([Path("folder/plugins/profile/.../host.xplane.pb")])   ->   TraceSummary

All of it is in the profile: what a kernel computes, and moves, its call says in the program's HLO.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from jstitch.inspection.json_fields import json_fields
from jstitch.inspection.profile_file import Instruction, Profile, Program, Ran, read_profile

Printed = Any  # table.Printed: rich is only for printing
_HOLDERS = frozenset(("while", "conditional", "call"))
"""Instructions that run others, which are in the profile themselves."""
_HEADS = ("kernel", "calls", "ms", "us a call", "of time", "MB", "GB/s", "Mflop", "Gflop/s")
_MOST = 5  # rows of XLA's own


@dataclass(frozen=True)
class KernelTime:
    """A stitched kernel in one program, whose name others may have, too.

    calls: of it. seconds: of all of them. launches: a call's, on a GPU.
    nbytes: read and written by a call. flops: of a call. scope: the names around all of its ops. lines: of
    the user. ops: what it computes, names.
    """

    kernel: str
    program: str
    calls: int
    seconds: float
    launches: int
    nbytes: int
    flops: int
    scope: str
    lines: tuple[str, ...]
    ops: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Seconds of a call."""
        return self.seconds / self.calls

    def rate(self, amount: int) -> float | None:
        """So much of each call, in a second; None for calls too short to be timed."""
        return amount / self.mean if self.seconds else None


@dataclass(frozen=True)
class OtherTime:
    """An instruction that XLA made a kernel of, or runs itself. program: "" where the profile lacks it."""

    name: str
    program: str
    opcode: str
    calls: int
    seconds: float
    scope: str


@dataclass(frozen=True)
class TraceSummary:
    """Largest first. files: that were read."""

    files: tuple[str, ...]
    kernels: tuple[KernelTime, ...]
    others: tuple[OtherTime, ...]

    @property
    def stitched_seconds(self) -> float:
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def xla_seconds(self) -> float:
        return sum(other.seconds for other in self.others)

    @property
    def seconds(self) -> float:
        return self.stitched_seconds + self.xla_seconds

    def to_json(self) -> dict[str, Any]:
        """All fields and totals as JSON has them; seconds, bytes, operations.

        {"files": [path], "stitched_seconds", "xla_seconds",
         "kernels": [{"kernel", "program", "calls", "seconds", "launches", "nbytes", "flops", "scope",
                      "lines": [line], "ops": [name], "mean_seconds",
                      "bytes_per_second", "flops_per_second"}],
         "others": [{"name", "program", "opcode", "calls", "seconds", "scope"}]}
        """
        totals = {"stitched_seconds": self.stitched_seconds, "xla_seconds": self.xla_seconds}
        return {**json_fields(self), **totals, "kernels": [_kernel_json(k) for k in self.kernels]}

    def __rich__(self) -> Printed:
        from jstitch.inspection import table

        return table.build(self._title(), _HEADS, self._rows())

    def __str__(self) -> str:
        return "\n".join([str(self.__rich__()), *self.notes()])

    def notes(self) -> Iterator[str]:
        """What each kernel is, in lines; and what the profile lacks."""
        for kernel in self.kernels:
            first, *more = kernel.lines or ("no source line",)
            others = f" and {len(more)} more line{'s' if len(more) > 1 else ''}" if more else ""
            yield f"{kernel.kernel}: {kernel.scope or 'no scope'}, {_short(first)}{others}"
            yield f"  {', '.join(name.rpartition('.')[2] for name in kernel.ops)}"
        lacking = sum(other.seconds for other in self.others if not other.program)
        if lacking:
            yield (
                f"{lacking * 1e3:,.2f} ms are of programs that the profile does not hold: "
                "ProfileOptions.enable_hlo_proto keeps them"
            )

    def _title(self) -> str:
        return (
            f"{self.seconds * 1e3:,.2f} ms: {self.stitched_seconds * 1e3:,.2f} in stitched kernels,"
            f" {self.xla_seconds * 1e3:,.2f} in XLA's own"
        )

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for k in self.kernels:
            numbers = _scaled(k.nbytes, 1e6), _scaled(k.rate(k.nbytes), 1e9)
            work = _scaled(k.flops, 1e6), _scaled(k.rate(k.flops), 1e9)
            yield (k.kernel, *self._times(k.calls, k.seconds), *numbers, *work)
        for other in self.others[:_MOST]:
            yield (f"XLA: {other.name}", *self._times(other.calls, other.seconds), *[""] * 4)
        rest = self.others[_MOST:]
        if rest:
            calls, seconds = sum(o.calls for o in rest), sum(o.seconds for o in rest)
            yield (f"XLA: {len(rest)} others", *self._times(calls, seconds), *[""] * 4)

    def _times(self, calls: int, seconds: float) -> tuple[str, ...]:
        share = seconds / self.seconds if self.seconds else 0.0
        return f"{calls:,}", f"{seconds * 1e3:,.2f}", f"{seconds / calls * 1e6:,.1f}", f"{share:.1%}"


def _scaled(value: float | None, unit: float) -> str:
    return "" if value is None else f"{value / unit:,.2f}"


def _short(line: str) -> str:
    """Without the folder."""
    path, colon, rest = line.partition(":")
    return PurePath(path).name + colon + rest


def _kernel_json(kernel: KernelTime) -> dict[str, Any]:
    rates = {
        "mean_seconds": kernel.mean,
        "bytes_per_second": kernel.rate(kernel.nbytes),
        "flops_per_second": kernel.rate(kernel.flops),
    }
    return {**json_fields(kernel), **rates}


# -- making one -------------------------------------------------------------------------------------------


def summarize(files: Sequence[Path]) -> TraceSummary:
    """Of all hosts' files together. Raises ParseError for a file that is no profile, OSError."""
    kernels: dict[tuple[str, int, str], list[tuple[Instruction, float]]] = defaultdict(list)
    others: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for path in files:
        for ran, found, seconds in _timed(read_profile(path)):
            if found is None:
                others[ran.instruction or ran.name, "", "", ""].append(seconds)
                continue
            program, what = found
            if "kernel" in what.identity:
                kernels[program.name, program.number, what.identity["kernel"]].append((what, seconds))
            else:
                others[what.name, program.name, what.opcode, what.scope].append(seconds)
    return TraceSummary(
        tuple(map(str, files)),
        _largest(_kernel(program, kernel, times) for (program, _, kernel), times in kernels.items()),
        _largest(OtherTime(n, p, o, len(t), sum(t), s) for (n, p, o, s), t in others.items()),
    )


def _largest(times: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(times, key=lambda time: -time.seconds))


def _kernel(program: str, kernel: str, times: Sequence[tuple[Instruction, float]]) -> KernelTime:
    """times: of each launch. XLA may have made several instructions of one call."""
    first, said = times[0][0], times[0][0].identity
    launches = int(said["launches"])
    calls = max(1, round(len(times) / launches))
    return KernelTime(
        kernel,
        program,
        calls,
        sum(seconds for _, seconds in times),
        launches,
        round(sum(int(what.identity["bytes"]) for what, _ in times) / calls),
        int(said["flops"]),
        first.scope.rpartition("/")[0],
        first.lines,
        tuple(said["ops"].split(", ")),
    )


def _timed(profile: Profile) -> Iterator[tuple[Ran, tuple[Program, Instruction] | None, float]]:
    """All that ran, what it is, and for how long itself: without what an instruction ran of others."""
    runs: dict[object, list[tuple[Ran, tuple[Program, Instruction] | None]]] = defaultdict(list)
    for ran in profile.ran:
        runs[ran.run].append((ran, profile.instruction(ran)))
    for events in runs.values():
        events.sort(key=lambda event: (event[0].start, -event[0].seconds))
        order = [ran for ran, _ in events]
        for n, (ran, found) in enumerate(events):
            holds = found is not None and found[1].opcode in _HOLDERS
            yield ran, found, ran.seconds - (_held(order, n) if holds else 0.0)


def _held(events: Sequence[Ran], number: int) -> float:
    """Of an event, the seconds in which others ran. events: in the order of their starts."""
    holder, total = events[number], 0.0
    until = holder.start
    for n in range(number + 1, len(events)):
        inner = events[n]
        if inner.start >= holder.end:
            break
        start, end = max(inner.start, until), min(inner.end, holder.end)
        total += max(0.0, end - start)
        until = max(until, end)
    return total
