"""PTX text -> module: its functions (bodies as statements) and its variables.

    .entry k(.param .u64 a) { .reg .b32 %r<2>; L: ret; }
    -> Function("k", entry=True, formals=("a",), body=(".reg .b32 %r<2>", "L:", "ret"))

Statements stay text: `flatten` resolves their names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from jstitch.codegen.cuda.ptx.error import PtxError
from jstitch.codegen.cuda.ptx.scalar import immediate, width


@dataclass(frozen=True)
class Statement:
    """One statement without its `;`, a label with its `:`, or a brace. line: from 1."""

    line: int
    text: str


@dataclass(frozen=True)
class Variable:
    """An array in memory. space: global, const, shared or local. data: its bytes, None when extern."""

    name: str
    space: str
    align: int
    data: bytes | None


@dataclass(frozen=True)
class Function:
    """limits: the directives between head and body, as {'reqntid': 256}."""

    name: str
    entry: bool
    returns: tuple[str, ...]
    formals: tuple[str, ...]
    limits: dict[str, int]
    body: tuple[Statement, ...]


@dataclass
class Module:
    """What one PTX text defines, by name."""

    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)


_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|^[ \t]*\.(?:loc|file|version|target|address_size)\b[^\n]*", re.S | re.M
)
_STATEMENT = re.compile(
    r"\s*(?:(?P<brace>[{}])|(?P<label>[\w$]+\s*:)(?!:)|(?P<text>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)"
)
_FUNCTION = re.compile(
    r"\.(?P<kind>entry|func)\b\s*(?:\((?P<returns>[^)]*)\))?\s*(?P<name>[\w$.]+)\s*"
    r"(?:\((?P<formals>[^)]*)\))?(?P<tail>.*)",
    re.S,
)
_FORMAL = re.compile(r"([\w$]+)\s*(?:\[\d*\])?\s*(?:,|$)")
_LIMIT = re.compile(r"\.(reqntid|maxntid)\s+(\d+)((?:\s*,\s*\d+)*)")
_VARIABLE = re.compile(
    r"(?P<flags>(?:\.(?:extern|visible|weak|common)\s+)*)\.(?P<space>global|const|shared|local)\s+"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(?P<align>\d+)\s+)?(?:\.(?P<type>\w+))\s+(?P<name>[\w$]+)\s*"
    r"(?:\[(?P<count>\d*)\])?\s*(?:=\s*(?P<value>.*))?",
    re.S,
)


def parse(text: str) -> Module:
    """The module. Raises PtxError at a declaration that is not understood."""
    text = _NOISE.sub(lambda noise: "\n" * noise[0].count("\n"), text.rstrip("\0"))
    lines = [0, *(newline.end() for newline in re.finditer("\n", text))]
    module, position = Module(), 0
    while found := re.compile(r"\s*(?P<head>[^;{}=]+)(?P<end>[;{=])").match(text, position):
        line = bisect_right(lines, found.start("head"))
        if found["end"] == "{":
            position = _close(text, found.end())
            if ".section" not in found["head"]:
                statements = tuple(_statements(text, found.end(), position - 1, lines))
                function = _function(found["head"], statements, line)
                module.functions[function.name] = function
            continue
        position = text.index(";", found.start()) + 1
        if not re.search(r"\.(entry|func)\b", found["head"]):
            variable = read_variable(text[found.start("head") : position - 1].strip(), line)
            module.variables[variable.name] = variable
    if text[position:].strip():
        raise PtxError("expected a declaration", bisect_right(lines, position), text=text[position:][:80])
    return module


def _close(text: str, position: int) -> int:
    depth = 1
    while depth:
        brace = re.compile(r"[{}]").search(text, position)
        if brace is None:
            raise PtxError("a body has no closing brace")
        depth += 1 if brace[0] == "{" else -1
        position = brace.end()
    return position


def _statements(text: str, position: int, end: int, lines: list[int]) -> Iterator[Statement]:
    while position < end and (found := _STATEMENT.match(text, position, end)):
        kind = str(found.lastgroup)
        line = bisect_right(lines, found.start(kind))
        yield Statement(line, " ".join(found[kind].split()))
        position = found.end()
    if text[position:end].strip():
        raise PtxError("expected a statement", bisect_right(lines, position), text=text[position:][:80])


def _function(head: str, body: tuple[Statement, ...], line: int) -> Function:
    found = _FUNCTION.search(head)
    if found is None:
        raise PtxError("expected .entry or .func", line, text=head[:80])
    limits = {}
    for name, first, rest in _LIMIT.findall(found["tail"]):
        limits[name] = int(np.prod([int(n) for n in (first + rest).split(",")]))
    returns, formals = (tuple(_FORMAL.findall((found[k] or "").strip())) for k in ("returns", "formals"))
    return Function(found["name"], found["kind"] == "entry", returns, formals, limits, body)


def read_variable(text: str, line: int) -> Variable:
    """The variable that a declaration without `;` makes. Zeros where it gives no values."""
    found = _VARIABLE.fullmatch(text)
    if found is None:
        raise PtxError("expected a variable's declaration", line, text=text[:80])
    itemsize = width(found["type"]) // 8
    align = int(found["align"] or itemsize)
    if found["count"] == "" and found["value"] is None:
        return Variable(found["name"], found["space"], align, None)
    values = re.findall(r"[^\s,{}]+", found["value"] or "")
    try:
        data = b"".join(immediate(value, found["type"]).tobytes() for value in values)
    except ValueError as error:
        raise PtxError("only numbers can initialise a variable", line, text=text[:80]) from error
    count = int(found["count"]) if found["count"] else max(len(values), 1)
    return Variable(found["name"], found["space"], align, data.ljust(count * itemsize, b"\0"))
