"""Kernel -> text of CUDA kernels: a launch for each phase, lanes side by side in its grid (packing).

Lanes that differ only in their buffers share one piece of code; a CTA finds its lane, and the lane's
pointers, by its number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.branches import choose_branch, indent
from jstitch.codegen.cuda.emit_lane import LaneText, emit_lane
from jstitch.codegen.cuda.emit_strips import emit_strips
from jstitch.codegen.cuda.emit_tiles import emit_tiles
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.index_bits import index_bits
from jstitch.codegen.cuda.launch_buffers import LaunchBuffers, launch_buffers, touched_buffers
from jstitch.codegen.cuda.source import CudaSource, Launch, Mode, Parameter
from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Phase, StripLane
from jstitch.codegen.memory_map import LaneMap
from jstitch.codegen.rename import rename_lane

BLOCK = 256


@dataclass(frozen=True)
class Emitted:
    """The source, its launches' phases and buffers, and where lanes keep values (alike ones once).

    phases: one for each launch; they may be more than the kernel's (`_by_block`).
    """

    source: CudaSource
    phases: tuple[Phase, ...]
    launches: tuple[LaunchBuffers, ...]
    memory: tuple[LaneMap, ...] = ()


def emit(kernel: Kernel, arena_bytes: int) -> Emitted:
    """Text and launches of a kernel. arena_bytes: shared memory that a CTA may have. Raises NoRoom."""
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
    texts = ["\n".join(part.text()) for part in parts]
    body = "".join(f"\n\n{text}\n" for text in texts).rstrip("\n")
    launches = tuple(part.launch(text) for part, text in zip(parts, texts, strict=True))
    memory = tuple(replace(found, phase=n) for n, part in enumerate(parts) for found in part.memory())
    source = CudaSource(kernel.name, f"{_imports(body)}{body}\n", launches)
    return Emitted(source, tuple(p.phase for p in parts), tuple(p.buffers for p in parts), memory)


def _by_block(phase: Phase, arena_bytes: int) -> list[Phase]:
    """Lanes for CTAs of one size together: in a larger one, more teams share the arena. Raises NoRoom."""
    found: dict[int, list[Lane]] = {}
    for lane in phase.lanes:
        part = _Phase(Phase((lane,)), "", {}, set(), arena_bytes)
        found.setdefault(part.block, []).append(lane)
    return [Phase(tuple(lanes)) for lanes in found.values()]


def _imports(body: str) -> str:
    nodes = ast.walk(ast.parse(body))
    calls = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)} - {"range"}
    return f"from jstitch.codegen.cuda.math import {', '.join(sorted(calls))}\n"


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
        self.block = max(text.block for text, _ in self.pieces)

    # -- lanes ----------------------------------------------------------------------------------------

    def _pieces(self) -> list[tuple[LaneText, list[Lane]]]:
        """Lanes of one code together, all for CTAs of one size."""
        block = max(self._emit(lane, BLOCK).block for lane in self.phase.lanes)
        found: dict[LaneText, list[Lane]] = {}
        for lane in self.phase.lanes:
            found.setdefault(self._emit(_unquoted(lane), block), []).append(lane)
        return [
            (self._emit(lanes[0], block, named=len(lanes) == 1, tag=_tag(n)), lanes)
            for n, lanes in enumerate(found.values())
        ]

    def _emit(self, lane: Lane, block: int, named: bool = False, tag: str = "") -> LaneText:
        """named: by the kernel's names of its buffers; else by numbers, which equal lanes share.

        tag: in all names: one name has one type in a function.
        """
        numbers = {b: b.name if named else f"b{tag}{n}" for n, b in enumerate(touched_buffers(lane))}
        given = numbers.__getitem__, lambda b: b not in self.changed, self.arena_bytes, block, tag
        own = rename_lane(lane, tag)
        if isinstance(own, StripLane):
            return emit_strips(own, *given)
        return emit_tiles(own, *given) or emit_lane(own, *given)

    # -- text -----------------------------------------------------------------------------------------

    def text(self) -> list[str]:
        """The phase's function."""
        out = [f"def {self.name}({', '.join(self._parameters())}):"]
        branches: list[tuple[int, list[str]]] = []
        end = 0
        for n, (text, lanes) in enumerate(self.pieces):
            body = self._piece(text, lanes, end, _tag(n))
            end += text.programs * len(lanes)
            branches.append((end, body))
        return [*out, *indent(choose_branch(branches, "block()"))]

    def _piece(self, text: LaneText, lanes: Sequence[Lane], base: int, tag: str) -> list[str]:
        lane = lanes[0]
        what = f"{lane.rows} rows, {text.programs} programs of {text.block} threads"
        out = [f"# {what}" + (f", {len(lanes)} times" if len(lanes) > 1 else "")]
        first = f"block() - {base}" if base else "block()"
        if len(lanes) == 1:
            return [*out, f"p = {first}", *text.lines]
        out += [f"lane = quotient({first}, {text.programs})", f"p = remainder_pos({first}, {text.programs})"]
        out += choose_branch([(k + 1, _pointers(lane, tag)) for k, lane in enumerate(lanes)], "lane")
        return out + list(text.lines)

    def memory(self) -> Iterator[LaneMap]:
        """Of each piece of code that keeps something."""
        for text, lanes in self.pieces:
            number = next(n for n, lane in enumerate(self.phase.lanes) if lane is lanes[0])
            if text.memory.areas:
                yield replace(text.memory, lane=number, times=len(lanes))

    # -- launch ---------------------------------------------------------------------------------------

    def _parameters(self) -> list[str]:
        operands = [
            b.name if b not in self.buffers.results else f"{b.name}_in" for b in self.buffers.operands
        ]
        return operands + [b.name for b in self.buffers.results]

    def launch(self, text: str) -> Launch:
        """text: of its function."""
        grid = sum(text.programs * len(lanes) for text, lanes in self.pieces)
        shared = max(text.shared_bytes for text, _ in self.pieces)
        work = sum(lane.work for lane in self.phase.lanes)
        moved = [(text.traffic, len(lanes)) for text, lanes in self.pieces]
        return Launch(
            self.name,
            grid,
            self.block,
            shared,
            index_bits(text, grid, self.block),
            self._described(),
            work,
            sum(read * n for (read, _), n in moved),
            sum(written * n for (_, written), n in moved),
        )

    def _described(self) -> tuple[Parameter, ...]:
        aliased = {self.buffers.operands[k] for k in self.buffers.aliases.values()}
        names = self._parameters()
        count = len(self.buffers.operands)
        found = []
        for n, (name, b) in enumerate(
            zip(names, (*self.buffers.operands, *self.buffers.results), strict=True)
        ):
            mode: Mode = "write" if n >= count else "read"
            if b in aliased or (n >= count and n - count in self.buffers.aliases):
                mode = "update"
            found.append(Parameter(name, b.type.dtype.name.lower(), b.type.size, mode))
        return tuple(found)


def _unquoted(lane: Lane) -> Lane:
    """The lane without the user's lines: equal lanes of different lines share code."""
    return replace(lane, stages=tuple(replace(stage, lines=()) for stage in lane.stages))


def _pointers(lane: Lane, tag: str) -> list[str]:
    return [f"b{tag}{k} = {b.name}" for k, b in enumerate(touched_buffers(lane))]


def _tag(part: int) -> str:
    return f"{part}_" if part else ""
