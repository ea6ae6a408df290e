"""Products on a GPU store sums as narrow as they become, where nothing but a rounding is made of them.

    multiply t1[16, 256] = t0[16, 64] * a1[64, 256]         multiply t2[16, 256] = t0[16, 64] * a1[64, 256]
    for r in [0, 16):                                 ->
      for i in [0, 256):
        t2[r, i] = convert_bf16(t1[r, i])

A warp has its sums in registers: a tile of f32 for them alone would be twice as large as what is wanted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from jstitch.codegen.kernel_ir import Buffer, Instr, Kernel, Lane, Let, Load, Nest, Product, Space, Store
from jstitch.codegen.map_kernel import map_lanes
from jstitch.ir.expr import Ref, call
from jstitch.ir.index import substitute, var
from jstitch.ir.types import HALVES, DType
from jstitch.passes.schedule.tile_products import Axes


def round_products(kernel: Kernel) -> Kernel:
    """The kernel, whose rounded sums need no tile."""
    return map_lanes(kernel, _in_lane)


def _in_lane(lane: Lane) -> Lane:
    if not lane.multiplies:
        return lane
    nests = [nest for stage in lane.stages for nest in stage.nests]
    reads = Counter(_read(nests))
    made: dict[int, Nest | None] = {}
    for product, copy in pairwise(nests):
        if isinstance(product, Product) and reads[product.result.buffer] == 1:
            found = _rounded(product, copy, lane)
            made |= {} if found is None else {id(product): found, id(copy): None}
    if not made:
        return lane
    stages = []
    for stage in lane.stages:
        kept = tuple(x for nest in stage.nests if (x := made.get(id(nest), nest)) is not None)
        stages += [replace(stage, nests=kept)] if kept else []
    return replace(lane, stages=tuple(stages))


def _read(nests: Iterable[Nest]) -> Iterable[Buffer]:
    for nest in nests:
        if isinstance(nest, Product):
            yield from (nest.left.buffer, nest.right.buffer)
        else:
            yield from (i.buffer for i in nest.instructions if isinstance(i, Load))


def _rounded(product: Product, copy: Nest, lane: Lane) -> Product | None:
    """The product with sums where the copy puts them; None where it is no copy, or there is no room yet."""
    found = _copied(copy.instructions, product.result.buffer)
    if isinstance(copy, Product) or copy.accumulators or len(copy.loops) != 2 or found is None:
        return None
    load, store, rounding = found
    row, column = copy.loops
    _, own, summed = product.loops
    axes = Axes.of(lane, column, summed)
    same = axes.matrix(load, lane, (axes.row, axes.column), axes.summed) == product.result
    result = axes.matrix(store, lane, (axes.row, axes.column), axes.summed)
    whole = (row, column.lo, column.hi) == (product.loops[0], own.lo, own.hi)
    if not (same and whole) or result is None or result.strides[1] != 1:
        return None
    if any(_overlap(store.buffer, m.buffer) for m in (product.left, product.right)):
        return None
    place = substitute(store.offset, lambda a: var(own.var) if a == column.var else None)
    total = Ref(product.accumulators[0].name)
    named = () if rounding is None else (Let(rounding, call(_rounding(store.buffer.type.dtype), total), 2),)
    value = total if rounding is None else Ref(rounding)
    return replace(product, result=result, after=(*named, Store(store.buffer, place, value, 2)))


def _copied(body: tuple[Instr, ...], tile: Buffer) -> tuple[Load, Store, str | None] | None:
    """A load of the tile, a store of it as 16 bits, and the rounded element's name, if it has one."""
    match body:
        case (Load(name, buffer) as load, Store(to, _, value) as store):
            rounding = None
        case (Load(name, buffer) as load, Let(rounding, done), Store(to, _, value) as store):
            if done != call(_rounding(to.type.dtype), Ref(name)):
                return None
        case _:
            return None
    right = buffer == tile and tile.space is Space.ARENA and value == Ref(rounding or name)
    return (load, store, rounding) if right and to.type.dtype in HALVES else None


def _rounding(dtype: DType) -> str:
    return f"convert_{dtype.value}"


def _overlap(a: Buffer, b: Buffer) -> bool:
    """Whether they share bytes of the arena, or are one."""
    if a.space is not Space.ARENA or b.space is not Space.ARENA:
        return a == b
    return a.offset < b.offset + b.type.nbytes and b.offset < a.offset + a.type.nbytes
