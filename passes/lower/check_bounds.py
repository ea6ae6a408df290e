"""Check where a nest's instructions reach: inside their buffers, at whole words, where tiles are copied to.

    for i in [0, 8): acc = acc + x[i + 1]        x: tensor<8xf32>
    ->  "a0[i + 1] reaches [1, 8] of 8 elements"

Offsets are bounded symbolically, or enumerated where that proves too little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jstitch.codegen.kernel_ir import (
    ROW,
    START,
    STEP,
    Buffer,
    Lane,
    Let,
    LoadPair,
    Loop,
    Nest,
    StorePair,
    Streamed,
)
from jstitch.codegen.print_index import print_index
from jstitch.ir.index import Index, Var, add, bounds, mul, substitute, var
from jstitch.passes.lower.check_flow import values_of

ENUMERATE = 1 << 16  # points up to which an offset is enumerated when its bounds prove too little


def check_bounds(nest: Nest, lane: Lane) -> Iterator[str]:
    """What leaves its buffer, one line each."""
    for i in nest.instructions:
        if isinstance(i, Let):
            continue
        yield from _reach(i.buffer, i.offset, lane, nest)
        if isinstance(i, LoadPair | StorePair):
            yield from _pair(i, lane, nest)
        if isinstance(i, Streamed):
            yield from _tile(i, lane, nest)


def _reach(buffer: Buffer, offset: Index, lane: Lane, nest: Nest) -> Iterator[str]:
    size = buffer.type.size
    e = _in_step(offset, lane)
    low, high = bounds(_within(e, nest.loops))
    if 0 <= low and high < size:
        return
    values = values_of(e, ENUMERATE)
    if values is not None:
        low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if values is None or low < 0 or high >= size:
        proof = "may reach" if values is None else "reaches"
        yield f"{buffer.name}[{print_index(offset)}] {proof} [{low}, {high}] of {size} elements"


def _pair(i: LoadPair | StorePair, lane: Lane, nest: Nest) -> Iterator[str]:
    """Both elements are in the buffer, in one word of it."""
    if any(k % 2 for k in (i.offset.const, *(k for _, k in i.offset.terms))):
        yield f"{i.buffer.name}[{print_index(i.offset)}] may be in the middle of a word"
    yield from _reach(i.buffer, add(i.offset, Index(1)), lane, nest)


def _tile(i: Streamed, lane: Lane, nest: Nest) -> Iterator[str]:
    """An element stands in the tile where the tile's copy puts it at the store's offset."""
    if add(i.place, i.target) != i.offset:
        yield f"{i.tile.name}[{print_index(i.place)}] is not copied to {print_index(i.offset)}"
    place = i.place if i.whole else _in_block(i.place, nest.loops[i.loop], i.tile.type.size)
    yield from _reach(i.tile, place, lane, nest)


def _in_block(e: Index, loop: Loop, size: int) -> Index:
    """With the loop's variable as a place in the block that begins at START."""
    here = add(var(START), var(Var("in block", size)))
    return substitute(e, lambda atom: here if atom == loop.var else None)


def _in_step(e: Index, lane: Lane) -> Index:
    """Rows as a place in their step, so that what is relative to the step has bounds of its own."""
    if lane.step == 1:
        return e
    row = add(mul(var(Var(STEP, lane.rows // lane.step)), lane.step), var(Var("row in step", lane.step)))
    return substitute(e, lambda atom: row if atom == Var(ROW, lane.rows) else None)


def _within(e: Index, loops: Sequence[Loop]) -> Index:
    """Loop variables that run over a part of their extent: shifted to start at 0."""
    inner = (loop for loop in loops if loop.var.name != ROW)
    part = {loop.var: loop for loop in inner if (loop.lo, loop.hi) != (0, loop.var.extent)}
    if not part:
        return e

    def shift(atom: object) -> Index | None:
        loop = part.get(atom) if isinstance(atom, Var) else None
        return None if loop is None else add(var(Var(loop.var.name, loop.hi - loop.lo)), Index(loop.lo))

    return substitute(e, shift)
