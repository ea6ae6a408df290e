"""Divisors that do not change along a loop: the reciprocal is taken once, outside.

    v8 = t3[0]                                      v8 = t3[0]
    for i1 in range(0, 768):                        v20 = divisor_scale(v8)
        v7 = t2[i1]                        ->       v21 = reciprocal(v8 * v20)
        v9 = v7 / v8                                for i1 in range(0, 768):
        ...                                             v7 = t2[i1]
                                                        v9 = v7 * v20 * v21

A vector division takes as long as seven multiplications. The quotient is off by at most an ulp more, so it is
left alone where a jump follows: in a floor, a comparison, a conversion to an integer (41 / 41 must not become
0). The scale, a power of two, keeps the reciprocal of very large and very small divisors a normal number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from jstitch.codegen.kernel_ir import Buffer, Instr, Kernel, Lane, Let, Load, Nest, Phase, Space, Stage, Store

_NAME = re.compile(r"\b(?:v|acc|part)\d+\b")
_QUOTIENT = re.compile(r"(v\d+|acc\d+|part\d+) / (v\d+)")
_JUMP = re.compile(
    r"\b(?:floor|ceil|sign|remainder_|next_after|round_\w+|bitcast_\w+|convert_(?:bool|[su]\d+|f8\w+))\(|[<>=!]="
    r"| [<>] "
)


def divide_once(kernel: Kernel) -> Kernel:
    """The kernel with multiplications for such divisions."""
    jumps = _Jumps(kernel)
    numbers = count(1 + max((int(n) for n in _numbers(kernel)), default=0))

    def stage(s: Stage) -> Stage:
        return replace(s, nests=tuple(_nest(nest, jumps, numbers) for nest in s.nests))

    def lane(x: Lane) -> Lane:
        return replace(x, stages=tuple(stage(s) for s in x.stages))

    return replace(kernel, phases=tuple(Phase(tuple(lane(x) for x in p.lanes)) for p in kernel.phases))


def _numbers(kernel: Kernel) -> Iterator[str]:
    for *_, i in kernel.instructions():
        if not isinstance(i, Store):
            yield from re.findall(r"\d+", i.name)


def _nest(nest: Nest, jumps: _Jumps, numbers: Iterator[int]) -> Nest:
    depths = {i.name: i.depth for i in nest.body if not isinstance(i, Store)}
    inner = len(nest.loops)
    outside: dict[str, tuple[str, str]] = {}
    out: list[Instr] = []
    for i in nest.body:
        found = _QUOTIENT.fullmatch(i.text) if isinstance(i, Let) and i.depth == inner else None
        if found is None or depths.get(found[2], inner) == inner or jumps.follow(nest, i):
            out.append(i)
            continue
        assert isinstance(i, Let)
        divisor = found[2]
        if divisor not in outside:
            outside[divisor] = scale, inverse = f"v{next(numbers)}", f"v{next(numbers)}"
            lets = (f"divisor_scale({divisor})", f"reciprocal({divisor} * {scale})")
            new = [Let(n, t, depths[divisor]) for n, t in zip(outside[divisor], lets, strict=True)]
            place = next(k for k, x in enumerate(out) if not isinstance(x, Store) and x.name == divisor)
            out[place + 1 : place + 1] = new
        scale, inverse = outside[divisor]
        out.append(replace(i, text=f"{found[1]} * {scale} * {inverse}"))
    return replace(nest, body=tuple(out)) if outside else nest


@dataclass
class _Jumps:
    """Where a value ends up in a function that is not continuous."""

    kernel: Kernel
    buffers: set[Buffer] = field(default_factory=set)

    def __post_init__(self) -> None:
        nests = [n for p in self.kernel.phases for x in p.lanes for s in x.stages for n in s.nests]
        before = -1
        while before < len(self.buffers):
            before = len(self.buffers)
            for nest in nests:
                bad = self._names(nest)
                loads = (i for i in _instructions(nest) if isinstance(i, Load) and i.name in bad)
                self.buffers |= {i.buffer for i in loads if i.buffer.space in (Space.ARENA, Space.SCRATCH)}

    def follow(self, nest: Nest, i: Instr) -> bool:
        return isinstance(i, Let) and i.name in self._names(nest)

    def _names(self, nest: Nest) -> set[str]:
        """Values of the nest that such a function depends on."""
        found: set[str] = set()
        before = -1
        while before < len(found):
            before = len(found)
            for i in reversed(_instructions(nest)):
                match i:
                    case Let(name, text, _) if name in found or _JUMP.search(text):
                        found |= {*_NAME.findall(text)}
                    case Store(b, _, value, _) if b in self.buffers:
                        found |= {*_NAME.findall(value)}
        return found


def _instructions(nest: Nest) -> Sequence[Instr]:
    return (*nest.body, *nest.after)
