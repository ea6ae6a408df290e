"""Loops over what is read across memory go in blocks, in which it is read along memory.

y [2048, 31] = the transposition of f(x [31, 2048])

    for i1 in 0..2048: for i2 in 0..31:                     a line of x for each element
        y[i1 * 31 + i2] = f(x[i2 * 2048 + i1])

    for i1 in 0..128: for i2 in 0..31: for i1b in 0..16:    vectors of x, lines of y that stay in cache
        y[i1 * 496 + i1b * 31 + i2] = f(x[i2 * 2048 + i1 * 16 + i1b])

What is computed goes in vectors too. Stores stand alone in either direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jstitch.codegen.cpu.short_rows import SHORT
from jstitch.codegen.kernel_ir import (
    CACHE_LINE,
    ROW,
    Called,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    Loop,
    Nest,
    Store,
)
from jstitch.codegen.kernel_queries import numbers_each
from jstitch.codegen.map_kernel import map_lanes
from jstitch.codegen.move_indices import changed, indices
from jstitch.ir.index import Atom, Index, Var, add, atoms, const, mul, substitute, var

BLOCK = "b"


def block_transposes(kernel: Kernel) -> Kernel:
    """The kernel with such loops in blocks."""
    return map_lanes(kernel, _lane)


def _lane(lane: Lane) -> Lane:
    if lane.flat:
        return lane
    stages = (replace(s, nests=tuple(n for nest in s.nests for n in _blocked(nest))) for s in lane.stages)
    return replace(lane, stages=tuple(stages))


def _blocked(nest: Nest) -> Iterator[Nest]:
    found = _across(nest)
    if found is None:
        yield nest
        return
    place, block = found
    whole = nest.loops[place].hi // block * block
    yield _block(nest, place, 0, whole // block, block)
    if whole < nest.loops[place].hi:
        yield _block(nest, place, whole, 1, nest.loops[place].hi - whole)


def _across(nest: Nest) -> tuple[int, int] | None:
    """The place of the loop along which memory lies, and elements of its blocks."""
    if isinstance(nest, Called) or nest.accumulators or nest.after or len(nest.loops) < 2:
        return None
    if not all(type(i) in (Let, Load, Store) for i in nest.body):
        return None
    loaded = {i.buffer for i in nest.body if isinstance(i, Load)}
    if any(isinstance(i, Store) and i.buffer in loaded for i in nest.body):
        return None  # a turn may go on from what another one has stored
    inner, deepest = nest.loops[-1], len(nest.loops)
    accesses = [i for i in nest.body if isinstance(i, Load | Store) and i.depth == deepest]
    for place, loop in enumerate(nest.loops[:-1]):
        if loop.var.name == ROW or not (_is_plain(loop) and _is_plain(inner)) or inner.hi <= SHORT:
            continue
        reads = [a for a in accesses if isinstance(a, Load)]
        read = [a for a in reads if _is_across(a, loop.var, inner.var)]
        spread = [
            a for a in accesses if dict(a.offset.terms).get(loop.var, 0) not in (0, numbers_each(a.buffer))
        ]
        if not read or len(spread) > len(read) or not _is_free(nest, loop.var, inner.var):
            continue
        block = CACHE_LINE // max(a.buffer.type.dtype.itemsize * numbers_each(a.buffer) for a in read)
        if loop.hi >= block:
            return place, block
    return None


def _is_plain(loop: Loop) -> bool:
    return type(loop) is Loop and loop.lo == 0 and loop.each == 1


def _is_across(i: Load, along: Var, across: Var) -> bool:
    """Whether neighbours in memory are turns of the one loop, and lines apart turns of the other."""
    steps, each = dict(i.offset.terms), numbers_each(i.buffer)
    return steps.get(along) == each and abs(steps.get(across, 0)) >= SHORT * each


def _is_free(nest: Nest, *loops: Var) -> bool:
    """Whether no index of the nest divides, clamps or looks up with these."""
    found = [index for i in nest.body for index in indices(i)]
    inside = (a for index in found for a in atoms([index]) if not isinstance(a, Var))
    return not any(v in loops for a in inside for v in atoms([Index(0, ((a, 1),))]))


def _block(nest: Nest, place: int, first: int, count: int, block: int) -> Nest:
    """Blocks of the loop's elements from the first on, with a block's own loop innermost."""
    loop = nest.loops[place]
    outer, inner = Var(loop.var.name, count), Var(loop.var.name + BLOCK, block)
    start = mul(var(outer), block) if count > 1 else const(0)
    here: dict[Atom, Index] = {loop.var: add(add(start, var(inner)), const(first))}
    loops = [*nest.loops]
    loops[place : place + 1] = [Loop(outer, 0, count)] if count > 1 else []
    around = len(loops) + 1

    def moved(i: Instr) -> Instr:
        return changed(i, lambda e: substitute(e, here.get), i.depth if i.depth <= place else around)

    return replace(nest, loops=(*loops, Loop(inner, 0, block)), body=tuple(map(moved, nest.body)))
