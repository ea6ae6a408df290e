"""What emitted kernels are made of: forms of lanes, teams, what is left over, who shares a launch.

met(made) == Counter({"form: keep": 2, "team: 64": 1, "teams together: 1 + 64": 1,
                      "left over: rows of teams": 1, ...})
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from jstitch.codegen.cuda.deal import Dealt
from jstitch.codegen.cuda.emit import Emitted
from jstitch.codegen.cuda.homes import InArena, InParts, InRegisters
from jstitch.codegen.cuda.launch_buffers import LaunchBuffers, touched_buffers
from jstitch.codegen.cuda.launch_lane import RowLane
from jstitch.codegen.cuda.launch_strips import _after_columns, _Columns, _Rows
from jstitch.codegen.cuda.launch_tiles import _Tiles
from jstitch.codegen.cuda.tile_axes import find_axes
from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, StripLane
from jstitch.device_spec import find_spec
from jstitch.ir.graph import Value
from jstitch.ir.ops import KERNEL
from tests.codegen.cuda.stitched import Stitched

ARENA = find_spec("h200").shared_optin
TEAMS = tuple(1 << k for k in range(11))
FORMS = (
    *("uniform", "spread", "reduce", "keep", "tiles", "strips"),
    *("reduce, one kept element after another", "keep, in slices", "one row", "flat", "several CTAs a row"),
    *("partial results", "flat with partial results", "tiles, wide", "tiles in planes"),
    *("strips with their columns", "strips without columns", "keep, sums that threads share"),
)
HOMES = (
    *("registers", "arena of a thread's own", "arena of the team", "a row in parts"),
    *("partial results", "partial results, in the arena"),
)
LEFT_OVER = (
    *("rows of teams", "rows of programs", "elements of threads", "elements of slices"),
    *("a tile along", "a tile across", "rows of bands", "columns of threads"),
)
WITHOUT_STRIPS = tuple(form for form in FORMS if not form.startswith("strips"))
"""What a lane among several in a launch can be: strips have launches of their own."""


@dataclass(frozen=True)
class LaneForms:
    """One lane. team: threads of a row, None where there are no rows."""

    forms: frozenset[str]
    team: int | None
    homes: frozenset[str] = frozenset()
    left_over: frozenset[str] = frozenset()


def met(made: Stitched) -> Counter[str]:
    """In how many launches each kind was met."""
    found: Counter[str] = Counter()
    for emitted in made.kernels.values():
        for phase, buffers, launch in zip(
            emitted.made.phases, emitted.made.buffers, emitted.made.codes, strict=True
        ):
            lanes = [_lane_forms(lane, _changed(buffers), launch.block) for lane in phase.lanes]
            found.update(_of_launch(lanes))
    return found


def packs(made: Stitched, parts: Collection[Collection[Value]]) -> bool:
    """Whether several of the parts, given by their inputs, have lanes in one launch."""
    owners = {v: frozenset([n]) for n, part in enumerate(parts) for v in part}
    for op in made.graph.ops:
        own = frozenset[int]().union(*(owners.get(v, frozenset()) for v in op.uses))
        owners.update(dict.fromkeys(op.results, own))
        if op.name == KERNEL and len(own) > 1:
            kernel = op.attrs["kernel"]
            reads = [owners.get(v, frozenset[int]()) for v in op.operands]
            if _shares(made.kernels[kernel], dict(zip(kernel.args, reads, strict=True)), kernel):
                return True
    return False


def _shares(emitted: Emitted, owners: dict[Buffer, frozenset[int]], kernel: Kernel) -> bool:
    """Whether a launch has lanes of several parts. owners: of the kernel's arguments."""
    nobody = frozenset[int]()
    for phase, buffers in zip(emitted.made.phases, emitted.made.buffers, strict=True):
        found = [nobody.union(*(owners.get(b, nobody) for b in touched_buffers(x))) for x in phase.lanes]
        if any(not a & b for a, b in itertools.combinations(filter(None, found), 2)):
            return True
        for lane, own in zip(phase.lanes, found, strict=True):
            for b in (b for b in touched_buffers(lane) if b in buffers.results):
                owners[b] = owners.get(b, nobody) | own
    return False


