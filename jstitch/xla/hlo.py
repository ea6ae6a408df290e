"""Read the text of an HLO module: computations, instructions, operands, types.

%a = (f32[8]{0}, s32[]) fusion(%x, %y#1), kind=kLoop, calls=%c   ->   Instruction("a", leaves, "fusion", ...)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}
_OPENING = re.compile(r"^(?P<entry>ENTRY )?%(?P<name>[^\s(]+) ?\(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?P<root>ROOT )?%(?P<name>\S+) = (?P<rest>.*)$")
_COMMENT = re.compile(r"/\*.*?\*/")
_ARRAY = re.compile(r"\b(?P<dtype>[a-z][a-z0-9]*)\[(?P<dims>[\d,<=]*)\]")
_OPERAND = re.compile(r"%(?P<name>[^\s,()#]+)(?:#(?P<leaf>\d+))?")


@dataclass(frozen=True)
class Array:
    """One array of a type: its HLO dtype and its dimensions."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        return (self.elements * _bits(self.dtype) + 7) // 8


@dataclass(frozen=True)
class Operand:
    """A use of an instruction's result, or of one leaf of its tuple (printed as %name#leaf)."""

    name: str
    leaf: int | None = None


@dataclass(frozen=True)
class Instruction:
    """One line. arrays: the leaves of its result. rest: its attributes, as text."""

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    operands: tuple[Operand, ...]
    argument: str
    rest: str
    root: bool

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    @property
    def elements(self) -> int:
        return sum(array.elements for array in self.arrays)

    @cached_property
    def called(self) -> tuple[str, ...]:
        """Computations that it runs: a fusion's, a call's, an async start's."""
        return tuple(re.findall(r"(?:calls|called_computation)=%([^\s,]+)", self.rest))

    @cached_property
    def branches(self) -> tuple[str, ...]:
        """A conditional's computations."""
        listed = re.search(r"branch_computations=\{([^}]*)\}", self.rest)
        text = listed[1] if listed else " ".join(re.findall(r"(?:true|false)_computation=(\S+)", self.rest))
        return tuple(re.findall(r"%([^\s,]+)", text))

    @cached_property
    def trips(self) -> int | None:
        """How often a loop turns, if XLA knows."""
        found = re.search(r'"known_trip_count":\{"n":"(\d+)"', self.rest)
        return int(found[1]) if found else None

    @cached_property
    def index(self) -> int | None:
        """The leaf that a get-tuple-element takes."""
        found = re.search(r"\bindex=(\d+)", self.rest)
        return int(found[1]) if found else None

    @cached_property
    def target(self) -> str:
        """A custom call's target, else ""."""
        found = re.search(r'custom_call_target="([^"]*)"', self.rest)
        return found[1] if found else ""

    def attribute(self, name: str) -> str:
        """`name=%value` without the %, "" if there is none."""
        found = re.search(rf"\b{name}=%([^\s,]+)", self.rest)
        return found[1] if found else ""


@dataclass(frozen=True)
class Computation:
    """Instructions in program order, by name."""

    name: str
    instructions: dict[str, Instruction]

    @cached_property
    def root(self) -> Instruction:
        return next(i for i in self.instructions.values() if i.root)

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        found = [i for i in self.instructions.values() if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: int(i.argument)))


@dataclass(frozen=True)
class Module:
    """All computations of a program, and the name of the one where it starts."""

    computations: dict[str, Computation]
    entry: str


def parse_module(text: str) -> Module:
    """The module that `text` spells. Raises ValueError when it has no ENTRY computation."""
    computations: dict[str, Computation] = {}
    current: dict[str, Instruction] = {}
    entry = ""
    for line in text.splitlines():
        if opening := _OPENING.match(line):
            current = {}
            computations[opening["name"]] = Computation(opening["name"], current)
            entry = opening["name"] if opening["entry"] else entry
        elif (match := _INSTRUCTION.match(line)) and computations:
            current[match["name"]] = _instruction(match["name"], match["rest"], bool(match["root"]))
    if not entry:
        raise ValueError("expected the text of an HLO module with an ENTRY computation, found none")
    return Module(computations, entry)


def _instruction(name: str, text: str, root: bool) -> Instruction:
    """The instruction `%name = text`, where text is `type opcode(operands), attributes`."""
    text = _COMMENT.sub("", text)
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    opening = text.index("(", end)
    closing = _closing(text, opening)
    inside = text[opening + 1 : closing]
    operands = tuple(
        Operand(m["name"], None if m["leaf"] is None else int(m["leaf"])) for m in _OPERAND.finditer(inside)
    )
    opcode = text[end:opening].strip()
    return Instruction(name, opcode, _arrays(text[:end]), operands, inside, text[closing + 1 :], root)


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis at `opening` closes."""
    depth = 0
    for position in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise ValueError(f"expected a closing parenthesis in {text[opening : opening + 60]!r}, found none")


def _arrays(text: str) -> tuple[Array, ...]:
    return tuple(
        Array(m["dtype"], tuple(int(d.lstrip("<=")) for d in m["dims"].split(",") if d))
        for m in _ARRAY.finditer(text)
    )


def _bits(dtype: str) -> int:
    digits = re.match(r"[a-z]+?(\d+)", dtype)
    return _BITS.get(dtype, int(digits[1]) if digits else 0)
