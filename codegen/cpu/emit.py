"""Kernel -> Numba source for the CPU.

A lane becomes a loop over the program's share of row steps; stages become loop nests in order (a barrier is
the end of a loop), innermost loops over contiguous elements that LLVM vectorises; the arena is a tile of
private, cache-resident memory. Lanes that differ only in their buffers share one piece of code (packing).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jstitch.codegen.branches import choose_branch, indent
from jstitch.codegen.comments import stage_comments
from jstitch.codegen.cpu.assign_slots import Slots
from jstitch.codegen.kernel_ir import (
    CACHE_LINE,
    ROW,
    STEP,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    LoadPair,
    Loop,
    Nest,
    Phase,
    Space,
    Stage,
    Store,
    StorePair,
    Streamed,
    touched_by,
)
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.codegen.print_expr import print_expr
from jstitch.codegen.print_index import print_index
from jstitch.codegen.rename import rename_lane
from jstitch.ir.index import Index, floordiv, mul


@dataclass(frozen=True)
class Emitted:
    """The source, and what its slots are: operand and result numbers of the kernel, in slot order."""

    source: KernelSource
    operands: tuple[int, ...]
    results: tuple[int, ...]


def emit(kernel: Kernel) -> Emitted:
    """Source whose phase functions have the runtime's signature (see kernel_source)."""
    slots = Slots(kernel)
    lines: list[str] = []
    for n, phase in enumerate(kernel.phases):
        lines += ["", "", *_emit_phase(phase, f"phase{n}", slots)]
    body = "\n".join(slots.resolve(line) for line in lines)
    phases = tuple(
        PhaseSource(f"phase{n}", sum(x.programs for x in phase.lanes), sum(x.work for x in phase.lanes))
        for n, phase in enumerate(kernel.phases)
    )
    source = KernelSource(
        kernel.name,
        f"{_imports(body)}{body}\n",
        len(slots.operands),
        len(slots.results),
        kernel.scratch_bytes,
        kernel.arena_bytes,
        phases,
    )
    return Emitted(source, tuple(slots.operands), tuple(slots.results))


def _imports(body: str) -> str:
    """Import lines for the names that the text uses."""
    nodes = list(ast.walk(ast.parse(body)))
    words = {n.id for n in nodes if isinstance(n, ast.Name)}
    lines = []
    for module, names in _MODULES.items():
        if words & names:
            lines.append(f"from {module} import {', '.join(sorted(words & names))}\n")
    calls = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    calls -= {"range", *_MODULES["numba"]}
    return "".join([*lines, f"from jstitch.codegen.cpu.math import {', '.join(sorted(calls))}\n"])


_MODULES = {
    "math": {"inf", "nan"},
    "numba": {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)},
}


def _below(end: int, first: list[str], rest: list[str]) -> list[str]:
    return [f"if program < {end}:", *indent(first), "else:", *indent(rest)]


def _emit_phase(phase: Phase, name: str, slots: Slots) -> list[str]:
    """The phase's function: programs are dealt out to lanes; those of the same code and memory share it."""
    classes: dict[tuple[object, ...], list[Lane]] = {}
    for lane in phase.lanes:
        spaces = (b.space for b in _buffers(lane))
        code = (line for line in _Lane(lane, slots.aliases).lines() if not line.lstrip().startswith("#"))
        classes.setdefault((*code, *spaces), []).append(lane)
    parts = [part for lanes in classes.values() for part in _packed(lanes, slots)]
    branches: list[tuple[int, list[str]]] = []
    base = 0
    for n, lanes in enumerate(parts):
        body = _emit_class(lanes, base, slots, f"{n}_" if n else "")
        base += lanes[0].programs * len(lanes)
        branches.append((base, body))
    chosen = choose_branch(branches, _below)
    return [f"def {name}(bufs, arena, program):", *indent(chosen)]


def _packed(lanes: Sequence[Lane], slots: Slots) -> list[list[Lane]]:
    """Lanes of the same code, cut into as few parts as find their buffers at even strides."""
    parts: list[list[Lane]] = []
    members: list[Sequence[Buffer]] = []
    for lane in sorted(lanes, key=lambda lane: slots.places(_buffers(lane))):
        members.append(_buffers(lane))
        if parts and slots.can_pack(members):
            parts[-1].append(lane)
        else:
            parts.append([lane])
            members = [_buffers(lane)]
    return parts


