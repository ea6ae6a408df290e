"""Scalars of one turn of a recurrence: like those of a nest, with what the turn goes on from in variables.

value(after, (r,)), carried {before: c at r}     ->   v0 = load xs[turn * n + r];  v1 = c * 0.9;  v2 = v1 + v0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jstitch.ir.expr import Atomic, Ref
from jstitch.ir.graph import Value
from jstitch.ir.index import Dynamic, Index, atoms, const, linearize
from jstitch.ir.unwind import Deep
from jstitch.passes.graph.find_recurrence import Carry, Recurrence, Stack
from jstitch.passes.lower.build_nest import CannotLowerError, NestBuilder
from jstitch.passes.lower.written import Place

ELSEWHERE = "a turn needs what the turn before left at other elements"
Begin = Callable[[Carry, tuple[Index, ...]], Ref]
"""Makes the variable of the element of a carry that the row goes on from."""
Hold = Callable[[Value, tuple[Index, ...]], Ref | None]


@dataclass(eq=False, kw_only=True)
class TurnBuilder(NestBuilder):
    """Instructions of one turn, or of the loop's end, for one row.

    begin: is asked when an element of a carry is read for the first time; the row has one of each.
    at_end: carries are looked up by the loop's results, not by what a turn goes on from. hold: keeps what is
    read from memory and is the same in all turns, where that is better read once; None where it is not. keep:
    is asked of every value, for a place that has it already.
    """

    loop: Recurrence
    begin: Begin
    at_end: bool = False
    hold: Hold | None = None
    keep: Hold | None = None
    carried: dict[Carry, tuple[Ref, tuple[Index, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = self.loop.numbers
        self.stacks = {s.result: s for s in self.loop.stacks}
        named = ((c.result if self.at_end else c.before, c) for c in self.loop.carries)
        self.carries = {v: c for v, c in named if v is not None}

    def _value(self, v: Value, index: tuple[Index, ...], compute: bool = False) -> Deep[Atomic]:
        if v in self.stacks:
            v, index = _of_turn(self.stacks[v], index)
        v = self.loop.given.get(v, v)
        if self.keep is not None and (v, index) not in self.memo:
            kept = self.keep(v, index)
            if kept is not None:
                self.memo[v, index] = kept
        if (v, index) in self.memo:
            return self.memo[v, index]
        if v in self.carries:
            return self._carried(self.carries[v], index)
        return (yield from super()._value(v, index, compute))

    def load(self, v: Value, place: Place, index: tuple[Index, ...]) -> Ref:
        held = self.hold(v, index) if self.hold is not None else None
        return super().load(v, place, index) if held is None else held

    def _compute(self, v: Value, index: tuple[Index, ...]) -> Deep[Atomic]:
        if v not in self.producers:  # another result of the loop's
            raise CannotLowerError("what follows the loop needs what is there when it has ended")
        return (yield from super()._compute(v, index))

    def _carried(self, carry: Carry, index: tuple[Index, ...]) -> Ref:
        """The variable of one element, the same one in all turns: no number of a turn says which."""
        if any(a == self.loop.turn or isinstance(a, Dynamic) for a in atoms(index)):
            raise CannotLowerError(ELSEWHERE)
        if carry not in self.carried:
            self.carried[carry] = self.begin(carry, index), index
        variable, known = self.carried[carry]
        shape = carry.before.shape
        if known != index and linearize(known, shape) != linearize(index, shape):
            raise CannotLowerError(ELSEWHERE)
        return variable


def _of_turn(stack: Stack, index: tuple[Index, ...]) -> tuple[Value, tuple[Index, ...]]:
    """Which element of what the turn makes an element of the stack is, if this turn leaves it."""
    leaf = next((leaf for leaf in stack.leaves if leaf.at == index[stack.dim]), None)
    if leaf is None:
        raise CannotLowerError("what follows the loop needs other turns' elements")
    return leaf.part, (*index[: stack.dim], const(leaf.row), *index[stack.dim + 1 :])