def _of_launch(lanes: list[LaneForms]) -> Iterator[str]:
    yield from {f"form: {form}" for lane in lanes for form in lane.forms}
    yield from {f"team: {lane.team}" for lane in lanes if lane.team}
    yield from {f"kept in: {home}" for lane in lanes for home in lane.homes}
    yield from {f"left over: {what}" for lane in lanes for what in lane.left_over}
    together = {
        tuple(sorted((a.team, b.team))) for a, b in itertools.combinations(lanes, 2) if a.team and b.team
    }
    yield from {f"teams together: {a} + {b}" for a, b in together}
    if len({(lane.forms, lane.team) for lane in lanes}) > 1:
        yield from {f"form among unlike: {form}" for lane in lanes for form in lane.forms}
    pairs = itertools.combinations(lanes, 2)
    yield from {f"forms together: {a} + {b}" for x, y in pairs for a, b in _forms_together(x, y)}


def _forms_together(x: LaneForms, y: LaneForms) -> Iterator[tuple[str, str]]:
    for a, b in itertools.product(x.forms, y.forms):
        yield (a, b) if a <= b else (b, a)


# -- lanes ------------------------------------------------------------------------------------------------


def _lane_forms(lane: Lane, changed: Collection[Buffer], block: int) -> LaneForms:
    """As the emitter chooses: strips, else tiles, else rows."""
    if isinstance(lane, StripLane):
        return _of_strips(lane, block)
    axes = find_axes(lane, lambda b: b not in changed)
    if axes is not None:
        tiles = _Tiles(lane, axes, str, lambda b: b not in changed, block, "")
        if tiles.shared <= ARENA:
            return _of_tiles(tiles)
    return _of_rows(RowLane(lane, str, lambda b: b not in changed, ARENA, block, ""))


def _of_strips(lane: StripLane, block: int) -> LaneForms:
    columns = _Columns(lane, str, lambda _: True, block, "") if lane.before else None
    rows = _Rows(_after_columns(lane), columns, str, lambda _: True, ARENA, block, "")
    found = _of_rows(rows)
    forms = {"strips", "strips with their columns" if lane.before else "strips without columns"}
    left = {"rows of bands"} if lane.rows % lane.bands else set()
    left |= {"columns of threads"} if lane.columns & (lane.columns - 1) else set()
    return LaneForms(frozenset(forms), found.team, found.homes, frozenset(left))


def _of_tiles(tiles: _Tiles) -> LaneForms:
    forms = {"tiles"}
    forms |= {"tiles, wide"} if tiles.shape.wide else set()
    forms |= {"tiles in planes"} if math.prod(d.extent for d in tiles.axes.planes) > 1 else set()
    along, across = tiles._cut
    left = [what for what, cut in (("a tile along", along), ("a tile across", across)) if cut]
    return LaneForms(frozenset(forms), None, frozenset(), frozenset(left))


def _of_rows(lane: RowLane) -> LaneForms:
    homes = lane.homes
    forms = {_form(lane, d) for d in homes.nests}
    forms |= {"one row"} if lane.rows == 1 and not lane.lane.flat else set()
    forms |= {"flat"} if lane.lane.flat else set()
    forms |= {"several CTAs a row"} if lane.chunks > 1 else set()
    forms |= {"keep, sums that threads share"} if any(homes.parts(d) > 1 for d in homes.nests) else set()
    if homes.carries:
        forms.add("flat with partial results" if lane.lane.flat else "partial results")
    return LaneForms(
        frozenset(forms), lane.team.threads, frozenset(_homes(lane)), frozenset(_left_over(lane))
    )


def _form(lane: RowLane, d: Dealt) -> str:
    if lane.sliced and d.long:
        return "keep, in slices"
    return "reduce, one kept element after another" if d.serial else d.mode.value


def _homes(lane: RowLane) -> Iterator[str]:
    for buffer, home in (*lane.homes.tiles.items(), *((b, h) for (b, _), h in lane.homes.kept.items())):
        if buffer in lane.homes.carries:
            yield "partial results" if not isinstance(home, InArena) else "partial results, in the arena"
            continue
        match home:
            case InRegisters():
                yield "registers"
            case InArena(_, own):
                yield "arena of a thread's own" if own else "arena of the team"
            case InParts():
                yield "a row in parts"


def _left_over(lane: RowLane) -> Iterator[str]:
    homes, team = lane.homes, lane.team
    if homes.carries:
        if lane.rows % lane.lane.programs:
            yield "rows of programs"
    elif lane.rows > 1 and lane.chunks == 1 and lane.rows % team.teams:
        yield "rows of teams"
    for d in homes.nests:
        if d.loops and not d.serial and d.size % (team.threads * homes.widths.get(d.size, 1)):
            yield "elements of slices" if lane.sliced else "elements of threads"


# -- buffers ----------------------------------------------------------------------------------------------


def _changed(buffers: LaunchBuffers) -> set[Buffer]:
    """What a launch writes, under each of its names."""
    return {*buffers.results, *(buffers.operands[k] for k in buffers.aliases.values())}
