"""A saved plan: which ops of a program are which kernels, as data, in TOML that `jstitch plan --save` writes.

    PlanFile     ::= versions, target, options  calls: PinnedCall*
    PinnedCall   ::= name, two fingerprints, order  kernels: PinnedKernel*  left: LeftOps*
    PinnedKernel ::= id, origin, schedule, costs  ops: Line*
    Line         ::= a source line  ops: (what, hash, type)*        "multiply.4f1a f32[512,768]"

Ops are known by these texts and by their order: passes renumber values, and lines move.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from jstitch.errors import ParseError
from jstitch.template import Template, parse_template

FORMAT = 1
LARGEST = 1 << 26  # bytes
XLA = -1  # who computes an op again, where that is no kernel
HINT = "save it again: jstitch plan PROGRAM --save FILE"
T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """Ops of one kernel that come from one source line, in program order."""

    at: str
    ops: tuple[str, ...]


@dataclass(frozen=True)
class Share:
    """launches, and megabytes that they move, by the cost model."""

    launches: int
    mb: float


@dataclass(frozen=True)
class PinnedKernel:
    """id: of its ops, their types, attributes and edges; the same wherever they stand. origin: the pass that
    chose the ops. schedule: its template, where that makes the kernel again; else lowering chooses. loops: a
    hash of the kernel's loops. ops: those that it computes again among them.
    """

    name: str
    id: str
    origin: str
    loops: str
    schemes: tuple[str, ...]
    xla: Share
    ours: Share
    schedule: tuple[str, ...]
    ops: tuple[Line, ...]

    @property
    def template(self) -> Template | None:
        return parse_template("\n".join(self.schedule)) if self.schedule else None


@dataclass(frozen=True)
class LeftOps:
    """Ops that stay XLA's, for one reason."""

    why: str
    ops: tuple[Line, ...]


@dataclass(frozen=True)
class PinnedCall:
    """A stitched call. program: a fingerprint of what was traced; graph: of what the graph passes made of it.

    order: which line each op is in, in program order, as runs [count, line, ...]. Lines are numbered through
    all kernels, then through what is left. The lines of kernels that compute the ops again follow, or XLA.
    """

    name: str
    program: str
    graph: str
    kernels: tuple[PinnedKernel, ...]
    left: tuple[LeftOps, ...]
    order: tuple[tuple[int, ...], ...]

    @cached_property
    def lines(self) -> tuple[tuple[int, Line], ...]:
        """Owner and line: kernels by number, behind them the entries of `left`."""
        parts = (*(kernel.ops for kernel in self.kernels), *(left.ops for left in self.left))
        return tuple((owner, line) for owner, part in enumerate(parts) for line in part)

    @cached_property
    def owners(self) -> tuple[tuple[int, ...], ...]:
        """Of each op: its owner, then who computes it again."""
        runs = ((count, [XLA if n == XLA else self.lines[n][0] for n in at]) for count, *at in self.order)
        return tuple(tuple(who) for count, who in runs for _ in range(count))

    @cached_property
    def sequence(self) -> tuple[tuple[str, str], ...]:
        """(op, source line) of each op, in program order."""
        rest = [iter(line.ops) for _, line in self.lines]
        found = []
        for count, *at in self.order:
            for _ in range(count):
                op, *_again = [next(rest[n]) for n in at if n != XLA]
                found.append((op, self.lines[at[0]][1].at))
        return tuple(found)


@dataclass(frozen=True)
class PlanFile:
    """options: of `CompileOptions`, as text, those that are not at their defaults."""

    jstitch: str
    jax: str
    target: str
    options: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[PinnedCall, ...] = ()

    @staticmethod
    def nothing() -> PlanFile:
        """Of no calls, by nobody."""
        return PlanFile("none", "none", "none")


def read_plan(path: str | os.PathLike[str]) -> PlanFile:
    """The plan in a file. Raises ParseError for a file that holds none, OSError for one that is not there."""
    found = os.stat(path)
    return _read(os.fspath(path), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=16)
