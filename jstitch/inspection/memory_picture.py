"""A kernel's memory map as a picture: bytes of the arena downwards, stages to the right.

 bytes        reduce max   exp, sum    divide
 [0, 4)       ■ t0 ■■■■■   ■ t0 ■■■■
 [64, 2112)                ■ t1 ■■■■   ■ t1 ■■■
 registers    □ a0 □□□□□   □ a0 □□□□

Every row is a range of bytes that holds the same things throughout; high rows are large ranges.
"""

from __future__ import annotations

import inspect
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from jstitch.codegen.memory_map import Area, LaneMap
from jstitch.ir.visible import visible

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
"""Okabe and Ito's, which colour-blind readers can tell apart; every field has its name as well."""

HIGHEST = 4  # lines of a row
WIDTH = 14  # characters of a stage
SVG_WIDTH = 140
ARENA, REGISTERS = "█", "░"
_FONTS = re.compile(r"@font-face \{\{.*?\}\}", re.S)  # rich's are on a server
_SVG = _FONTS.sub("", inspect.signature(Console.export_svg).parameters["code_format"].default)


def draw_memory(kernel: str, memory: Sequence[LaneMap]) -> Group:
    """For rich to print."""
    if not memory:
        return Group(Text(f"{visible(kernel)}: nothing is kept between stages; every value is in a register"))
    return Group(*(part for lane in memory for part in _draw(kernel, lane)))


def memory_svg(kernel: str, memory: Sequence[LaneMap]) -> str:
    """The picture as SVG that refers to nothing outside itself."""
    console = Console(record=True, width=SVG_WIDTH, file=io.StringIO(), force_terminal=True)
    kernel = visible(kernel)
    console.print(draw_memory(kernel, memory))
    return console.export_svg(title=f"memory of {kernel}", code_format=_SVG)


def _draw(kernel: str, lane: LaneMap) -> Iterator[Table | Text]:
    yield Text(_title(kernel, lane), "bold")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("bytes", justify="right", no_wrap=True)
    for n, note in enumerate(lane.stages):
        table.add_column(Text(f"{n} {visible(note)}"), width=WIDTH)
    colors = dict(zip(dict.fromkeys(a.name for a in lane.areas), itertools.cycle(COLORS), strict=False))
    for label, height, areas in _rows(lane):
        cells = [_cell(n, areas, colors, height) for n in range(len(lane.stages))]
        table.add_row(Text(label), *cells)
    yield table
    yield _legend(lane, colors)


def _title(kernel: str, lane: LaneMap) -> str:
    times = f", {lane.times} lanes alike" if lane.times > 1 else ""
    teams = f"; the first of {lane.teams} teams, {lane.stride:,} bytes each" if lane.stride else ""
    return f"{visible(kernel)}, phase {lane.phase}, lane {lane.lane}{times}: {lane.nbytes:,} bytes{teams}"


def _rows(lane: LaneMap) -> Iterator[tuple[str, int, list[Area]]]:
    """(bytes, height, what is there at some time)."""
    placed = [(a.offset, a.offset + a.nbytes, a) for a in lane.areas if a.offset is not None]
    cuts = sorted({at for start, end, _ in placed for at in (start, end)})
    largest = max((b - a for a, b in itertools.pairwise(cuts)), default=1)
    for start, end in itertools.pairwise(cuts):
        areas = [a for lo, hi, a in placed if lo < end and start < hi]
        if areas:
            yield f"[{start}, {end})", 1 + (HIGHEST - 1) * (end - start) // largest, areas
    for area in lane.areas:
        if area.offset is None:
            yield f"registers, {area.nbytes}", 1, [area]


def _cell(stage: int, areas: Iterable[Area], colors: dict[str, str], height: int) -> Text:
    """What is there in a stage. Two at once pass through each other element by element."""
    here = [a for a in areas if a.first <= stage <= a.last]
    text = Text()
    for line in range(height):
        for area in here:
            label = f"{visible(area.name)} " if line == 0 else ""
            share, fill = WIDTH // len(here), REGISTERS if area.offset is None else ARENA
            text.append(label[:share].ljust(share, fill), colors[area.name])
        text.append("\n" if line < height - 1 else "")
    return text


def _legend(lane: LaneMap, colors: dict[str, str]) -> Text:
    text = Text()
    for area in lane.areas:
        text.append("  ██ ", colors[area.name])
        where = "registers" if area.offset is None else f"[{area.offset}, {area.offset + area.nbytes})"
        said = f"{area.name}: {area.what}, {where}, stages {area.first} to {area.last}"
        text.append(f"{visible(said)}\n")
    return text
