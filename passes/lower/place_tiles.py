"""Give the tiles of a lane their places in the arena: tiles that are never live at once share bytes.

    softmax of softmax, one row      touched in stages     bytes
      t0  exp                        1, 2                  [0, 3072)
      t1  exp of the second one      3, 4                  [0, 3072)

Nests of one stage run with no barrier between them, so a stage holds every tile that it touches. The stages
of a lane are therefore a chain of points that hold no bytes (see `plan_shared_memory`), and a tile feeds each
stage that touches it: the last of them dominates it, and only tiles of later stages may take its bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.kernel_ir import Buffer, Instr, Lane, Let, Loop, Nest, Turns
from jstitch.codegen.map_kernel import map_nests
from jstitch.codegen.tile_lives import lane_lives
from jstitch.ir.graph import Op
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.lower.form_groups import HELD
from jstitch.passes.lower.plan_shared_memory import (
    DoesNotFit,
    Priority,
    Request,
    SharedMemoryPlan,
    Stages,
    plan_shared_memory,
)
from jstitch.passes.lower.size_requirements import EXPENSIVE_CPI

ALIGN = 64


@dataclass(frozen=True)
class Tiles:
    """A lane with its tiles in place. buffers: they, in order. nbytes: the arena's size.

    dropped: numbers of tiles that found no room; their values must be computed again instead, so that the
    lane has to be lowered anew.
    """

    lane: Lane
    buffers: tuple[Buffer, ...]
    nbytes: int
    dropped: tuple[int, ...]


def tile_priority(op: Op) -> Priority:
    """How long a tile of the op's result keeps its bytes (FS-2018 section 5.1.1)."""
    if is_reduction(op):
        return Priority.MUST
    if op.attrs.get(HELD):
        return Priority.EXPENSIVE_INTO_DOT  # memory takes longer than any function
    definition = lookup(op.name)
    expensive = definition.op_class is OpClass.EXPENSIVE or definition.cpi >= EXPENSIVE_CPI
    return Priority.EXPENSIVE_SHARED if expensive else Priority.LIGHT_SHARED


def place_tiles(
    lane: Lane, tiles: Sequence[Buffer], priorities: Sequence[Priority], budget: int
) -> Tiles | DoesNotFit[int]:
    """Offsets for the tiles that the lane touches, within `budget` bytes for one program.

    tiles[n] has number n and priorities[n]. DoesNotFit: tiles that cannot be dropped need more than that.
    """
    if not tiles:
        return Tiles(lane, (), 0, ())
    touched = _touched(lane)
    order = sorted((t.number for t in tiles if t.number in touched), key=lambda n: (min(touched[n]), n))
    requests = {n: Request(tiles[n].type.nbytes, priorities[n]) for n in order}
    plan = _plan(len(lane.stages), touched, requests, budget, lane.shares)
    if isinstance(plan, DoesNotFit):
        return DoesNotFit({n: k for n, k in plan.remaining.items() if n >= 0}, plan.nbytes, plan.budget)
    placed = {tiles[n]: replace(tiles[n], offset=plan.offsets[n]) for n in order if n in plan.offsets}
    dropped = tuple(n for n in plan.dropped if n >= 0)
    return Tiles(_move(lane, placed), tuple(placed.values()), plan.nbytes, dropped)


def _touched(lane: Lane) -> dict[int, set[int]]:
    """Stages that need each tile first and last."""
    return {b.number: {*life} for b, life in lane_lives(lane).items()}


def _plan(
    stages: int, touched: Mapping[int, set[int]], requests: Mapping[int, Request], budget: int, share: bool
) -> SharedMemoryPlan[int] | DoesNotFit[int]:
    """A stage n is the node -1 - n, right after the tiles that it is the first to touch."""
    points = [-1 - n for n in range(stages)]
    order: list[int] = []
    for stage, point in enumerate(points):
        order += [n for n in requests if min(touched[n]) == stage]
        order.append(point)
    edges = list(itertools.pairwise(points))
    edges += [(n, points[stage]) for n in requests for stage in sorted(touched[n])]
    all_requests = {n: requests.get(n, Request(0, Priority.MUST)) for n in order}
    graph = Stages(tuple(order), tuple(edges), frozenset(points[-1:]))
    return plan_shared_memory(graph, all_requests, budget, alignment=ALIGN, share=share)


def _move(lane: Lane, placed: Mapping[Buffer, Buffer]) -> Lane:
    """The lane with other buffers in its loads and stores, and in its loops."""

    def instr(i: Instr) -> Instr:
        return i if isinstance(i, Let) or i.buffer not in placed else replace(i, buffer=placed[i.buffer])

    def nest(n: Nest) -> Nest:
        return replace(n, body=tuple(map(instr, n.body)), after=tuple(map(instr, n.after)))

    moved = map_nests(lane, nest)
    return replace(moved, stages=tuple(replace(s, turn=_moved(s.turn, placed)) for s in moved.stages))


def _moved(loop: Loop | None, placed: Mapping[Buffer, Buffer]) -> Loop | None:
    """The loop of stages, which may ask for what is in a tile."""
    if not isinstance(loop, Turns) or loop.unless is None:
        return loop
    return replace(loop, unless=replace(loop.unless, tile=placed[loop.unless.tile]))
