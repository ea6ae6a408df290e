"""Estimate the registers of a thread without compiling: the life time of every value of a lane's nests (C3).

v0 = x[e]            4 live: a vector comes at once
v1 = exp(v0)         5: its elements are worked on one by one
y[e] = v1 * v0       5: those that are stored at once take the places of those that were loaded

Besides those that a lane's homes hold. `registers.py` does the same on PTX, more exactly, once a kernel is
compiled. On the kernels of benchmarks/zoo.py the occupancy that follows is ptxas' own for 4 of 5.
"""

from __future__ import annotations

from collections.abc import Iterator

from jstitch.codegen.cuda.deal import Dealt
from jstitch.codegen.cuda.homes import Home, Homes, InParts, InRegisters
from jstitch.codegen.kernel_ir import Buffer, Instr, Let, Load, Store
from jstitch.ir.expr import refs

FIXED = 12
"""Registers of addresses, loop counters, and what every kernel takes."""

AHEAD = 0.5
"""Of the loads of all rounds that are written out, those that the assembler moves in front of others."""

MOST = 255
WORD = 4  # bytes of a register


def live_registers(homes: Homes) -> int:
    """32-bit registers that a thread of the lane needs, at its peak."""
    held = sum(_rounds(homes, size, home) * _vector(homes, size, b) for b, size, home in _held(homes))
    peak = max((_peak(homes, d) + len(d.nest.accumulators) for d in homes.nests), default=0.0)
    flying = max((_flying(homes, d) for d in homes.nests), default=0.0)
    return min(MOST, FIXED + round(held + peak + AHEAD * flying))


def _held(homes: Homes) -> Iterator[tuple[Buffer, int, Home]]:
    """Buffers that have homes, with the sizes of the loops that are dealt out over them."""
    for b, tile in homes.tiles.items():
        size = homes.carries[b].size if b in homes.carries else b.type.size
        if size in homes.widths:
            yield b, size, tile
    sizes = {(i.buffer, d.offset(i.offset)): d.size for d in homes.nests for i in _loads(d)}
    for key, home in homes.kept.items():
        if key in sizes:
            yield key[0], sizes[key], home


def _rounds(homes: Homes, size: int, home: Home) -> int:
    """How many of an array's rounds are in registers."""
    match home:
        case InRegisters():
            return homes.rounds(size)
        case InParts(_, first, _, last):
            return last - first
    return 0


def _vector(homes: Homes, size: int, b: Buffer) -> float:
    """Registers of one thread's part of a round."""
    return homes.widths.get(size, 1) * b.type.dtype.itemsize / WORD


def _loads(d: Dealt) -> list[Load]:
    return [i for i in d.instructions if isinstance(i, Load)]


def _peak(homes: Homes, d: Dealt) -> float:
    """Most registers of a nest's values that are live at once; each is from its making to its last use."""
    last = {name: n for n, i in enumerate(d.instructions) for name in _used(i)}
    stored = {name for i in d.instructions if _is_stored(homes, i) for name in _used(i)}
    live: dict[str, float] = {}
    peak = 0.0
    for n, i in enumerate(d.instructions):
        live = {name: words for name, words in live.items() if last.get(name, -1) >= n}
        match i:
            case Load(name, b):
                live[name] = _vector(homes, d.size, b) if _is_loaded(homes, d, i) else 1.0
            case Let(name) if name in stored and d.level(i) > len(d.serial):
                live = {old: words for old, words in live.items() if last[old] > n}
                live[name] = float(homes.widths.get(d.size, 1))
            case Let(name):
                live[name] = 1.0
        peak = max(peak, sum(live.values()))
    return peak


def _flying(homes: Homes, d: Dealt) -> float:
    """Registers of what comes from memory in all rounds that are written out."""
    rounds = homes.rounds(d.size) if d.loops and d.size in homes.unrolled else 1
    return rounds * sum(_vector(homes, d.size, i.buffer) for i in _loads(d) if _is_loaded(homes, d, i))


def _is_loaded(homes: Homes, d: Dealt, i: Load) -> bool:
    """Whether a vector comes from memory that is not in its home by then."""
    held = homes.kept.get((i.buffer, d.offset(i.offset)))
    homely = i.buffer in homes.tiles or isinstance(held, InRegisters | InParts)
    return bool(d.loops) and d.level(i) > len(d.serial) and not homely


def _is_stored(homes: Homes, i: Instr) -> bool:
    """Whether a vector of it goes to memory."""
    return isinstance(i, Store) and i.buffer not in homes.tiles


def _used(i: Instr) -> list[str]:
    match i:
        case Let(_, value, _) | Store(_, _, value, _):
            return list(refs(value))
        case Load():
            return []
