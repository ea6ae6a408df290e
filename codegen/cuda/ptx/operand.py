"""Operands -> functions that read and write them in a frame.

operands.source("%r1#4", "s32")     reads the register as 32-bit integers
operands.target("%rd2#9", "s8")     writes an 8-bit value, its sign extended to 64 bits
operands.address("[%rd1#3+16]")     reads a 64-bit address
"""

from __future__ import annotations

import re

import numpy as np

from jstitch.codegen.cuda.ptx.frame import SPECIAL, Frame, Read, Write
from jstitch.codegen.cuda.ptx.scalar import DTYPES, Array, extend, immediate, truncate, width

_PLACE = re.compile(r"(?P<base>[%\w$#.]+)\s*(?:\+\s*(?P<offset>-?\w+))?")


class Operands:
    """Numbers the registers; remembers which ones the block in work reads before writing, and writes."""

    def __init__(self, widths: dict[str, int], symbols: dict[str, int]) -> None:
        self.numbers: dict[str, int] = {name: n for n, name in enumerate(widths)}
        self.widths = list(widths.values())
        self.symbols = symbols
        self.read_first: set[int] = set()
        self.written: set[int] = set()

    def new_block(self) -> None:
        """Forget what was read and written."""
        self.read_first, self.written = set(), set()

    def number(self, name: str, bits: int) -> int:
        """The number of the register; a name not seen before becomes one of `bits` bits."""
        if name not in self.numbers:
            self.numbers[name] = len(self.widths)
            self.widths.append(bits)
        return self.numbers[name]

    def source(self, text: str, type_name: str) -> Read:
        """Reads a register, special register, variable's address or literal as the type.

        Raises ValueError for anything else.
        """
        if text.startswith("!"):
            read = self.source(text[1:].strip(), type_name)
            return lambda frame: ~read(frame)
        if text in self.numbers:
            return self._register(self.numbers[text], type_name)
        if text in SPECIAL:
            special = SPECIAL[text]
            return lambda frame: truncate(special(frame), type_name, 32)
        place = _PLACE.fullmatch(text)
        if place and place["base"] in self.symbols:
            address = self.symbols[place["base"]] + int(place["offset"] or "0", 0)
            return _constant(immediate(str(address), type_name))
        return _constant(immediate(text, type_name))

    def _register(self, number: int, type_name: str) -> Read:
        if number not in self.written:
            self.read_first.add(number)
        bits, dtype = self.widths[number], DTYPES[type_name]
        if bits == 1 or width(type_name) == 1:
            if bits != width(type_name):
                raise ValueError(f"a register of {bits} bits is no .{type_name}")
            return lambda frame: frame.registers[number]
        if bits == width(type_name):
            return lambda frame: frame.registers[number].view(dtype)
        if bits < width(type_name):
            raise ValueError(f"a register of {bits} bits is too narrow for .{type_name}")
        return lambda frame: truncate(frame.registers[number], type_name, bits)

    def target(self, text: str, type_name: str) -> Write:
        """Writes a register; `_` throws the value away. Raises ValueError for an undeclared register."""
        if text == "_":
            return lambda frame, value: None
        if text not in self.numbers:
            raise ValueError(f"expected a declared register, found {text}")
        number = self.numbers[text]
        self.written.add(number)
        bits = self.widths[number]
        if bits < width(type_name):
            raise ValueError(f"a register of {bits} bits is too narrow for .{type_name}")

        def write(frame: Frame, value: Array) -> None:
            frame.registers[number] = extend(value, type_name, bits)

        return write

    def address(self, text: str) -> Read:
        """Reads `[base+offset]` as 64-bit addresses."""
        place = _PLACE.fullmatch(text.strip("[] "))
        if place is None:
            raise ValueError(f"expected an address, found {text}")
        offset = np.array([int(place["offset"] or "0", 0) & (2**64 - 1)], np.uint64)
        if place["base"] in self.numbers:
            bits = self.widths[self.numbers[place["base"]]]
            read = self.source(place["base"], f"u{bits}")
            return lambda frame: read(frame).astype(np.uint64) + offset
        read = self.source(place["base"], "u64")
        return lambda frame: read(frame) + offset

    def is_indirect(self, text: str) -> bool:
        """Whether `[base+offset]` has a register for its base."""
        place = _PLACE.fullmatch(text.strip("[] "))
        return place is not None and place["base"] in self.numbers

    def parameter(self, text: str, index: int, type_name: str) -> str:
        """The register that stands for element `index` of the type at `[parameter+offset]`."""
        place = _PLACE.fullmatch(text.strip("[] "))
        if place is None:
            raise ValueError(f"expected a parameter, found {text}")
        offset = int(place["offset"] or "0", 0) + index * width(type_name) // 8
        name = f"{place['base']}+{offset}"
        self.number(name, width(type_name))
        return name


def _constant(value: Array) -> Read:
    return lambda frame: value


def elements(text: str) -> list[str]:
    """The parts of `{a, b}`, or the one operand itself."""
    return [part.strip() for part in text.strip("{} ").split(",")]
