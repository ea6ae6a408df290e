"""Which operands a lane reads across the direction in which its threads lie next to each other.

y[i, j] = f(x[j, i]), and a sum over j      threads go along j, x along i: a sector of memory for each element
y[i, j] = f(x[j, i]), nothing else          a tile turned in shared memory: whole sectors

Counted op by op: an odd number of ops on the way that exchange the last dimension turn a read; one whose
operand does not depend on the last dimension makes it the same for all threads.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence

from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index, Var, atoms, linearize, var
from jstitch.ir.ops import lookup
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.remember import per_object
from jstitch.passes.base.row_access import data_operands, is_reduction
from jstitch.passes.lower.recompute_cost import PARTIAL


class Way(enum.Enum):
    """How the elements of threads next to each other lie in memory."""

    ALONG = "along"
    ACROSS = "across"
    SAME = "same"


def turned_reads(
    ops: Sequence[Op],
    rows: int,
    reads: Collection[Value],
    written: Collection[Value],
    producers: Mapping[Value, Op],
    sector: int,
) -> set[Value]:
    """Those of `reads` that a lane of these ops, in rows, loads one element of a sector at a time.

    sector: in bytes.
    """
    if _in_tiles(ops, written):
        return set()
    found: set[Value] = set()
    todo = [(v, Way.ALONG) for v in written] + [start for op in ops for start in _reduced(op, rows)]
    seen: set[tuple[Value, Way]] = set()
    while todo:
        v, way = todo.pop()
        if (v, way) in seen:
            continue
        seen.add((v, way))
        op = producers.get(v)
        if v in reads:
            found |= {v} if way is Way.ACROSS else set()
        elif op is not None and not _reduces(op) and not is_free(op):
            todo += [(o, _then(way, own)) for o, own in zip(op.operands, ways(op, sector), strict=True)]
    return found


def _reduces(op: Op) -> bool:
    return is_reduction(op) or op.name == PARTIAL


def _in_tiles(ops: Sequence[Op], written: Collection[Value]) -> bool:
    """Whether the lane turns what it reads in shared memory: it has one elementwise nest."""
    return not any(map(_reduces, ops)) and len({v.shape for v in written}) == 1


def _reduced(op: Op, rows: int) -> list[tuple[Value, Way]]:
    """What a reduction reads. Threads go along kept elements of a row, if there are any and it is better."""
    if not _reduces(op):
        return []
    alone = op.name == PARTIAL or op.results[0].tensor.size <= rows
    return [(v, Way.ALONG if alone else Way.SAME) for v in data_operands(op)]


def _then(way: Way, own: Way) -> Way:
    """Two ops, one after the other."""
    if Way.SAME in (way, own):
        return Way.SAME
    return Way.ALONG if way is own else Way.ACROSS


def is_turned(ops: Iterable[Op], sector: int) -> bool:
    """Whether some op reads across, without which no lane of theirs does."""
    return any(Way.ACROSS in ways(op, sector) for op in ops)


@per_object
def ways(op: Op, sector: int) -> tuple[Way, ...]:
    """How threads that go along the last dimension of an op's result go through its operands."""
    shape = op.results[0].shape
    cases = lookup(op.name).cases
    if cases is None:
        return tuple(Way.ALONG if v.shape == shape else Way.SAME for v in op.operands)
    index = tuple(var(Var(f"i{d}", n)) for d, n in enumerate(shape))
    last = max((d for d, n in enumerate(shape) if n > 1), default=0)
    found = dict.fromkeys(range(len(op.operands)), Way.ALONG)
    for case in cases(op, index):
        operand = op.operands[case.operand]
        offset = linearize(case.index, operand.shape)
        found[case.operand] = _way(offset, f"i{last}", -(-sector // operand.tensor.dtype.itemsize))
    return tuple(found.values())


def _way(offset: Index, last: str, sector: int) -> Way:
    """ACROSS when another dimension is the one whose elements are neighbours. sector: in elements."""
    steps = {a.name: abs(k) for a, k in offset.terms if isinstance(a, Var)}
    if not any(isinstance(a, Var) and a.name == last for a in atoms([offset])):
        return Way.SAME
    far = steps.get(last, 1) >= sector
    return Way.ACROSS if far and 1 in (k for name, k in steps.items() if name != last) else Way.ALONG