def _read(path: str, changed: int, size: int) -> PlanFile:
    """Once for each state of a file."""
    if size > LARGEST:
        raise ParseError(f"a plan of at most {LARGEST:,} bytes", f"{size:,}", where=path, hint=HINT)
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParseError("a plan, in TOML", str(error), where=path, hint=HINT) from None
    try:
        return _plan(data)
    except KeyError as error:
        raise ParseError(f"a plan with {error}", "none", where=path, hint=HINT) from None
    except (TypeError, ValueError, AttributeError, StopIteration, IndexError) as error:
        raise ParseError("a plan as it was saved", str(error) or "another", where=path, hint=HINT) from None


def _plan(data: Mapping[str, Any]) -> PlanFile:
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']!r}, and this version reads {FORMAT}")
    calls = tuple(map(_call, data.get("calls", ())))
    jstitch, jax, target = (_typed(data[key], str) for key in ("jstitch", "jax", "target"))
    options = {name: _typed(text, str) for name, text in data.get("options", {}).items()}
    return PlanFile(jstitch, jax, target, options, calls)


def _call(data: Mapping[str, Any]) -> PinnedCall:
    name, program, graph = (_typed(data[key], str) for key in ("name", "program", "graph"))
    call = PinnedCall(
        *(name, program, graph),
        tuple(_kernels(data.get("kernels", ()))),
        tuple(LeftOps(_typed(x["why"], str), _lines(x)) for x in data.get("left", ())),
        tuple(tuple(_typed(n, int) for n in run) for run in data["order"]),
    )
    _check(call)
    return call


def _check(call: PinnedCall) -> None:
    """Raises ValueError where the order is not one of the ops."""
    counts = [0] * len(call.lines)
    for count, owner, *again in call.order:
        if count < 1 or owner == XLA or len({owner, *again}) <= len(again):
            raise ValueError(f"an order of {call.name} that is none")
        for n in (owner, *again):
            if not XLA <= n < len(counts):
                raise ValueError(f"an order of {call.name} that names line {n}, which is not there")
            if n != XLA:
                counts[n] += count
    if counts != [len(line.ops) for _, line in call.lines]:
        raise ValueError(f"an order of {call.name} for other numbers of ops")
    if any(n != XLA and n >= len(call.kernels) for _, *again in call.owners for n in again):
        raise ValueError(f"an order of {call.name} in which no kernel computes an op again")


def _kernels(tables: Iterable[Mapping[str, Any]]) -> Iterator[PinnedKernel]:
    """Of kernels that are alike, only the first is written out."""
    known: dict[str, PinnedKernel] = {}
    for data in tables:
        name = _typed(data["name"], str)
        known[name] = replace(known[data["like"]], name=name) if "like" in data else _kernel(data)
        yield known[name]


def _kernel(data: Mapping[str, Any]) -> PinnedKernel:
    made, cost = data["made"], data["cost"]
    known, origin, loops = (_typed(made[key], str) for key in ("id", "origin", "loops"))
    xla, ours = map(Share, cost["launches"], map(float, cost["mb"]))
    kernel = PinnedKernel(
        *(_typed(data["name"], str), known, origin, loops),
        _texts(made["schemes"]),
        *(xla, ours),
        _texts(data.get("schedule", ())),
        _lines(data),
    )
    _ = kernel.template  # raises ParseError, which is a ValueError
    return kernel


def _lines(data: Mapping[str, Any]) -> tuple[Line, ...]:
    return tuple(Line(_typed(line["at"], str), _texts(line["ops"])) for line in data["ops"])


def _texts(data: Any) -> tuple[str, ...]:
    return tuple(_typed(text, str) for text in data)


def _typed(value: Any, wanted: type[T]) -> T:
    if not isinstance(value, wanted):
        raise TypeError(f"{value!r} where {wanted.__name__} belongs")
    return value
