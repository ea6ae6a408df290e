"""Places that rows of a step have, apart from the step's number: for tiles, and for matrices.

r * 64 + i, of lanes of 16 rows a step     ->     q * 1024 + row * 64 + i
"""

from __future__ import annotations

from jstitch.codegen.kernel_ir import ROW, STEP, Lane
from jstitch.ir.index import Atom, FloorDiv, Index, Mod, Var, add, bounds, const, floordiv, mod, mul, var


def is_of_step(atom: Atom, lane: Lane) -> bool:
    """Whether it says no more than the number of the step, and of the turn of a loop of stages."""
    match atom:
        case Var(name):
            return name == STEP or any(s.turn is not None and atom == s.turn.var for s in lane.stages)
        case FloorDiv() | Mod():
            return True
    return False


def in_steps(e: Index, lane: Lane, row: Var) -> Index:
    """With the row as the step's first row, and a place in the step that no whole number of steps sees."""
    found = const(e.const)
    for atom, k in e.terms:
        found = add(found, mul(_atom_in_steps(atom, lane, row), k))
    return found


def _atom_in_steps(atom: Atom, lane: Lane, row: Var) -> Index:
    step = lane.step
    match atom:
        case Var(name) if name == ROW:
            return add(mul(var(Var(STEP, lane.rows // step)), step), var(row))
        case FloorDiv(of, by) | Mod(of, by):
            inside = in_steps(of, lane, row)
            steps = Index(
                inside.const // step, tuple((a, k // step) for a, k in inside.terms if k % step == 0)
            )
            rest = add(inside, mul(steps, -step))
            low, high = bounds(rest)
            divides = isinstance(atom, FloorDiv)
            if by % step or low < 0 or high >= step:
                return floordiv(inside, by) if divides else mod(inside, by)
            turn = by // step
            return floordiv(steps, turn) if divides else add(mul(mod(steps, turn), step), rest)
    return var(atom)
