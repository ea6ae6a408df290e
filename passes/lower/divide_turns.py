"""Which dear values of a loop's turns no turn waits for, or which wait for none: they are made side by side.

    c = sigmoid(a[t]) * c + x[t];  ys[t] = log1p(c)          c of every turn needs that of the one before:

    for t: s[t] = sigmoid(a[t])            early: vectors of turns
    for t: c = s[t] * c + x[t];  l[t] = c  one after another
    for t: ys[t] = log1p(l[t])             late: vectors of turns

Where neighbours in memory are the turns of one element, a CPU computes these one by one otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from jstitch.codegen.intrinsics import cpu_cpi
from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index, Var, atoms
from jstitch.ir.ops import lookup
from jstitch.passes.graph.find_recurrence import TURN, Recurrence

Maker = Callable[[Value], Op | None]
DEAR = 2.5  # cycles of a vector lane, for which a value is written to cache and read again


@dataclass(frozen=True)
class Divided:
    """early: values that turns read from a tile. late: results that are made behind all turns, of values in
    `core`, which turns leave in tiles. cycles: of what each turn waits for, on one lane of a vector.
    """

    early: frozenset[Value] = frozenset()
    late: frozenset[Value] = frozenset()
    core: frozenset[Value] = frozenset()
    cycles: float = 0.0


def divide_turns(loop: Recurrence, producers: Mapping[Value, Op], stacked: Iterable[Value]) -> Divided:
    """What of the loop's turns. producers: of what is inside and around. stacked: results of all turns."""

    def maker(v: Value) -> Op | None:
        return producers.get(loop.given.get(v, v))

    afters, before = {c.after for c in loop.carries}, {c.before for c in loop.carries}
    waits = _reached(loop.ops, before)
    turning = _reached(loop.ops, {v for v, e in loop.numbers.items() if _turns(e)})
    parts = {s.result: [leaf.part for leaf in s.leaves] for s in loop.stacks}
    read = {v for op in loop.ops if op.results[0] in waits for v in op.operands}
    read.update(afters, *parts.values())
    early = {v for v in (read & turning) - waits if v.tensor.dtype.is_float and _cycles({v}, maker) >= DEAR}
    core = (_behind(afters, maker) & waits) | before
    late = set[Value]()
    for v in stacked:
        ends = {p for u in _behind({v}, maker) for p in parts.get(u, ())}
        if not ends.isdisjoint(waits) and _cycles({v, *ends}, maker, core | early) >= DEAR:
            late.add(v)
    waiting = _cycles(core, lambda v: maker(v) if v in core else None)
    return Divided(frozenset(early), frozenset(late), frozenset(core), waiting)


def _turns(e: Index) -> bool:
    return any(isinstance(a, Var) and a.name == TURN for a in atoms([e]))


def _reached(ops: Iterable[Op], first: Collection[Value]) -> set[Value]:
    """These values, and all that is made of them."""
    found = set(first)
    for op in ops:
        if not found.isdisjoint(op.operands):
            found.update(op.results)
    return found


def _behind(last: Iterable[Value], maker: Maker, known: Collection[Value] = ()) -> set[Value]:
    """These values, and all that they are made of; what is known is not looked behind."""
    found, todo = set[Value](), list(last)
    while todo:
        v = todo.pop()
        op = None if v in known else maker(v)
        if v not in found and op is not None:
            todo += op.operands
        found.add(v)
    return found


def _cycles(last: Iterable[Value], maker: Maker, known: Collection[Value] = ()) -> float:
    """Of what an element of these values takes, on one lane of a vector."""
    makers = (maker(v) for v in _behind(last, maker, known) if v not in known)
    definitions = (lookup(op.name) for op in {op for op in makers if op is not None})
    return sum(cpu_cpi(d) for d in definitions if d.op_class.is_elementwise)
