"""Exponentials of what is never above 0: of a value less the maximum of its row.

    for i1 in range(0, 768):                        for i1 in range(0, 768):
        acc2 = max_reassoc(acc2, v1)                    acc2 = max_reassoc(acc2, v1)
    t0[0] = acc2                           ->       t0[0] = acc2
    v3 = t0[0]                                      v3 = t0[0]
    for i1 in range(0, 768):                        for i1 in range(0, 768):
        v4 = v1 - v3                                    v4 = v1 - v3
        v5 = exp(v4)                                    v5 = exp_nonpositive(v4)

An exponential that cannot overflow needs a third fewer instructions around its polynomial. Two values are the
same when their expressions are, down to the loads, and the loops around them: equal ones have one number.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import (
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    Loop,
    Nest,
    Space,
    Store,
)
from jstitch.codegen.map_kernel import map_lanes, map_nests
from jstitch.ir.expr import Call, Expr, Number, Ref, call, index_refs
from jstitch.ir.index import Index

Place = tuple[Buffer, Index]
Domain = tuple[Loop, ...]
Known = tuple[Domain, int]  # a value's number, and the loops over which it is so


def bound_exponents(kernel: Kernel) -> Kernel:
    """The kernel with exp_nonpositive where it may stand."""
    return map_lanes(kernel, _lane)


def _lane(lane: Lane) -> Lane:
    if lane.flat:
        return lane
    known = _Known()

    def bounded(nest: Nest) -> Nest:
        values = _Values(nest, known)
        body = tuple(_instr(i, values) for i in nest.body)
        known.learn(nest, values)
        return nest if body == nest.body else replace(nest, body=body)

    return map_nests(lane, bounded)


def _instr(i: Instr, values: _Values) -> Instr:
    match i:
        case Let(_, Call("exp", (Ref(name) as x,)), _) if values.below_zero(name):
            return replace(i, value=call("exp_nonpositive", x))
    return i


@dataclass
class _Known:
    """What the arena holds: values that were stored there, and what a row's maximum is of."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    stored: dict[Place, Known] = field(default_factory=dict)
    maxima: dict[Place, Known] = field(default_factory=dict)

    def number(self, value: Hashable) -> int:
        """One number for equal values."""
        return self.numbers.setdefault(value, len(self.numbers))

    def learn(self, nest: Nest, values: _Values) -> None:
        """From the nest's stores, in order; a second store to a buffer ends what was known of it."""
        for i in nest.instructions:
            if not isinstance(i, Store) or i.buffer.space is not Space.ARENA:
                continue
            for facts in (self.stored, self.maxima):
                for place in [place for place in facts if place[0] is i.buffer]:
                    del facts[place]
            place, name = (i.buffer, i.offset), i.value.name if isinstance(i.value, Ref) else ""
            if name in values.maxima:
                self.maxima[place] = values.maxima[name]
            elif i.depth == len(nest.loops):
                self.stored[place] = nest.loops, values.number(i.value)


@dataclass
class _Values:
    """The values of one nest, by number. maxima: accumulators, and what they are the maximum of.

    Values are numbered in the order in which they are made, each after those that it is made of.
    """

    nest: Nest
    known: _Known
    maxima: dict[str, Known] = field(default_factory=dict)
    defined: dict[str, Let | Load] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sums = {a.name for a in self.nest.accumulators}
        for i in self.nest.instructions:
            match i:
                case Let(name, Call("max_reassoc", (Ref(first), element)), _) if first == name in sums:
                    inner = self.maxima.get(element.name) if isinstance(element, Ref) else None
                    self.maxima[name] = inner or (self.nest.loops, self.number(element))
                case Let(name, value, _) if name not in sums:
                    self.defined[name], self.found[name] = i, self.number(value)
                case Load(name, _, _, _):
                    self.defined[name], self.found[name] = i, self._loaded(i)

    def number(self, e: Expr) -> int:
        """Of a value in terms of loads."""
        match e:
            case Ref(name):  # an accumulator is like nothing else
                return self.found.setdefault(name, self.known.number(object()))
            case Call(function, args):
                return self.known.number((function, *map(self.number, args)))
            case Number(index) if any(index_refs(index)):
                return self.known.number(object())
        return self.known.number(e)

    def _loaded(self, i: Load) -> int:
        """Of an element of memory; one that another value chooses is like nothing else."""
        if any(index_refs(i.offset)):
            return self.known.number(object())
        loops, number = self.known.stored.get((i.buffer, i.offset), ((), -1))
        same = number >= 0 and loops == self.nest.loops
        return number if same else self.known.number((i.buffer, i.offset))

    def below_zero(self, name: str) -> bool:
        """Whether the value is one less the maximum over the same loops."""
        match self.defined.get(name):
            case Let(_, Call("sub", (value, Ref(subtrahend))), _):
                load = self.defined.get(subtrahend)
                place = (load.buffer, load.offset) if isinstance(load, Load) else None
                largest = self.known.maxima.get(place) if place is not None else None
                return largest == (self.nest.loops, self.number(value))
        return False
