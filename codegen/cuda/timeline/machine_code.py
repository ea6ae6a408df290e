"""SASS as data: instructions with the control words that ptxas gave them, and where each came from.

    @P0 LDG.E.128 R4, [R2.64]      ->   Instruction("LDG.E.128", guard="@P0", stall=4, writes=2, line=71, ...)

A control word says how many cycles the warp stalls, which of six scoreboards the instruction sets when its
result is there (or its operands are read), and which it waits for.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jstitch.codegen.cuda.resources import Resources, ToolError, assemble_cubin, run_tool

NO_SCOREBOARD = 7
_LABEL = re.compile(r"^(\.L_x_\d+):")
_LINE = re.compile(r'//## File ".*", line (\d+)')
_CODE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?(\S+?)\s*((?:\s.*?)?)\s*;\s*/\* 0x")
_WORD = re.compile(r"/\* (0x[0-9a-f]+) \*/")
_PLACE = re.compile(r"\.L_x_\d+")
_CONTROL_BIT = 41  # of the instruction's upper 64 bits


@dataclass(frozen=True)
class Instruction:
    """stall: cycles until the warp's next one. writes, reads: scoreboards that it sets when its result is
    there and when its operands are read, or NO_SCOREBOARD. waits: bits of those it waits for. line: of the
    PTX, 0 where it is from none. target: number of the instruction that it names, None where it names none.
    """

    opcode: str
    operands: str
    guard: str
    stall: int
    writes: int
    reads: int
    waits: int
    line: int
    target: int | None

    @property
    def name(self) -> str:
        """LDG of LDG.E.128."""
        return self.opcode.partition(".")[0]

    def __str__(self) -> str:
        return " ".join(part for part in (self.guard, self.opcode, self.operands) if part)


def machine_code(ptx: str, arch: str) -> tuple[tuple[Instruction, ...], Resources]:
    """The code of the one kernel in `ptx`. Raises ToolError as `disassemble`."""
    with tempfile.TemporaryDirectory(prefix="jstitch-ptxas-") as folder:
        cubin = Path(folder) / "kernel.cubin"
        resources = assemble_cubin(ptx, arch, cubin, "-lineinfo")
        text = run_tool("nvdisasm", "-c", "-hex", "-gp", str(cubin))
    found = tuple(_read(text))
    if not found:
        raise ToolError("machine code that nvdisasm prints", "none")
    return found, resources


def _read(text: str) -> Iterator[Instruction]:
    """Instructions of the one kernel. Each has a second line, with the rest of its bits."""
    labels: dict[str, int] = {}
    rows: list[tuple[re.Match[str], int, int]] = []
    line, lines = 0, text.splitlines()
    for row, after in zip(lines, [*lines[1:], ""], strict=True):
        if label := _LABEL.match(row):
            labels[label[1]] = len(rows)
        elif place := _LINE.search(row):
            line = int(place[1])
        elif (code := _CODE.match(row)) and (word := _WORD.search(after)):
            rows.append((code, int(word[1], 16) >> _CONTROL_BIT, line))
    for code, control, line in rows:
        named = _PLACE.search(code[3])
        yield Instruction(
            code[2],
            code[3].strip(),
            code[1] or "",
            stall=control & 15,
            writes=control >> 5 & 7,
            reads=control >> 8 & 7,
            waits=control >> 11 & 63,
            line=line,
            target=labels.get(named[0]) if named else None,
        )
