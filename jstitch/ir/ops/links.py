"""Which dimensions of an op's operands go with a dimension of its results: where it can be cut into rows.

%z = dot_general %x [b, h], %w [h, v]     linked(%z, 0) == (0, None)     rows of %x; all of %w for each
%g = dot_general %x [b, h], %d [b, v]     summed(%g, 0, 0) == (0, 0)     rows of both; what they make adds up

Ops that only move elements say it by their index maps in the op table.
"""

from __future__ import annotations

from collections.abc import Iterator

from jstitch.ir.graph import Op
from jstitch.ir.index import Dynamic, Index, Var, atoms, var
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.ops.build import splat_value

Linked = tuple[int | None, ...]
ADD = "stablehlo.add"
_SIDES = ("lhs", "rhs")


def linked(op: Op, dim: int) -> Linked | None:
    """For each operand the dimension that goes with one of the results': rows of the results need no others.

    An operand's None: every row needs all of it. None alone: the op cannot be cut there.
    """
    definition = lookup(op.name)
    if definition.op_class.is_elementwise:
        shape = op.results[0].shape
        return tuple(dim if v.shape == shape else None for v in op.operands)
    if definition.op_class is OpClass.CONSTANT or definition.position is not None:
        return ()
    if op.name == "stablehlo.reduce":
        return _reduced(op, dim)
    if definition.op_class is OpClass.CONTRACTION:
        return _multiplied(op, dim) if op.name == "stablehlo.dot_general" else None
    return _moved(op, dim) if definition.cases is not None else None


def summed(op: Op, operand: int, dim: int) -> Linked | None:
    """The dimensions of all operands to cut, so that what the op makes of each part adds up to its result."""
    if op.name == "stablehlo.dot_general":
        places = [op.attrs[f"{side}_contracting_dimensions"] for side in _SIDES]
        if dim not in places[operand]:
            return None
        number = tuple(places[operand]).index(dim)
        return places[0][number], places[1][number]
    adds = op.name == "stablehlo.reduce" and op.attrs.get("monoid") == ADD and len(op.operands) == 2
    return (dim, None) if adds and operand == 0 and dim in op.attrs["dimensions"] else None


def adds_to_zero(op: Op, init: Op | None) -> bool:
    """Whether a sum starts from zero. init: the maker of a reduction's second operand."""
    value = splat_value(init)
    return op.name != "stablehlo.reduce" or (value is not None and not value.any())


def _reduced(op: Op, dim: int) -> Linked:
    half = len(op.results)
    kept = [d for d in range(op.operands[0].tensor.rank) if d not in op.attrs["dimensions"]]
    return (*(kept[dim] for _ in range(half)), *(None for _ in op.operands[half:]))


def _multiplied(op: Op, dim: int) -> Linked:
    """Batch dimensions first, then what is left of each side."""
    batch, free = [], []
    for side, v in zip(_SIDES, op.operands, strict=True):
        batch.append(list(op.attrs[f"{side}_batching_dimensions"]))
        paired = {*batch[-1], *op.attrs[f"{side}_contracting_dimensions"]}
        free.append([d for d in range(v.tensor.rank) if d not in paired])
    places: list[tuple[int | None, int | None]] = list(zip(*batch, strict=True))
    places += [(d, None) for d in free[0]]
    places += [(None, d) for d in free[1]]
    return places[dim]


def _moved(op: Op, dim: int) -> Linked | None:
    """By the op's index map: a dimension goes along whose place is the results', as it is."""
    cases = lookup(op.name).cases
    assert cases is not None
    shape = op.results[0].shape
    row = Var(f"d{dim}", shape[dim])
    found: dict[int, int | None] = {}
    for case in cases(op, tuple(var(Var(f"d{d}", n)) for d, n in enumerate(shape))):
        if any(row in _static(c.of) for c in case.conditions):
            return None
        reads = [(case.operand, case.index), *_numbers((*case.index, *(c.of for c in case.conditions)))]
        for number, index in reads:
            places = [d for d, e in enumerate(index) if row in _static(e)]
            if len(places) > 1 or any(index[d] != var(row) for d in places):
                return None
            place = places[0] if places else None
            if place is not None and op.operands[number].shape[place] != shape[dim]:
                return None
            if found.setdefault(number, place) != place:
                return None
    return tuple(found.get(k) for k in range(len(op.operands)))


def _numbers(exprs: tuple[Index, ...]) -> Iterator[tuple[int, tuple[Index, ...]]]:
    """What is read to know where to read."""
    for atom in atoms(exprs):
        if isinstance(atom, Dynamic) and isinstance(atom.operand, int):
            yield atom.operand, atom.index


def _static(e: Index) -> set[object]:
    """The variables of an index, but for those of places where numbers are read."""
    found: set[object] = set()
    todo = [e]
    while todo:
        for atom, _ in todo.pop().terms:
            if isinstance(atom, Var):
                found.add(atom)
            elif not isinstance(atom, Dynamic):
                todo.append(atom.of)
    return found
