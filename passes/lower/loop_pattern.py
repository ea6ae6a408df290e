"""A pattern with a loop, as lowering sees it: its buffers, its ops, which elements of its results are whose.

scan over 128 turns of 64 elements, ys + 1      row r:  ys[turn, r], and of `ys + 1` the element [turn, r]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.intrinsics import cpu_cpi
from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Phase, Space
from jstitch.codegen.kernel_queries import held
from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index, delinearize
from jstitch.ir.ops import lookup
from jstitch.ir.reason import Reason
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.profile import Profile
from jstitch.passes.graph.find_recurrence import Recurrence, Stack, find_recurrence, may_recur
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.place_tiles import ALIGN
from jstitch.passes.lower.quote_lines import quote_lines
from jstitch.passes.lower.written import Place

Homes = Mapping[Value, tuple[Index, ...]]
"""Of what a loop gives, and what is made of that: which element belongs to a row."""


def loop_of(ops: Sequence[Op]) -> Op | None:
    """The recurrence among a pattern's ops."""
    return next((op for op in ops if may_recur(op)), None)


@dataclass(eq=False)
class LoopPattern:
    """A pattern with a loop, as all its lanes see it: its buffers, its ops, and where its elements are."""

    loop: Recurrence
    ops: Sequence[Op]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    profile: Profile
    scratch: list[Buffer] = field(default_factory=list)
    tiles: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.args = tuple(held(f"a{n}", v.tensor, Space.ARG, n) for n, v in enumerate(self.inputs))
        made = (held(f"o{n}", v.tensor, Space.RESULT, n) for n, v in enumerate(self.outputs))
        self.results = dict(zip(self.outputs, made, strict=True))
        self.places = {v: Place(b) for v, b in zip(self.inputs, self.args, strict=True)}
        self.around = [op for op in self.ops if not may_recur(op)]
        self.producers = {v: op for op in (*self.around, *self.loop.ops) for v in op.results}
        counter = itertools.count()
        self.names: Callable[[], str] = lambda: f"v{next(counter)}"
        counts = {len(s.leaves) for s in self.loop.stacks} or {1}
        if len(counts) > 1:
            raise CannotLowerError("a turn leaves more of one result than of another")
        (self.leaves_a_turn,) = counts

    def sizes(self) -> dict[Value, int]:
        """Elements that a turn, or the end, makes of each output."""
        found = {s.result: _row_size(s) for s in self.loop.stacks}
        found |= {c.result: c.before.tensor.size for c in self.loop.carries if c.result is not None}
        for op in self.around:
            known = [found[v] for v in op.operands if v in found]
            found |= {op.results[0]: max(known)} if known else {}
        if any(v not in found for v in self.outputs):
            raise CannotLowerError("the loop counts what is wanted behind it")
        return {v: found[v] for v in self.outputs}

    def homes_of(self, row: Index, size: int, number: int = 0) -> Homes:
        """For a row of so many. number: of what a turn leaves of each stack."""
        found: dict[Value, tuple[Index, ...]] = {}
        for s in self.loop.stacks:
            if _row_size(s) == size:
                shape = s.result.shape
                index = delinearize(row, (*shape[: s.dim], 1, *shape[s.dim + 1 :]))
                found[s.result] = (*index[: s.dim], s.leaves[number].at, *index[s.dim + 1 :])
        for c in self.loop.carries:
            if c.result is not None and c.before.tensor.size == size:
                found[c.result] = delinearize(row, c.before.shape)
        for op in self.around:
            if any(v in found for v in op.operands):
                found[op.results[0]] = _moved(op, found)
        return found

    def new_scratch(self, kind: TensorType) -> Buffer:
        number, offset = len(self.scratch), self.scratch_bytes
        self.scratch.append(Buffer(f"s{number}", kind, Space.SCRATCH, number, offset))
        return self.scratch[-1]

    def new_tile(self, kind: TensorType) -> Buffer:
        number, offset = len(self.tiles), self.arena_bytes
        self.tiles.append(Buffer(f"t{number}", kind, Space.ARENA, number, offset))
        return self.tiles[-1]

    @property
    def scratch_bytes(self) -> int:
        return _end(self.scratch)

    @property
    def arena_bytes(self) -> int:
        return _end(self.tiles)

    @property
    def lines(self) -> tuple[str, ...]:
        """Of the user's code, that turns come from."""
        return quote_lines(self.loop.ops, (), {}, {op: n for n, op in enumerate(self.loop.ops)})

    def work(self, size: int) -> int:
        """Of all turns of so many rows, in elements of light work."""
        return int(size * self.loop.turns * max(1.0, self.cycles))

    @property
    def cycles(self) -> float:
        """Of a turn's ops on one lane of a vector."""
        ops = (lookup(op.name) for op in self.loop.ops if not is_free(op))
        return sum(cpu_cpi(op) for op in ops if op.op_class.is_elementwise)

    def programs(self, steps: int, work: int) -> int:
        """That share so many steps."""
        return max(1, min(steps, work // self.profile.program_work, self.profile.max_programs))

    def row_counts(self, size: int) -> list[int]:
        """Into how many rows so many elements may be cut: 1, then by more and more leading dimensions."""
        shapes = [(*s.result.shape[: s.dim], *s.result.shape[s.dim + 1 :]) for s in self.loop.stacks]
        shapes += [c.before.shape for c in self.loop.carries]
        whole = [shape for shape in shapes if math.prod(shape) == size]
        return sorted({1, *(math.prod(shape[:k]) for shape in whole for k in range(len(shape)))})

    def kernel(self, name: str, lanes: Sequence[Lane]) -> Kernel:
        scratch = tuple(self.scratch)
        results = tuple(self.results.values())
        tiles, phases = tuple(self.tiles), (Phase(tuple(lanes)),)
        return Kernel(name, self.args, results, scratch, tiles, phases, self.scratch_bytes, self.arena_bytes)


def _end(buffers: Sequence[Buffer]) -> int:
    """Bytes up to where the next one begins."""
    last = buffers[-1] if buffers else None
    return 0 if last is None else last.offset + -(-last.type.nbytes // ALIGN) * ALIGN


def _row_size(s: Stack) -> int:
    """Elements of one leaf."""
    return s.result.tensor.size // s.result.shape[s.dim]


def _moved(op: Op, homes: Homes) -> tuple[Index, ...]:
    """Where the elements of an op's result are that belong to those of its operands."""
    known = [v for v in op.operands if v in homes]
    definition, result, index = lookup(op.name), op.results[0], homes[known[0]]
    if definition.op_class.is_elementwise:
        if all(v.shape == result.shape and homes[v] == index for v in known):
            return index
    elif "permutation" in op.attrs:
        return tuple(index[d] for d in op.attrs["permutation"])
    raise CannotLowerError(f"'{op.name}' of what a loop makes waits for all of it")


def read_pattern(
    ops: Sequence[Op], inputs: Sequence[Value], outputs: Sequence[Value], profile: Profile
) -> LoopPattern:
    """The pattern, which has one loop. Raises CannotLowerError where that is no recurrence."""
    op = loop_of(ops)
    assert op is not None
    producers = {v: o for o in ops if o is not op for v in o.results}
    found = find_recurrence(op, producers.get)
    if isinstance(found, Reason):
        raise CannotLowerError(found)
    return LoopPattern(found, ops, inputs, outputs, profile)
