"""Dear numbers of an outer loop are made by a loop of their own, in vectors (loop distribution).

y [154, 48, 8] = softplus(x [154, 48]) * z

    for i1 in 0..48:                                for i1 in 0..48:
        v0 = softplus(x[r * 48 + i1])                   d0[i1] = softplus(x[r * 48 + i1])
        for i2 in 0..8:                      ->     for i1 in 0..48:
            y[...] = v0 * z[...]                        v0 = d0[i1]
                                                        for i2 in 0..8:
                                                            y[...] = v0 * z[...]

Only innermost loops go in vectors: what stands in one around them is done number by number, and an
exponential takes as long as those of a whole vector. Few inner turns then wait for the outer ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.intrinsics import INTRINSICS, Takes, cpu_cycles
from jstitch.codegen.kernel_ir import (
    ROW,
    Buffer,
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
from jstitch.codegen.map_kernel import map_lanes
from jstitch.ir.expr import Call, Const, Expr, Ref, index_refs, refs
from jstitch.ir.index import Index, add, const, mul, var
from jstitch.ir.types import DType
from jstitch.passes.schedule.arena_room import ArenaRoom
from jstitch.passes.schedule.nest_work import expr_cycles

DEAR = 5.0  # cycles of a number
LEAST = 8  # turns of the loop: a vector, or two
MOST = 1 << 12  # numbers of a row's tile: they stay in the first-level cache
TILES = 3  # of a nest
_OF_ONE_TYPE = (Takes.FLOATS, Takes.SCALARS, Takes.OPERATORS)
_TESTS = ("eq", "ne", "lt", "le", "gt", "ge")


def distribute_loops(kernel: Kernel) -> Kernel:
    """The kernel with loops for such numbers, and room for them behind its arena."""
    room = ArenaRoom(kernel)
    made = map_lanes(kernel, lambda lane: _lane(lane, room))
    return room.given(made) if room.tiles else kernel


def _lane(lane: Lane, room: ArenaRoom) -> Lane:
    if lane.flat or lane.step > 1 or lane.period > 1:
        return lane
    stages = tuple(
        stage if stage.once else replace(stage, nests=tuple(n for x in stage.nests for n in _nests(x, room)))
        for stage in lane.stages
    )
    same = all(a.nests == b.nests for a, b in zip(lane.stages, stages, strict=True))
    return lane if same else replace(lane, stages=stages)


def _nests(nest: Nest, room: ArenaRoom) -> Iterator[Nest]:
    found = _find(nest)
    if found is None:
        yield nest
        return
    loops = nest.loops[: found.depth]
    place, size = _place(loops)
    tiles = {name: room.tile("d", size, DType.F32) for name in found.cut}
    stores = [Store(tile, place, Ref(name), found.depth) for name, tile in tiles.items()]
    yield Nest(loops, (), (*found.made, *stores), ())
    loaded = [_instead(i, tiles, place) for i in nest.body]
    yield replace(nest, body=tuple(_used(loaded, nest)))


@dataclass(frozen=True)
class _Found:
    """depth: of the loop. cut: the dear numbers that others read. made: what makes them, in order."""

    depth: int
    cut: tuple[str, ...]
    made: tuple[Instr, ...]


def _find(nest: Nest) -> _Found | None:
    if isinstance(nest, Called) or not all(type(i) in (Let, Load, Store) for i in nest.instructions):
        return None
    for depth in range(len(nest.loops) - 1, 0, -1):
        loops = [x for x in nest.loops[:depth] if x.var.name != ROW]
        lets = (i for i in nest.body if isinstance(i, Let) and i.depth == depth)
        dear = {i.name for i in lets if _is_dear(i)} - {a.name for a in nest.accumulators}
        if dear and _are_plain(nest.loops[:depth]) and loops and loops[-1] is nest.loops[depth - 1]:
            return _cut(nest, depth, dear) if loops[-1].hi - loops[-1].lo >= LEAST else None
    return None


def _are_plain(loops: Sequence[Loop]) -> bool:
    sizes = [x.hi - x.lo for x in loops]
    rows = (x for x in loops if x.var.name == ROW)
    plain = all(type(x) is Loop and x.each == 1 for x in loops) and all(x.hi == 1 for x in rows)
    return plain and math.prod(sizes) <= MOST


def _cut(nest: Nest, depth: int, dear: Collection[str]) -> _Found | None:
    """What is read of the numbers that the dear ones become at their depth, if kernels can keep it."""
    derived, running = set(dear), {a.name for a in nest.accumulators}
    for i in nest.body:
        if isinstance(i, Let) and i.depth == depth and i.name not in running:
            derived |= set() if derived.isdisjoint(_reads(i)) else {i.name}
    others = [i for i in nest.instructions if not (isinstance(i, Let) and i.name in derived)]
    read = {name for i in others for name in _reads(i)} | {n for a in nest.accumulators for n in refs(a.init)}
    cut = tuple(i.name for i in nest.body if isinstance(i, Let) and i.name in derived and i.name in read)
    made = _closure(nest, cut)
    if made is None or not cut or len(cut) > TILES or not _floats(made).issuperset(cut):
        return None
    return _Found(depth, cut, made)


def _closure(nest: Nest, cut: Iterable[str]) -> tuple[Instr, ...] | None:
    """What makes the numbers, in order; None where that is more than loads and lets of the body."""
    stored = {i.buffer for i in nest.instructions if isinstance(i, Store)}
    running = {a.name for a in nest.accumulators}
    known = {i.name: i for i in nest.body if not isinstance(i, Store) and i.name not in running}
    needed, todo = set[str](), list(cut)
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        made = known.get(name)
        if made is None or (isinstance(made, Load) and made.buffer in stored):
            return None
        needed.add(name)
        todo += _reads(made)
    return tuple(i for i in nest.body if not isinstance(i, Store) and i.name in needed)


def _floats(made: Iterable[Instr]) -> set[str]:
    """Names of those that are f32."""
    found: set[str] = set()
    for i in made:
        match i:
            case Load(name, buffer) if buffer.type.dtype.compute is DType.F32:
                found.add(name)
            case Let(name, value) if _is_float(value, found):
                found.add(name)
    return found


def _is_float(e: Expr, floats: Collection[str]) -> bool:
    match e:
        case Const(_, dtype):
            return dtype is DType.F32
        case Ref(name):
            return name in floats
        case Call("select", (_, x, _)):
            return _is_float(x, floats)
        case Call("convert_f32", _):
            return True
        case Call(function, args) if function not in _TESTS and function in INTRINSICS:
            typed = INTRINSICS[function].takes in _OF_ONE_TYPE
            return typed and any(_is_float(x, floats) for x in args)
    return False


def _is_dear(i: Let) -> bool:
    return expr_cycles(i.value, cpu_cycles) >= DEAR


def _place(loops: Sequence[Loop]) -> tuple[Index, int]:
    """The element of a tile that a turn has, and how many there are."""
    place, size = const(0), 1
    for loop in reversed(loops):
        if loop.var.name != ROW:
            place = add(place, mul(add(var(loop.var), const(-loop.lo)), size))
            size *= loop.hi - loop.lo
    return place, size


def _instead(i: Instr, tiles: dict[str, Buffer], place: Index) -> Instr:
    if isinstance(i, Let) and i.name in tiles:
        return Load(i.name, tiles[i.name], place, i.depth)
    return i


def _used(body: Sequence[Instr], nest: Nest) -> list[Instr]:
    """The nest's body without what nobody reads any more; running values stay, whoever goes on from them."""
    read = {name for i in nest.after for name in _reads(i)} | {a.name for a in nest.accumulators}
    read |= {name for a in nest.accumulators for name in refs(a.init)}
    kept: list[Instr] = []
    for i in reversed(body):
        if isinstance(i, Store) or i.name in read:
            read.update(_reads(i))
            kept.append(i)
    return kept[::-1]


def _reads(i: Instr) -> list[str]:
    value = [] if isinstance(i, Load) else list(refs(i.value))
    return value if isinstance(i, Let) else [*value, *index_refs(i.offset)]
