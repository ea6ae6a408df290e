"""Estimate the registers of a thread without compiling: the life time of every value of a lane's nests (C3).

v0 = x[e]            1 live        v2 is its last use: v0 and v1 end
v1 = exp(v0)         2 live
v2 = v0 * v1         1 live        times the elements of a vector, plus what the lane's homes hold

`registers.py` does the same on PTX, more exactly, once a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from jstitch.codegen.cuda.deal import Dealt
from jstitch.codegen.cuda.homes import Homes, InParts, InRegisters
from jstitch.codegen.kernel_ir import Instr, Let, Load, Store
from jstitch.ir.expr import refs

FIXED = 18
"""Registers of addresses, loop counters, and what every kernel takes."""

MOST = 255


def live_registers(homes: Homes) -> int:
    """32-bit registers that a thread of the lane needs, at its peak."""
    held = sum(_rounds(homes, size, home) * homes.widths[size] for size, home in _held(homes))
    peak = max(
        (peak_values(d.instructions, _accumulators(d)) * _width(homes, d) for d in homes.nests), default=0
    )
    return min(MOST, FIXED + held + peak)


def _held(homes: Homes) -> list[tuple[int, object]]:
    return [*_tiles(homes), *_kept(homes)]


def _rounds(homes: Homes, size: int, home: object) -> int:
    """How many of an array's rounds are in registers."""
    match home:
        case InRegisters():
            return homes.rounds(size)
        case InParts(_, first, _, last):
            return last - first
    return 0


def _tiles(homes: Homes) -> list[tuple[int, object]]:
    carries = homes.carries
    sizes = ((carries[b].size if b in carries else b.type.size, home) for b, home in homes.tiles.items())
    return [(size, home) for size, home in sizes if size in homes.widths]


def _kept(homes: Homes) -> list[tuple[int, object]]:
    sizes = {(i.buffer, d.offset(i.offset)): d.size for d in homes.nests for i in _loads(d)}
    return [(sizes[key], home) for key, home in homes.kept.items() if key in sizes]


def _loads(d: Dealt) -> list[Load]:
    return [i for i in d.instructions if isinstance(i, Load)]


def _width(homes: Homes, d: Dealt) -> int:
    """Elements of one thread that are worked on together."""
    return homes.widths.get(d.size, 1) if d.loops else 1


def _accumulators(d: Dealt) -> int:
    return len(d.nest.accumulators)


def peak_values(instructions: Sequence[Instr], always: int = 0) -> int:
    """Most values that are live at once, besides `always`; each is live from its making to its last use."""
    last: dict[str, int] = {}
    for n, i in enumerate(instructions):
        for name in _used(i):
            last[name] = n
    live: set[str] = set()
    peak = 0
    for n, i in enumerate(instructions):
        if isinstance(i, Let | Load):
            live.add(i.name)
        peak = max(peak, len(live))
        live = {name for name in live if last.get(name, -1) > n}
    return peak + always


def _used(i: Instr) -> list[str]:
    match i:
        case Let(_, value, _) | Store(_, _, value, _):
            return list(refs(value))
        case Load():
            return []
