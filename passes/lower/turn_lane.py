"""One lane of a loop's kernel, whichever way its turns are done: its rows, and what a turn goes on from.

rows of 64 elements, outputs ys [128, 64] and c [64]   ->   stacked: ys, one element a turn;  ends: c
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jstitch.codegen.kernel_ir import ROW, Loop
from jstitch.ir.expr import Atomic, Ref, call
from jstitch.ir.graph import Value
from jstitch.ir.index import Index, Var, atoms, linearize
from jstitch.ir.ops.numerics import kernel_name
from jstitch.passes.graph.find_recurrence import TURN, Carry
from jstitch.passes.lower.build_turn import Begin, TurnBuilder
from jstitch.passes.lower.loop_pattern import Homes, LoopPattern


def variables_of(e: Index) -> set[str]:
    """Names of the loops that an index goes with."""
    return {a.name for a in atoms([e]) if isinstance(a, Var)}


def nothing(c: Carry, index: tuple[Index, ...]) -> Ref:
    raise AssertionError("nothing is carried here")


@dataclass(eq=False)
class TurnLane:
    """One lane: rows of `size` elements, and the outputs that have as many."""

    pattern: LoopPattern
    size: int
    outputs: Sequence[Value]

    def __post_init__(self) -> None:
        self.loop = self.pattern.loop
        self.turn = Loop(self.loop.turn, 0, self.loop.turns)
        self.rows = [Loop(Var(ROW, self.size), 0, 1)] if self.size > 1 else []
        homes = self.pattern.homes_of(Index(), self.size)
        self.stacked = [v for v in self.outputs if any(TURN in variables_of(e) for e in homes[v])]
        self.ends = [v for v in self.outputs if v not in self.stacked]

    def homes(self, row: Index, number: int = 0) -> Homes:
        return self.pattern.homes_of(row, self.size, number)

    def builder(self, loops: Sequence[Loop], begin: Begin, at_end: bool = False) -> TurnBuilder:
        depths = {loop.var.name: n + 1 for n, loop in enumerate(loops)}
        p = self.pattern
        return TurnBuilder(p.producers, p.places, depths, p.names, loop=self.loop, begin=begin, at_end=at_end)

    def first(self, c: Carry, index: tuple[Index, ...], builder: TurnBuilder) -> Atomic:
        """What the first turn goes on from, as wide as what it leaves."""
        value = builder.value(c.initial, index if c.initial.tensor.rank else ())
        kind = c.after.tensor.dtype.compute
        if c.initial.tensor.dtype.compute is kind:
            return value
        return builder.let(call(f"convert_{kernel_name(kind)}", value))

    def afters(self, builder: TurnBuilder) -> dict[Carry, Atomic]:
        """What a turn leaves for the next one, of all that is read; more may be read for that."""
        found: dict[Carry, Atomic] = {}
        while waiting := [c for c in builder.carried if c not in found]:
            for c in waiting:
                found[c] = builder.value(c.after, builder.carried[c][1])
        return found

    def stacks(
        self, builder: TurnBuilder, row: Index, but: Collection[Value] = ()
    ) -> list[tuple[Value, Index, list[Atomic]]]:
        """What a turn leaves for good: of which output, where, and what. but: outputs that are left out."""
        found = []
        for number in range(self.pattern.leaves_a_turn):
            homes = self.homes(row, number)
            for v in (v for v in self.stacked if v not in but):
                found.append((v, linearize(homes[v], v.shape), builder.parts(v, homes[v])))
        return found
