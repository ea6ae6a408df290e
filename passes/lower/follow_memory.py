"""The order of a nest's loops in which what it reads lies in memory, where rows are added up in another one.

sums of y [39, 48, 25], the transposition of x [25, 39, 48], over its dimensions 0 and 1:

    for i0: for i1: for i2: s[i2] += x[i2 * 1872 + i0 * 48 + i1]
    for i2: for i0: for i1: sum   += x[i2 * 1872 + i0 * 48 + i1]        vectors, and one store for each i2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jstitch.codegen.kernel_ir import Load, Nest, Store
from jstitch.ir.index import Index, Var, atoms
from jstitch.passes.lower.divide_loops import RUN, loop_name

Order = tuple[int, ...]
"""Dimensions of a nest's loops, the outermost first."""


def follow_memory(nest: Nest, sizes: Mapping[int, int]) -> Order | None:
    """The order in which fewer of the nest's accesses go from line to line; None: the one that it has.

    sizes: of the dimensions inside a row, in the order of the nest's loops.
    """
    moved = [(i.buffer, i.offset) for i in nest.instructions if isinstance(i, (Load, Store))]
    wide = [(b.type.nbytes, e) for b, e in moved if all(_stride(e, d) for d in sizes)]
    if not wide:
        return None
    _, largest = max(wide, key=lambda access: access[0])
    order = tuple(sorted(sizes, key=lambda d: -abs(_stride(largest, d) or 0)))
    offsets = [e for _, e in moved]
    return order if _scattered(offsets, order, sizes) < _scattered(offsets, tuple(sizes), sizes) else None


def _scattered(offsets: Sequence[Index], order: Order, sizes: Mapping[int, int]) -> int:
    """Accesses that are no vectors."""
    return sum(not _is_vector(e, order, sizes) for e in offsets)


def _is_vector(e: Index, order: Order, sizes: Mapping[int, int]) -> bool:
    """Whether neighbours of the innermost loop, and of what it goes on in, are neighbours in memory."""
    *outer, last = order
    step, run = _stride(e, last), sizes[last]
    if not step:
        return step == 0
    if abs(step) > 1:
        return False
    for d in reversed(outer):
        if _stride(e, d) != step * run:
            break
        run *= sizes[d]
    return run >= RUN


def _stride(e: Index, d: int) -> int | None:
    """Elements from one turn of the dimension's loop to the next; None where that differs."""
    name, found = loop_name(d), 0
    for atom, by in e.terms:
        if isinstance(atom, Var):
            found += by * (atom.name == name)
        elif any(isinstance(a, Var) and a.name == name for a in atoms([Index(0, ((atom, 1),))])):
            return None
    return found
