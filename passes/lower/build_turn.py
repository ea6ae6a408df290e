"""Scalars of one turn of a recurrence: like those of a nest, with what the turn goes on from in variables.

value(after, (r,)), carried {before: c at r}     ->   v0 = load xs[turn * n + r];  v1 = c * 0.9;  v2 = v1 + v0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jstitch.ir.expr import Atomic, Ref
from jstitch.ir.graph import Value
from jstitch.ir.index import Index, linearize
from jstitch.ir.unwind import Deep
from jstitch.passes.graph.find_recurrence import Recurrence, Stack
from jstitch.passes.lower.build_nest import CannotLowerError, NestBuilder

ELSEWHERE = "a turn needs what the turn before left at other elements"


@dataclass(frozen=True)
class Carried:
    """A carry's scalar in this turn, and the offset of the element that it is."""

    scalar: Ref
    offset: Index


@dataclass(eq=False, kw_only=True)
class TurnBuilder(NestBuilder):
    """Instructions of one turn at one element. finals: carries of the loop's end, by its results."""

    loop: Recurrence
    carried: dict[Value, Carried] = field(default_factory=dict)
    finals: dict[Value, Carried] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stacks: Mapping[Value, Stack] = {s.result: s for s in self.loop.stacks}

    def _value(self, v: Value, index: tuple[Index, ...], compute: bool = False) -> Deep[Atomic]:
        v = self.loop.given.get(v, v)
        carried = self.carried.get(v) or self.finals.get(v)
        if carried is not None:
            return _at(v, index, carried)
        if v in self.loop.numbers:
            return self._counted(v, index)
        if v in self.stacks:
            return (yield self._value(*_of_turn(self.stacks[v], index)))
        return (yield from super()._value(v, index, compute))

    def _counted(self, v: Value, index: tuple[Index, ...]) -> Atomic:
        """What depends on the number of the turn alone."""
        key = (v, index)
        if key not in self.memo:
            self.memo[key] = self.position(v.tensor.dtype, self.loop.numbers[v])
        return self.memo[key]

    def _integer(self, v: Value, index: tuple[Index, ...]) -> Deep[Index]:
        if v in self.loop.numbers:
            return self.loop.numbers[v]
        return (yield from super()._integer(v, index))


def _at(v: Value, index: tuple[Index, ...], carried: Carried) -> Ref:
    if v.tensor.size > 1 and linearize(index, v.shape) != carried.offset:
        raise CannotLowerError(ELSEWHERE)
    return carried.scalar


def _of_turn(stack: Stack, index: tuple[Index, ...]) -> tuple[Value, tuple[Index, ...]]:
    """Which element of the turn's part an element of the stack is, if this turn writes it."""
    if index[stack.dim] != stack.start:
        raise CannotLowerError("what follows the loop needs other turns' elements")
    return stack.part, (*index[: stack.dim], Index(), *index[stack.dim + 1 :])
