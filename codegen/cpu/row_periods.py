"""Rows counted by two loops, where what indices divide a row's number by is a number of rows.

    r // 88, r % 88 of 792 rows        ->        q of 9, j of 88, with r = q * 88 + j

No index of the inner loop divides then, so LLVM makes vectors of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from jstitch.codegen.kernel_ir import ROW, Accumulator, Instr, Lane, Nest
from jstitch.codegen.map_kernel import map_nests
from jstitch.ir.expr import Call, Number, move_numbers, numbers
from jstitch.ir.index import Atom, FloorDiv, Index, Mod, Var, add, atoms, floordiv, mod, mul, substitute, var

Node = TypeVar("Node", bound=Instr | Accumulator)


def period_of(lane: Lane) -> int:
    """The rows after which all divisions of a row's number start again; 1: there are none, or not all do."""
    period = math.gcd(*(a.by for a in _divisions(lane) if _is_row(a.of)))
    if not 1 < period < lane.rows or lane.rows % period:
        return 1
    number, place = Var("number", lane.rows // period), Var("place", period)
    moved = in_periods(replace(lane, period=period), var(number), var(place))
    return period if not any(place in atoms([a.of]) for a in _divisions(moved)) else 1


def in_periods(lane: Lane, number: Index, place: Index) -> Lane:
    """The lane, whose row is number * period + place."""
    period = lane.period
    row = add(mul(number, period), place)

    def value(atom: Atom) -> Index | None:
        match atom:
            case Var(name, _) if name == ROW:
                return row
            case FloorDiv(of, by) if _is_row(of) and by % period == 0:
                return floordiv(number, by // period)
            case Mod(of, by) if _is_row(of) and by % period == 0:
                return add(mul(mod(number, by // period), period), place)
        return None

    return map_nests(lane, lambda nest: _moved_nest(nest, lambda e: substitute(e, value)))


def _moved_nest(nest: Nest, moved: Callable[[Index], Index]) -> Nest:
    return replace(
        nest,
        accumulators=tuple(_moved(a, moved) for a in nest.accumulators),
        body=tuple(_moved(i, moved) for i in nest.body),
        after=tuple(_moved(i, moved) for i in nest.after),
    )


def _moved(node: Node, moved: Callable[[Index], Index]) -> Node:
    found: dict[str, Any] = {}
    for f in fields(node):
        match getattr(node, f.name):
            case Index() as index:
                found[f.name] = moved(index)
            case Call() | Number() as value:
                found[f.name] = move_numbers(value, moved)
    return replace(node, **found)


def _divisions(lane: Lane) -> list[FloorDiv | Mod]:
    return [a for a in atoms(_indices(lane)) if isinstance(a, FloorDiv | Mod)]


def _indices(lane: Lane) -> Iterator[Index]:
    for nest in (nest for stage in lane.stages for nest in stage.nests):
        for node in (*nest.accumulators, *nest.body, *nest.after):
            for f in fields(node):
                match getattr(node, f.name):
                    case Index() as index:
                        yield index
                    case Call() | Number() as value:
                        yield from numbers(value)


def _is_row(e: Index) -> bool:
    match e:
        case Index(0, ((Var(name, _), 1),)):
            return name == ROW
    return False