def _emit_class(lanes: Sequence[Lane], base: int, slots: Slots, tag: str) -> list[str]:
    """One lane's code, its pointers chosen by the lane's number when there are several lanes.

    tag: in all names: one name has one type in a function, and is assigned in one place.
    """
    lane = lanes[0]
    rows = lane.rows_in_words + (f", {lane.step} at a time" if lane.step > 1 else "")
    out = [f"# {rows}, {lane.programs} programs" + (f", {len(lanes)} times" if len(lanes) > 1 else "")]
    first = f"program - {base}" if base else "program"
    if len(lanes) > 1:
        out += [f"lane = quotient({first}, {lane.programs})", f"p = remainder_pos({first}, {lane.programs})"]
    else:
        out.append(f"p = {first}")
    members = [_buffers(other) for other in lanes]
    for k, buffer in enumerate(members[0]):
        out.append(slots.pointer([m[k] for m in members], f"b{tag}{k}") + f"  # {buffer.type}")
    return out + _Lane(lane, slots.aliases, tag).lines()


class _Lane:
    """The code of one lane; buffers are b0, b1, ... in order of first use."""

    def __init__(self, lane: Lane, aliases: Mapping[Buffer, Buffer], tag: str = "") -> None:
        self.lane, self.tag = rename_lane(lane, tag), tag
        self.number = {b: n for n, b in enumerate(_buffers(lane))}
        for result, arg in aliases.items():
            if result in self.number and arg in self.number:
                self.number[arg] = self.number[result]
        self.scope = {**self.number, **_shared_scopes(self.number)}

    def lines(self) -> list[str]:
        once = [line for s in self.lane.stages if s.once for line in self._stage(s)]
        stages = [s for s in self.lane.stages if not s.once]
        out = once + self._steps([line for s in stages for line in [*self._prefetches(s), *self._stage(s)]])
        return [*out, "end_streams()"] if _streams(_instructions(self.lane.stages)) else out

    def _prefetches(self, stage: Stage) -> list[str]:
        """Loops that ask for rows of this step or the next, line by line."""
        row = ROW if self.lane.step == 1 else STEP
        out: list[str] = []
        for p in stage.prefetches:
            step = f"({row} + {p.ahead})" if p.ahead else row
            where = f"{self._pointer(p.buffer)}, {step} * {p.nbytes} + k * {CACHE_LINE}"
            out += [f"for k in range({p.first}, {p.last}):", f"    prefetch({where})"]
        return out

    def _steps(self, body: list[str]) -> list[str]:
        lane = self.lane
        if lane.rows == 1:
            return body
        if lane.flat:
            share = lane.share
            lo, hi = f"p * {share}", f"p * {share} + {share}"
            return [
                f"lo = clamp_index({lo}, 0, {lane.rows})",
                f"hi = clamp_index({hi}, 0, {lane.rows})",
                *body,
            ]
        steps = lane.rows // lane.step
        lo, hi = (
            f"lo = quotient(p * {steps}, {lane.programs})",
            f"hi = quotient((p + 1) * {steps}, {lane.programs})",
        )
        var = ROW if lane.step == 1 else STEP
        return [lo, hi, f"for {var} in range(lo, hi):", *indent(body)]

    def _stage(self, stage: Stage) -> list[str]:
        return [*stage_comments(stage), *(line for nest in stage.nests for line in self._nest(nest, 0))]

    def _nest(self, nest: Nest, depth: int) -> list[str]:
        out = [self._instr(i) for i in nest.body if i.depth == depth]
        if depth < len(nest.loops):
            out += [f"{a.name} = {print_expr(a.init)}" for a in nest.accumulators if a.depth == depth]
            out += self._loop(nest, depth, self._nest(nest, depth + 1))
        return out + [self._instr(i) for i in nest.after if i.depth == depth]

    def _loop(self, nest: Nest, depth: int, inner: list[str]) -> list[str]:
        loop, streams = nest.loops[depth], [s for s in _streams(nest.body) if s.loop == depth]
        if streams and not streams[0].whole:
            return self._blocks(loop, streams, inner)
        head = self._head(loop)
        flush = [self._flush(s, f"{s.tile.type.nbytes}") for s in streams]
        return [head, *indent(inner), *flush] if head else inner

    def _blocks(self, loop: Loop, streams: Sequence[Streamed], inner: list[str]) -> list[str]:
        """An innermost loop cut into blocks, whose results go to memory one by one."""
        name, block = loop.var.name, streams[0].tile.type.size
        blocks, first, last = f"{-(-loop.hi // block)}", "", f"{loop.hi}"
        if self.lane.flat:
            length = f"clamp_index(hi - lo, 0, {self.lane.share})"
            blocks, first, last = f"quotient({length} + {block - 1}, {block})", "lo + ", "hi"
        even = not self.lane.flat and loop.hi % block == 0
        out = [
            f"start = {first}w * {block}",
            f"end = start + {block}" if even else f"end = clamp_index(start + {block}, 0, {last})",
            f"for {name} in range(start, end):",
            *indent(inner),
            *(self._flush(s, f"(end - start) * {s.tile.type.dtype.itemsize}") for s in streams),
        ]
        return [f"for w in range(0, {blocks}):", *indent(out)]

    def _flush(self, s: Streamed, nbytes: str) -> str:
        offset = print_index(mul(s.target, s.tile.type.dtype.itemsize))
        return f"stream({self._pointer(s.buffer)}, {offset}, {self._pointer(s.tile)}, {nbytes})"

    def _head(self, loop: Loop) -> str | None:
        """The `for` line; None for the row loop of a one-row step, which is the step loop itself."""
        step = self.lane.step
        if loop.var.name != ROW:
            return f"for {loop.var.name} in range({loop.lo}, {loop.hi}):"
        if self.lane.flat:
            share = "lo, hi" if loop.each == 1 else f"quotient(lo, {loop.each}), quotient(hi, {loop.each})"
            return f"for {ROW} in range({share}):"
        return f"for {ROW} in range({STEP} * {step}, {STEP} * {step} + {step}):" if step > 1 else None

    def _instr(self, instr: Instr) -> str:
        match instr:
            case Let(name, value, _):
                return f"{name} = {print_expr(value)}"
            case LoadPair(name, b, offset, _):
                return f"{name} = load_u32({self._pointer(b)}, {_word(offset)}, {self._scope(b)})"
            case StorePair(b, offset, value, _, second):
                both = f"pack_bf16({print_expr(value)}, {print_expr(second)})"
                return f"store_u32({self._pointer(b)}, {_word(offset)}, {both}, {self._scope(b)})"
            case Load(name, b, offset, _):
                where = f"{self._pointer(b)}, {print_index(offset)}"
                return f"{name} = load_{_suffix(b)}({where}, {self._scope(b)})"
            case Streamed(_, _, value, _, b, offset) | Store(b, offset, value, _):
                where = f"{self._pointer(b)}, {print_index(offset)}"
                return f"store_{_suffix(b)}({where}, {print_expr(value)}, {self._scope(b)})"

    def _pointer(self, b: Buffer) -> str:
        return f"b{self.tag}{self.number[b]}"

    def _scope(self, b: Buffer) -> int:
        """0 is the table of pointers itself."""
        return self.scope[b] + 1


def _word(offset: Index) -> str:
    """The word that begins at an even element of two bytes."""
    return print_index(floordiv(offset, 2))


def _suffix(b: Buffer) -> str:
    return b.type.dtype.name.lower()


def _shared_scopes(number: Mapping[Buffer, int]) -> dict[Buffer, int]:
    """Tiles that share bytes may alias: all of them have the number of the first."""
    found: dict[Buffer, int] = {}
    scope = end = -1
    for b in sorted((b for b in number if b.space is Space.ARENA), key=lambda b: b.offset):
        if b.offset >= end:
            scope = number[b]
        found[b], end = scope, max(end, b.offset + b.type.nbytes)
    return found


def _buffers(lane: Lane) -> list[Buffer]:
    """Buffers that a lane touches, in order of first use."""
    return list(dict.fromkeys(b for i in _instructions(lane.stages) for b in touched_by(i)))


def _streams(instructions: Iterable[Instr]) -> list[Streamed]:
    return [i for i in instructions if isinstance(i, Streamed)]


def _instructions(stages: Sequence[Stage]) -> Iterator[Instr]:
    return (i for stage in stages for nest in stage.nests for i in nest.instructions)
