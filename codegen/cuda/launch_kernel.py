"""Kernel -> Launch IR for CUDA: a launch for each phase, lanes side by side in its grid (packing).

Lanes that differ only in their buffers share one piece of code; a CTA finds its lane, and the lane's
pointers, by its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.branches import choose_branch
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.launch_buffers import LaunchBuffers, launch_buffers, touched_buffers
from jstitch.codegen.cuda.launch_lane import LaneCode, launch_lane
from jstitch.codegen.cuda.launch_products import launch_products
from jstitch.codegen.cuda.launch_strips import launch_strips
from jstitch.codegen.cuda.launch_tiles import launch_tiles
from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Phase, StripLane
from jstitch.codegen.launch_ir import Body, Comment, If, Integer, LaunchCode, Mode, Parameter, Pointer
from jstitch.codegen.launch_places import CTA, MOST_CTAS, Less
from jstitch.codegen.memory_map import LaneMap
from jstitch.codegen.rename import rename_lane
from jstitch.ir.index import Index, Var, const, var
from jstitch.ir.reason import Reason

BLOCK = 256
GRID = "needs {found} CTAs, a launch has {bound} at most"


@dataclass(frozen=True)
class Launches:
    """A kernel's launches, with their phases and buffers, and where lanes keep values (alike ones once).

    phases: one for each launch; they may be more than the kernel's (`_by_block`).
    """

    codes: tuple[LaunchCode, ...]
    phases: tuple[Phase, ...]
    buffers: tuple[LaunchBuffers, ...]
    memory: tuple[LaneMap, ...] = ()


def launch_kernel(kernel: Kernel, arena_bytes: int) -> Launches:
    """The launches of a kernel. arena_bytes: shared memory that a CTA may have. Raises NoRoom."""
    parts: list[_Phase] = []
    written: set[Buffer] = set()
    todo = list(kernel.phases)
    while todo:
        phase = todo.pop(0)
        try:
            part = _Phase(phase, f"phase{len(parts)}", kernel.in_place, written, arena_bytes)
        except NoRoom:
            alike = _by_block(phase, arena_bytes)
            if len(alike) == 1:
                raise
            todo = alike + todo
            continue
        parts.append(part)
        written |= set(part.buffers.results)
    memory = tuple(replace(found, phase=n) for n, part in enumerate(parts) for found in part.memory())
    codes = tuple(part.code() for part in parts)
    return Launches(codes, tuple(p.phase for p in parts), tuple(p.buffers for p in parts), memory)


def _by_block(phase: Phase, arena_bytes: int) -> list[Phase]:
    """Lanes for CTAs of one size together: in a larger one, more teams share the arena. Raises NoRoom."""
    found: dict[int, list[Lane]] = {}
    for lane in phase.lanes:
        part = _Phase(Phase((lane,)), "", {}, set(), arena_bytes)
        found.setdefault(part.block, []).append(lane)
    return [Phase(tuple(lanes)) for lanes in found.values()]


class _Phase:
    def __init__(
        self,
        phase: Phase,
        name: str,
        in_place: Mapping[Buffer, Buffer],
        written: set[Buffer],
        arena_bytes: int,
    ) -> None:
        self.phase, self.name, self.arena_bytes = phase, name, arena_bytes
        self.buffers = launch_buffers(phase, in_place, written)
        self.changed = {*self.buffers.results, *(in_place[r] for r in self.buffers.results if r in in_place)}
        self.pieces = self._pieces()
        self.block = max(code.block for code, _ in self.pieces)

    # -- lanes ----------------------------------------------------------------------------------------

    def _pieces(self) -> list[tuple[LaneCode, list[Lane]]]:
        """Lanes of one code together, all for CTAs of one size."""
        if len(self.phase.lanes) == 1:
            return [(self._lane(*self.phase.lanes, BLOCK, named=True), list(self.phase.lanes))]
        block = max(self._lane(lane, BLOCK).block for lane in self.phase.lanes)
        found: dict[LaneCode, list[Lane]] = {}
        for lane in self.phase.lanes:
            found.setdefault(self._lane(_unquoted(lane), block), []).append(lane)
        return [
            (self._lane(lanes[0], block, named=len(lanes) == 1, tag=_tag(n)), lanes)
            for n, lanes in enumerate(found.values())
        ]

    def _lane(self, lane: Lane, block: int, named: bool = False, tag: str = "") -> LaneCode:
        """named: by the kernel's names of its buffers; else by numbers, which equal lanes share.

        tag: in all names: one name has one type in a function.
        """
        numbers = {b: b.name if named else f"b{tag}{n}" for n, b in enumerate(touched_buffers(lane))}
        given = numbers.__getitem__, lambda b: b not in self.changed, self.arena_bytes, block, tag
        own = rename_lane(lane, tag)
        if isinstance(own, StripLane):
            return launch_strips(own, *given)
        if own.multiplies:
            return launch_products(own, *given)
        return launch_tiles(own, *given) or launch_lane(own, *given)

    # -- code -----------------------------------------------------------------------------------------

    def code(self) -> LaunchCode:
        """Raises NoRoom for a grid that is too large."""
        grid = sum(code.programs * len(lanes) for code, lanes in self.pieces)
        if grid > MOST_CTAS:
            raise NoRoom(Reason("form", GRID, grid, MOST_CTAS))
        moved = [(code.traffic, len(lanes)) for code, lanes in self.pieces]
        return LaunchCode(
            self.name,
            grid,
            self.block,
            max(code.shared_bytes for code, _ in self.pieces),
            self._parameters(),
            tuple(self._body()),
            sum(lane.work for lane in self.phase.lanes),
            sum(read * n for (read, _), n in moved),
            sum(written * n for (_, written), n in moved),
        )

    def _body(self) -> Body:
        branches: list[tuple[int, Body]] = []
        end = 0
        for n, (code, lanes) in enumerate(self.pieces):
            body = self._piece(code, lanes, end, _tag(n))
            end += code.programs * len(lanes)
            branches.append((end, body))
        return _choose(branches, CTA)

    def _piece(self, code: LaneCode, lanes: Sequence[Lane], base: int, tag: str) -> Body:
        lane = lanes[0]
        what = f"{lane.rows_in_words}, {code.programs} programs of {code.block} threads"
        body: Body = [Comment(what + (f", {len(lanes)} times" if len(lanes) > 1 else ""))]
        first = CTA - base
        if len(lanes) == 1:
            return [*body, Integer("p", first), *code.body]
        body += [Integer("lane", first // code.programs), Integer("p", first % code.programs)]
        number = var(Var("lane", len(lanes)))
        body += _choose([(k + 1, _pointers(lane, tag)) for k, lane in enumerate(lanes)], number)
        return [*body, *code.body]

    def memory(self) -> Iterator[LaneMap]:
        """Of each piece of code that keeps something."""
        for code, lanes in self.pieces:
            number = next(n for n, lane in enumerate(self.phase.lanes) if lane is lanes[0])
            if code.memory.areas:
                yield replace(code.memory, lane=number, times=len(lanes))

    def _parameters(self) -> tuple[Parameter, ...]:
        """Operands, then results; an operand that a result takes the memory of is told apart by its name."""
        found = self.buffers
        aliased = {found.operands[k] for k in found.aliases.values()}
        parameters = []
        for b in found.operands:
            mode: Mode = "update" if b in aliased else "read"
            name = f"{b.name}_in" if b in found.results else b.name
            parameters.append(Parameter(name, b.type.dtype.name.lower(), b.type.size, mode))
        for n, b in enumerate(found.results):
            mode = "update" if b in aliased or n in found.aliases else "write"
            parameters.append(Parameter(b.name, b.type.dtype.name.lower(), b.type.size, mode))
        return tuple(parameters)


def _choose(branches: Sequence[tuple[int, Body]], number: Index) -> Body:
    """The body of the first branch whose end is above the number."""
    return choose_branch(branches, lambda end, a, b: [If(Less(number, const(end)), tuple(a), tuple(b))])


def _unquoted(lane: Lane) -> Lane:
    """The lane without the user's lines: equal lanes of different lines share code."""
    return replace(lane, stages=tuple(replace(stage, lines=()) for stage in lane.stages))


def _pointers(lane: Lane, tag: str) -> Body:
    return [Pointer(f"b{tag}{k}", b.name) for k, b in enumerate(touched_buffers(lane))]


def _tag(part: int) -> str:
    return f"{part}_" if part else ""
