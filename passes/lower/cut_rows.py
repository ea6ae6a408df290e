"""Cut a lane of elements where an index of theirs leaves a tensor: between, no element has to be asked.

y[r] = x[r] + (r >= 1 ? x[clamp(r - 1, 0, n - 1)] : 0)      rows [0, 16) as they are; [16, n): x[r] + x[r - 1]

Pads, concatenates and rolls of one-dimensional tensors. A CPU's loops are vectors only without the question.
Rolls and concatenates of whole rows, too: else each of their elements would be loaded from all operands.
Each part has its own share of the lane's programs, and of what these add up. Parts of a concatenate write no
more than the whole; where others would write too much, only the longest part is apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jstitch.codegen.kernel_ir import FLAT_ALIGN, ROW, Lane, Let, Nest
from jstitch.ir.expr import Call, Expr, Number, Ref
from jstitch.ir.index import Clamp, Index, Var, atoms
from jstitch.passes.lower.divide_loops import FEW_POINTS, MOST_CODE, fewer_points, without_edges

FEW = 16 * FLAT_ALIGN
"""Elements that are not worth lanes of their own."""

MANY_STEPS, MUCH_WORK = 16, 1 << 14
"""Of rows, and elements of work in all of them: fewer are not worth it."""

FEW_SUMS = 2
"""Programs for each part, where all programs leave a sum each: with fewer, cores would wait for one.
Of many parts, the even shares that one program may have: in one part, each element is asked for them all."""


@dataclass(frozen=True)
class RowsPart:
    """Rows [low, high) of a lane, and its programs [first, first + programs)."""

    low: int
    high: int
    first: int
    programs: int


def rest_apart(rows: int, step: int, programs: int) -> tuple[RowsPart, RowsPart] | None:
    """Whole steps and the rows that fill none, which are the last program's; None where all fill steps."""
    whole, shared = rows - rows % step, max(1, programs - 1)
    return (RowsPart(0, whole, 0, shared), RowsPart(whole, rows, shared, 1)) if whole < rows else None


def cut_rows(lane: Lane) -> Iterator[list[RowsPart]]:
    """Parts of the rows, the finest first; none where the lane is better whole."""
    if lane.rows < FEW if lane.flat else not _is_worth_it(lane):
        return
    points = _points(lane)
    few = fewer_points(points, lane.programs // FEW_SUMS + 1)
    ways = [fewer_points(points), *([few] if _adds_up(lane) else []), without_edges(points)]
    for found in dict.fromkeys(map(tuple, ways)):
        if parts := [*_parts(found, lane)]:
            yield parts


def are_short(parts: Sequence[Lane], whole: Lane) -> bool:
    """Whether the parts are written in little code: in no more than the whole, where that is much."""
    if whole.flat and len(parts) < FEW_POINTS:
        return True
    return sum(map(_code, parts)) <= max(MOST_CODE, _code(whole))


def _points(lane: Lane) -> list[int]:
    """Between which the rows are: whole steps, or whole vectors where that leaves few."""
    seams = {*_seams(lane)}
    step = lane.step if not lane.flat else FLAT_ALIGN if len(seams) <= FEW_POINTS // 2 else 1
    ends = ({seam // step * step, min(lane.rows, -(-seam // step) * step)} for seam in seams)
    return sorted({0, lane.rows}.union(*ends))


def _parts(points: Sequence[int], lane: Lane) -> Iterator[RowsPart]:
    """None where nothing is cut, or each would have too few programs."""
    parts = [*itertools.pairwise(points)]
    if len(parts) < 2:
        return
    if not _adds_up(lane):
        yield from _more(parts, lane)
    elif len(parts) < FEW_POINTS or lane.programs < len(parts):
        yield from _shares(parts, lane) if lane.programs >= FEW_SUMS * len(parts) else ()
    else:
        found = [*_shares(parts, lane)]
        most = max((each.high - each.low) / each.programs for each in found)
        yield from found if most * lane.programs <= FEW_SUMS * lane.rows else ()


def _adds_up(lane: Lane) -> bool:
    return any(stage.once for stage in lane.stages)


def _code(lane: Lane) -> int:
    return sum(len(nest.body) for stage in lane.stages for nest in stage.nests)


def _is_worth_it(lane: Lane) -> bool:
    """Whether a lane of whole rows has many, passes over them once, and asks whose a row is.

    (What asks whether there is a row, as behind a pad, is a mask that costs next to nothing.)
    """
    passes = [stage for stage in lane.stages if not stage.once]
    if lane.rows < MANY_STEPS * lane.step or lane.work < MUCH_WORK or len(passes) != 1:
        return False
    return any(map(_joins_rows, passes[0].nests))


def _joins_rows(nest: Nest) -> bool:
    asks: set[Expr] = set()
    for i in nest.instructions:
        match i:
            case Let(name, Call("ge" | "lt", (Number(of), _))) if _is_of_row(of):
                asks.add(Ref(name))
            case Let(name, Call("and_", both)) if asks.issuperset(both):
                asks.add(Ref(name))
            case Let(_, Call("select", (test, Ref(), Ref()))) if test in asks:
                return True
    return False


def _is_of_row(e: Index) -> bool:
    return any(isinstance(atom, Var) and atom.name == ROW for atom in atoms([e]))


def _shares(parts: Sequence[tuple[int, int]], lane: Lane) -> Iterator[RowsPart]:
    """As many programs for all of them as before: each next one for that with the most rows a program."""
    own = [1] * len(parts)
    for _ in range(lane.programs - len(parts)):
        most = max(range(len(parts)), key=lambda n: (parts[n][1] - parts[n][0]) / own[n])
        own[most] += 1
    first = 0
    for (low, high), programs in zip(parts, own, strict=True):
        yield RowsPart(low, high, first, programs)
        first += programs


def _more(parts: Sequence[tuple[int, int]], lane: Lane) -> Iterator[RowsPart]:
    """As many programs for most of the rows as all had: fewer of them, and cores would wait for one."""
    first = 0
    for low, high in parts:
        own = max(1, min((high - low) // lane.step, round(lane.programs * (high - low) / lane.rows)))
        yield RowsPart(low, high, first, own)
        first += own


def _seams(lane: Lane) -> Iterator[int]:
    """Rows at which a clamped index begins or ends to be itself."""
    nests = (nest for stage in lane.stages for nest in stage.nests)
    offsets = (i.offset for nest in nests for i in nest.instructions if not isinstance(i, Let))
    for atom in atoms(offsets):
        match atom:
            case Clamp(Index(base, ((Var(name), 1),)), low, high) if name == ROW:
                yield from (edge for edge in (low - base, high + 1 - base) if 0 < edge < lane.rows)
