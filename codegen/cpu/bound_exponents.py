"""Exponentials of what is never above 0: of a value less the maximum of its row.

    for i1 in range(0, 768):                        for i1 in range(0, 768):
        acc2 = max_reassoc(acc2, v1)                    acc2 = max_reassoc(acc2, v1)
    t0[0] = acc2                           ->       t0[0] = acc2
    v3 = t0[0]                                      v3 = t0[0]
    for i1 in range(0, 768):                        for i1 in range(0, 768):
        v4 = v1 - v3                                    v4 = v1 - v3
        v5 = exp(v4)                                    v5 = exp_nonpositive(v4)

An exponential that cannot overflow needs a third fewer instructions around its polynomial. Two values are the
same when their expressions are, down to the loads, and the loops around them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import Instr, Kernel, Lane, Let, Load, Nest, Phase, Space, Stage, Store
from jstitch.codegen.print_index import print_index

_NAME = re.compile(r"\b(?:v|acc|part)\d+\b")
_MAXIMUM = re.compile(r"max_reassoc\((\w+), (\w+)\)")
_EXPONENTIAL = re.compile(r"exp\((v\d+)\)")
_DIFFERENCE = re.compile(r"(\w+) - (\w+)")
LONGEST = 2000  # characters of an expression that is compared


def bound_exponents(kernel: Kernel) -> Kernel:
    """The kernel with exp_nonpositive where it may stand."""
    phases = (Phase(tuple(x if x.flat else _lane(x) for x in p.lanes)) for p in kernel.phases)
    return replace(kernel, phases=tuple(phases))


def _lane(lane: Lane) -> Lane:
    known = _Known()
    stages: list[Stage] = []
    for stage in lane.stages:
        nests = []
        for nest in stage.nests:
            values = _Values(nest, known)
            nests.append(replace(nest, body=tuple(_instr(i, values) for i in nest.body)))
            known.learn(nest, values)
        stages.append(replace(stage, nests=tuple(nests)))
    return replace(lane, stages=tuple(stages))


def _instr(i: Instr, values: _Values) -> Instr:
    found = _EXPONENTIAL.fullmatch(i.text) if isinstance(i, Let) else None
    if found is None or not values.below_zero(found[1]):
        return i
    assert isinstance(i, Let)
    return replace(i, text=f"exp_nonpositive({found[1]})")


@dataclass
class _Known:
    """What the arena holds: expressions of values that were stored, and what a row's maximum is of."""

    stored: dict[str, str] = field(default_factory=dict)
    maxima: dict[str, str] = field(default_factory=dict)

    def learn(self, nest: Nest, values: _Values) -> None:
        """From the nest's stores, in order; a second store to a buffer ends what was known of it."""
        for i in (*nest.body, *nest.after):
            if not isinstance(i, Store) or i.buffer.space is not Space.ARENA:
                continue
            prefix, place = f"{i.buffer.name}[", _place(i)
            for facts in (self.stored, self.maxima):
                for other in [k for k in facts if k.startswith(prefix)]:
                    del facts[other]
            if i.value in values.maxima:
                self.maxima[place] = values.maxima[i.value]
            elif i.depth == len(nest.loops):
                self.stored[place + values.around] = values.expression(i.value)


@dataclass
class _Values:
    """The values of one nest as expressions of loads."""

    nest: Nest
    known: _Known
    around: str = ""
    maxima: dict[str, str] = field(default_factory=dict)
    defined: Mapping[str, Let | Load] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        instructions = (*self.nest.body, *self.nest.after)
        self.around = " ".join(f"{x.var.name}:{x.lo}:{x.hi}" for x in self.nest.loops)
        sums = {a.name for a in self.nest.accumulators}
        self.defined = {i.name: i for i in instructions if not isinstance(i, Store) and i.name not in sums}
        for i in instructions:
            found = _MAXIMUM.fullmatch(i.text) if isinstance(i, Let) and i.name in sums else None
            if isinstance(i, Let) and found is not None and found[1] == i.name:
                inner = self.maxima.get(found[2], self.around + self.expression(found[2]))
                self.maxima[i.name] = inner

    def expression(self, name: str) -> str:
        """The value in terms of loads; a name of its own where that is long."""
        if name not in self.texts:
            text = self._text(name)
            self.texts[name] = text if len(text) < LONGEST else f"{id(self)}.{name}"
        return self.texts[name]

    def _text(self, name: str) -> str:
        match self.defined.get(name):
            case Load() as load if "int64(" not in _place(load):  # another value may choose the element
                place = _place(load)
                return self.known.stored.get(place + self.around, place)
            case Let(_, text, _):
                return _NAME.sub(lambda m: f"({self.expression(m[0])})", text)
        return f"{id(self)}.{name}"

    def below_zero(self, name: str) -> bool:
        """Whether the value is one less the maximum over the same loops."""
        let = self.defined.get(name)
        found = _DIFFERENCE.fullmatch(let.text) if isinstance(let, Let) else None
        subtrahend = self.defined.get(found[2]) if found else None
        if found is None or not isinstance(subtrahend, Load):
            return False
        return self.known.maxima.get(_place(subtrahend)) == self.around + self.expression(found[1])


def _place(i: Load | Store) -> str:
    return f"{i.buffer.name}[{print_index(i.offset)}]"
