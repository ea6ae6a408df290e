"""How an op's operands are reached when its result is cut into rows.

With R rows, row r of a tensor of n elements is the contiguous slab [r * n / R, (r + 1) * n / R). This is the
Row schedule of FS-2018 section 4.1 with blocks = R, carried by the op table's index maps instead of by rules:

    add, R = N               ROW      row r needs row r
    broadcast [C] -> [N, C]  FREE     every row needs the same elements
    transpose [C, N]         SCATTER  row r needs elements of many rows
    reduce over dim 1        INNER    row r of the result needs row r of the operand
    reduce over dim 0        CROSS    the result needs every row
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from jstitch.ir.graph import Op, Value
from jstitch.ir.index import (
    Clamp,
    Dynamic,
    FloorDiv,
    Index,
    Mod,
    Var,
    add,
    atoms,
    bounds,
    clamp,
    delinearize,
    linearize,
    mul,
    var,
)
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.remember import per_object

ROW_VAR = "r"
IDENTITY = "identity"  # attribute of a reduction of several values: what changes nothing, for each result
ROWS = "rows_alike"
"""Of one that is a product, over [..., n, k]: so many rows, in order, share a right operand, and are at one
distance from each other in the left one."""
FACTORS = "factors"  # another: the type of what is multiplied, in memory
UNIFORM = "uniform"  # another: numbers of results, such as counts, that have one value for all kept elements


class Access(enum.Enum):
    ROW = "row"
    FREE = "free"
    SCATTER = "scatter"


class Reduction(enum.Enum):
    INNER = "inner"
    CROSS = "cross"
    MIXED = "mixed"


@dataclass(frozen=True)
class Relation:
    """`modular`: the row number goes through // or %, which no vector loop over rows likes."""

    access: Access
    modular: bool = False


def prefix_rank(shape: tuple[int, ...], rows: int) -> int | None:
    """Number of leading dimensions whose product is `rows`; None when the cut falls inside one."""
    product = 1
    for k in range(len(shape) + 1):
        if product == rows:
            return k
        if k < len(shape):
            product *= shape[k]
    return None


def row_index(shape: tuple[int, ...], rows: int, row: Index, inner: str = "i") -> tuple[Index, ...]:
    """The index of an arbitrary element of row `row`, over fresh inner variables."""
    k = prefix_rank(shape, rows)
    if k is None:
        slab = math.prod(shape) // rows
        return delinearize(add(mul(row, slab), var(Var(inner, slab))), shape)
    rest = (var(Var(f"{inner}{d}", shape[d])) for d in range(k, len(shape)))
    return (*delinearize(row, shape[:k]), *rest)


def read_index(index: tuple[Index, ...], shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The index with every component clamped into the tensor, where that is not already certain."""
    return tuple(clamp(i, 0, d - 1) for i, d in zip(index, shape, strict=True))


def _mentions(e: Index, name: str) -> bool:
    return any(isinstance(a, Var) and a.name == name for a in atoms([e]))


def _is_modular(index: tuple[Index, ...]) -> bool:
    return any(isinstance(a, FloorDiv | Mod | Clamp) and _mentions(a.of, ROW_VAR) for a in atoms(index))


def _access(index: tuple[Index, ...], shape: tuple[int, ...], rows: int) -> Access:
    offset = linearize(read_index(index, shape), shape)
    if not _mentions(offset, ROW_VAR) and rows > 1:
        return Access.FREE
    size = math.prod(shape)
    if size % rows:
        return Access.SCATTER
    slab = size // rows
    low, high = bounds(add(offset, mul(var(Var(ROW_VAR, rows)), -slab)))
    return Access.ROW if low >= 0 and high < slab else Access.SCATTER


def divides_rows(iota: Op, rows: int) -> bool:
    """Whether an iota's elements, each a row, are the row number's quotient, or what is left of it."""
    position, shape = lookup(iota.name).position, iota.result.shape
    if position is None or math.prod(shape) != rows:
        return False
    return _is_modular((position(iota, row_index(shape, rows, var(Var(ROW_VAR, rows)))),))


def _worst(a: Relation, b: Relation) -> Relation:
    order = (Access.ROW, Access.FREE, Access.SCATTER)
    if {a.access, b.access} == {Access.ROW, Access.FREE}:
        return Relation(Access.SCATTER, a.modular or b.modular)
    return Relation(max(a.access, b.access, key=order.index), a.modular or b.modular)


@per_object
def relations(op: Op, rows: int) -> tuple[Relation, ...]:
    """How each operand of an elementwise, shape or index op is reached when its result has `rows` rows."""
    shape = op.results[0].shape
    if lookup(op.name).op_class.is_elementwise:
        same = Relation(Access.ROW)
        return tuple(same if v.shape == shape else Relation(Access.FREE) for v in op.operands)
    if math.prod(shape) % rows:
        return tuple(Relation(Access.SCATTER) for _ in op.operands)
    definition = lookup(op.name)
    if definition.cases is None:
        return tuple(Relation(Access.FREE) for _ in op.operands)
    found: dict[int, Relation] = {}

    def reach(operand: int, index: tuple[Index, ...]) -> None:
        relation = Relation(_access(index, op.operands[operand].shape, rows), _is_modular(index))
        found[operand] = _worst(found[operand], relation) if operand in found else relation

    index = row_index(shape, rows, var(Var(ROW_VAR, rows)))
    for case in definition.cases(op, index):
        reach(case.operand, case.index)
        for e in (*case.index, *(c.of for c in case.conditions)):
            for atom in atoms([e]):
                if isinstance(atom, Dynamic) and isinstance(atom.operand, int):
                    reach(atom.operand, atom.index)
    return tuple(found.get(k, Relation(Access.FREE)) for k in range(len(op.operands)))


@per_object
def reduction(op: Op, rows: int) -> Reduction:
    """What a reduction is to an operand of `rows` rows."""
    operand, result = op.operands[0].shape, op.results[0].shape
    if math.prod(operand) % rows or (ROWS in op.attrs and rows > math.prod(operand[:-2])):
        return Reduction.MIXED
    dims = op.attrs["dimensions"]
    index = row_index(operand, rows, var(Var(ROW_VAR, rows)))
    kept = tuple(e for d, e in enumerate(index) if d not in dims)
    offset = linearize(kept, result)
    if prefix_rank(operand, rows) is None and _mentions(offset, "i"):
        return Reduction.MIXED  # one loop runs over kept and reduced dimensions alike
    if not _mentions(offset, ROW_VAR) and rows > 1:
        return Reduction.CROSS if has_identity(op) else Reduction.MIXED
    return Reduction.INNER if _access(kept, result, rows) is Access.ROW else Reduction.MIXED


def has_identity(op: Op) -> bool:
    """Whether partial results of a reduction can be made apart and combined."""
    return IDENTITY in op.attrs or lookup(op.attrs.get("monoid", "")).identity is not None


def identities(op: Op) -> tuple[float | int | bool, ...]:
    """What changes nothing in a reduction that has_identity, for each result."""
    if IDENTITY in op.attrs:
        return tuple(op.attrs[IDENTITY])
    identity = lookup(op.attrs["monoid"]).identity
    assert identity is not None
    return tuple(identity(v.tensor.dtype.compute) for v in op.results)


def data_operands(op: Op) -> tuple[Value, ...]:
    """The reduced operands of a reduction (its inits follow them)."""
    return op.operands[: len(op.results)]


def is_reduction(op: Op) -> bool:
    return lookup(op.name).op_class is OpClass.REDUCTION
