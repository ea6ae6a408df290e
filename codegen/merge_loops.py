"""One loop for two that walk through memory as one: so that vectors are as long as what lies together.

    for i2 in range(3):                                  for i4 in range(48):
        for i3 in range(8):                                  v = x[i4] * s[r]
            for i4 in range(2):                  ->
                v = x[i2 * 16 + i3 * 2 + i4] * s[r]

A graph's dimensions stay apart where a value of the nest has only some of them. Loops are merged where every
index of the nest has both or neither, and nothing is done between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jstitch.codegen.kernel_ir import ROW, Accumulator, Instr, Loop, Nest
from jstitch.codegen.move_indices import Part, changed, indices
from jstitch.ir.index import Atom, Clamp, Dynamic, FloorDiv, Index, Mod, Var, atoms, const, substitute, var


def merge_loops(nest: Nest) -> Nest:
    """The nest with as few loops inside its rows as its indices allow."""
    while (place := next(_mergeable(nest), None)) is not None:
        nest = _merged(nest, place)
    return nest


def _mergeable(nest: Nest) -> Iterator[int]:
    """Loops that are one with the next one inside."""
    return (place for place in range(len(nest.loops) - 1) if telling_apart(nest, place) == [])


def telling_apart(nest: Nest, place: int) -> list[Accumulator | Instr] | None:
    """What has an index of the loop or of the next one inside, but not of both as if they were one.

    None where something is done between the loops, or turns are no numbers of elements.
    """
    outer, inner = nest.loops[place : place + 2]
    parts = (*nest.accumulators, *nest.instructions)
    plain = all(type(loop) is Loop and loop.lo == 0 and loop.var.name != ROW for loop in (outer, inner))
    if not plain or any(part.depth == place + 1 for part in parts):
        return None
    return [part for part in parts if not all(_goes_on(e, outer, inner) for e in indices(part))]


def _goes_on(e: Index, outer: Loop, inner: Loop) -> bool:
    """Whether a turn of the outer loop goes on where the inner one's turns before it ended."""
    parts = (part for atom in atoms([e]) for part in _parts(atom))
    steps = (dict(part.terms) for part in (e, *parts))
    return all(each.get(outer.var, 0) == each.get(inner.var, 0) * inner.hi for each in steps)


def _parts(atom: Atom) -> tuple[Index, ...]:
    match atom:
        case FloorDiv(of, _) | Mod(of, _) | Clamp(of, _, _):
            return (of,)
        case Dynamic(_, index):
            return index
        case Var():
            return ()


def _merged(nest: Nest, place: int) -> Nest:
    outer, inner = nest.loops[place : place + 2]
    turns = outer.hi * inner.hi
    one = Loop(Var(inner.var.name, turns), 0, turns)
    here: dict[Atom, Index] = {outer.var: const(0), inner.var: var(one.var)}

    def moved(e: Index) -> Index:
        return substitute(e, here.get)

    def shifted(part: Part) -> Part:
        return changed(part, moved, part.depth - (part.depth > place))

    return replace(
        nest,
        loops=(*nest.loops[:place], one, *nest.loops[place + 2 :]),
        accumulators=tuple(map(shifted, nest.accumulators)),
        body=tuple(map(shifted, nest.body)),
        after=tuple(map(shifted, nest.after)),
    )
