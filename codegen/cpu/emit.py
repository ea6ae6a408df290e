"""Kernel -> Numba source for the CPU.

A lane becomes a loop over the program's share of row steps; stages become loop nests in order (a barrier is
the end of a loop), innermost loops over contiguous elements that LLVM vectorises; the arena is a tile of
private, cache-resident memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jstitch.codegen.kernel_ir import (
    ROW,
    STEP,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    Loop,
    Nest,
    Phase,
    Space,
    Stage,
    Store,
)
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.codegen.print_index import print_index

VECTOR = 16  # elements; flat lanes are cut at multiples, so that vector loops start aligned


def emit(kernel: Kernel) -> KernelSource:
    """Source whose phase functions have the runtime's signature (see kernel_source)."""
    phases = [
        PhaseSource(f"phase{n}", sum(lane.programs for lane in phase.lanes), sum(lane.work for lane in phase.lanes))
        for n, phase in enumerate(kernel.phases)
    ]
    lines: list[str] = []
    for n, phase in enumerate(kernel.phases):
        lines += ["", "", *_Phase(kernel, phase).lines(f"phase{n}")]
    body = "\n".join(lines)
    return KernelSource(
        kernel.name,
        f'"""{kernel.name}."""\n\n{_imports(body)}{body}\n',
        len(kernel.args),
        len(kernel.results),
        kernel.scratch_bytes,
        kernel.arena_bytes,
        tuple(phases),
    )


def _imports(body: str) -> str:
    """Import lines for the names that the text uses."""
    words = dict.fromkeys(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", body))
    lines = []
    for module, names in _MODULES.items():
        used = sorted(w for w in words if w in names)
        if used:
            lines.append(f"from {module} import {', '.join(used)}\n")
    calls = sorted(set(re.findall(r"(?<!def )\b([a-z_][a-z_0-9]*)\(", body)) - _OTHER)
    return "".join([*lines, f"from jstitch.codegen.cpu.math import {', '.join(calls)}\n"])


_MODULES = {
    "math": {"inf", "nan"},
    "numba": {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)},
}
_OTHER = {"range", *_MODULES["numba"]}


class _Phase:
    def __init__(self, kernel: Kernel, phase: Phase) -> None:
        self.kernel, self.phase = kernel, phase
        pointers = (*kernel.args, *kernel.results)
        self.slots = {b: n for n, b in enumerate(pointers)}
        everything = (*pointers, *kernel.scratch, *kernel.arena)
        self.scopes = {b: n + 1 for n, b in enumerate(everything)}

    def lines(self, name: str) -> list[str]:
        out = [f"def {name}(bufs, arena, program):"]
        base = 0
        for n, lane in enumerate(self.phase.lanes):
            if len(self.phase.lanes) == 1:
                out += _indent(self._lane(lane, base))
                continue
            test = f"{'if' if n == 0 else 'elif'} program < {base + lane.programs}:"
            if n == len(self.phase.lanes) - 1:
                test = "else:"
            out += _indent([test, *_indent(self._lane(lane, base))])
            base += lane.programs
        return out

    # -- lanes ----------------------------------------------------------------------------------------

    def _lane(self, lane: Lane, base: int) -> list[str]:
        rows = f"{lane.rows} rows" + (f", {lane.step} at a time" if lane.step > 1 else "")
        out = [f"# {rows}, {lane.programs} programs"]
        out += [self._pointer(b) for b in _buffers(lane)]
        out.append(f"p = program - {base}" if base else "p = program")
        for stage in lane.stages:
            if stage.once:
                out += self._stage(stage, lane)
        return out + self._steps(lane)

    def _pointer(self, b: Buffer) -> str:
        match b.space:
            case Space.ARG | Space.RESULT:
                return f"{b.name} = load_s64(bufs, {self.slots[b]}, 0)  # {b.type}"
            case Space.SCRATCH:
                return f"{b.name} = load_s64(bufs, {len(self.slots)}, 0) + {b.offset}  # {b.type}"
            case Space.ARENA:
                return f"{b.name} = arena + {b.offset}  # {b.type}"

    def _steps(self, lane: Lane) -> list[str]:
        stages = [s for s in lane.stages if not s.once]
        body = [line for stage in stages for line in self._stage(stage, lane)]
        if lane.rows == 1:
            return body
        if lane.flat:
            share = -(-lane.rows // (lane.programs * VECTOR)) * VECTOR
            lo, hi = f"lo = clamp_index(p * {share}, 0, {lane.rows})", f"hi = clamp_index(p * {share} + {share}, 0, {lane.rows})"
            return [lo, hi, *body]
        steps = lane.rows // lane.step
        lo = f"lo = quotient(p * {steps}, {lane.programs})"
        hi = f"hi = quotient((p + 1) * {steps}, {lane.programs})"
        if lane.step == 1:
            return [lo, hi, f"for {ROW} in range(lo, hi):", *_indent(body)]
        return [lo, hi, f"for {STEP} in range(lo, hi):", *_indent(body)]

    # -- stages ---------------------------------------------------------------------------------------

    def _stage(self, stage: Stage, lane: Lane) -> list[str]:
        out = [f"# {stage.note}"]
        for nest in stage.nests:
            out += self._nest(nest, lane, 0)
        return out

    def _nest(self, nest: Nest, lane: Lane, depth: int) -> list[str]:
        out = [self._instr(i) for i in nest.body if i.depth == depth]
        if depth < len(nest.loops):
            out += [f"{a.name} = {a.init}" for a in nest.accumulators if a.depth == depth]
        if depth < len(nest.loops):
            inner = self._nest(nest, lane, depth + 1)
            head = self._head(nest.loops[depth], lane)
            out += [head, *_indent(inner)] if head else inner
        return out + [self._instr(i) for i in nest.after if i.depth == depth]

    def _head(self, loop: Loop, lane: Lane) -> str | None:
        """The `for` line; None for the row loop of a one-row step, which is the step loop itself."""
        if loop.var.name != ROW:
            return f"for {loop.var.name} in range({loop.lo}, {loop.hi}):"
        if lane.flat:
            return f"for {ROW} in range(lo, hi):"
        return f"for {ROW} in range({STEP} * {lane.step}, {STEP} * {lane.step} + {lane.step}):" if lane.step > 1 else None

    def _instr(self, instr: Instr) -> str:
        match instr:
            case Let(name, text, _):
                return f"{name} = {text}"
            case Load(name, b, offset, _):
                return f"{name} = load_{_suffix(b)}({b.name}, {print_index(offset)}, {self.scopes[b]})"
            case Store(b, offset, value, _):
                return f"store_{_suffix(b)}({b.name}, {print_index(offset)}, {value}, {self.scopes[b]})"


def _suffix(b: Buffer) -> str:
    return b.type.dtype.name.lower()


def _buffers(lane: Lane) -> list[Buffer]:
    """Buffers that a lane touches, in order of first use."""
    return list(dict.fromkeys(i.buffer for i in _instructions(lane.stages) if not isinstance(i, Let)))


def _instructions(stages: Sequence[Stage]) -> Iterator[Instr]:
    for stage in stages:
        for nest in stage.nests:
            yield from nest.body
            yield from nest.after


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
