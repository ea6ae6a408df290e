"""Count the kernels of a compiled XLA program, and the bytes they read and write, from its HLO text.

    %a = f32[8,4]{1,0} fusion(%x, %y), kind=kLoop ...   ->   a kernel: its operands' and its result's bytes

Loops count once: the text does not say how often they turn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

TARGET_PREFIXES = ("jstitch", "__gpu$xla.gpu.ptx")  # of the CPU handler, of native GPU launches
_FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id "
    "copy-done opt-barrier while conditional".split()
)
_BITS = {"pred": 8, "token": 0, "c64": 64, "c128": 128}
_OPENING = re.compile(r"^(?P<entry>ENTRY )?%(?P<name>\S+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%(?P<name>\S+) = (?P<rest>.*)$")
_OPCODE = re.compile(r"(?P<type>.*?) (?P<opcode>[a-z][\w-]*)\((?P<operands>[^)]*)\)")
_ARRAY = re.compile(r"\b(?P<dtype>[a-z][a-z0-9]*)\[(?P<dims>[\d,]*)\]")
_CALLED = re.compile(
    r"(?:body|condition|true_computation|false_computation|branch_computations)="
    r"\{?(%[^,}\s]+(?:, %[^,}\s]+)*)"
)


@dataclass(frozen=True)
class Kernel:
    """One instruction that runs. `target` is a custom call's, else ""; `nbytes` are read and written."""

    name: str
    opcode: str
    type: str
    target: str
    nbytes: int


@dataclass(frozen=True)
class ProgramCost:
    """All kernels of a program, in the order they are written."""

    kernels: tuple[Kernel, ...]

    @property
    def nbytes(self) -> int:
        return sum(kernel.nbytes for kernel in self.kernels)

    @property
    def stitched(self) -> tuple[Kernel, ...]:
        return tuple(kernel for kernel in self.kernels if kernel.target.startswith(TARGET_PREFIXES))


def program_cost(hlo: str) -> ProgramCost:
    """The cost of an optimised HLO module's text. Raises ValueError when it has no entry computation."""
    computations, entry = _computations(hlo)
    return ProgramCost(tuple(_kernels(entry, computations)))


def _computations(hlo: str) -> tuple[dict[str, list[str]], str]:
    computations: dict[str, list[str]] = {}
    entry = ""
    for line in hlo.splitlines():
        if opening := _OPENING.match(line):
            computations[opening["name"]] = lines = []
            entry = opening["name"] if opening["entry"] else entry
        elif computations and line.startswith("  "):
            lines.append(line)
    if not entry:
        raise ValueError("Expected the text of an HLO module with an ENTRY computation, found none.")
    return computations, entry


def _kernels(computation: str, computations: dict[str, list[str]]) -> Iterator[Kernel]:
    sizes: dict[str, int] = {}
    for line in computations[computation]:
        match = _INSTRUCTION.match(line)
        parts = match and _OPCODE.match(match["rest"])
        if not match or not parts:
            continue
        sizes[match["name"]] = type_bytes(parts["type"])
        if parts["opcode"] not in _FREE:
            operands = re.findall(r"%([^\s,)]+)", parts["operands"])
            moved = sizes[match["name"]] + sum(sizes.get(name, 0) for name in operands)
            yield Kernel(match["name"], parts["opcode"], parts["type"], _target(line), moved)
        for called in _CALLED.findall(match["rest"]):
            for name in re.findall(r"%([^\s,]+)", called):
                yield from _kernels(name, computations)


def _target(line: str) -> str:
    found = re.search(r'custom_call_target="([^"]*)"', line)
    return found[1] if found else ""


def type_bytes(text: str) -> int:
    """Bytes of an HLO type: an array, or the sum over a tuple."""
    arrays = _ARRAY.finditer(text)
    return sum(
        math.prod(map(int, filter(None, a["dims"].split(",")))) * _bits(a["dtype"]) // 8 for a in arrays
    )


def _bits(dtype: str) -> int:
    digits = re.match(r"[a-z]+?(\d+)", dtype)
    return _BITS.get(dtype, int(digits[1]) if digits else 0)
