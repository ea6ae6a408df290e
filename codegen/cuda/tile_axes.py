"""Which two directions of a lane's elements lie next to each other in memory: in results, in operands.

out[r * 512 + i] = f(x[i * 3000 + r])                         along i, across r
out[r * 70 + i] = f(x[(r // 90) * 6300 + i * 90 + r % 90])    along i, across r % 90, a plane for each r // 90

A row number that is taken apart by // and % is split into digits; digits that every offset joins again are
one direction. What stays modular is simply no candidate.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jstitch.codegen.cuda.deal import VECTOR_BYTES, is_dynamic
from jstitch.codegen.kernel_ir import PROGRAM, ROW, STEP, Buffer, Lane, Let, Load, Nest, Space, Store
from jstitch.ir.index import FloorDiv, Index, Mod, Var, add, atoms, floordiv, mod, mul, substitute, var

SECTOR = 32  # bytes that memory moves at least
LEAST_ALONG = 9  # elements: fewer, and the rows of neighbouring threads make whole sectors anyway
LEAST_ACROSS = 4


@dataclass(frozen=True)
class Axes:
    """The directions of a nest's elements. `places`: its variables in terms of `digits`.

    along: elements of results next to each other. across: of the operands of `turned` loads. planes: the
    other digits. A turned load is a buffer at an offset in digits.
    """

    nest: Nest
    places: Mapping[str, Index]
    along: Var
    across: Var
    planes: tuple[Var, ...]
    turned: tuple[tuple[Buffer, Index], ...]

    def offset(self, e: Index) -> Index:
        """An offset in digits."""
        return substitute(e, lambda a: self.places.get(a.name) if isinstance(a, Var) else None)


def find_axes(lane: Lane, read_only: Callable[[Buffer], bool]) -> Axes | None:
    """Axes of a lane that reads across the direction in which it writes; None for all others."""
    nest = _only_nest(lane)
    found = _split(nest) if nest else None
    if nest is None or found is None:
        return None
    places, digits = found
    offsets = [(i, _replace(i.offset, places)) for i in nest.body if not isinstance(i, Let)]
    along = _most(((u, i) for i, e in offsets if isinstance(i, Store) for u in _units(e, digits)))
    if along is None or along.extent < LEAST_ALONG:
        return None
    crossing = [
        (u, i, e)
        for i, e in offsets
        if isinstance(i, Load) and read_only(i.buffer) and not is_dynamic(e) and _is_far(i.buffer, e, along)
        for u in _units(e, digits)
        if u.extent >= LEAST_ACROSS
    ]
    across = _most((u, i) for u, i, _ in crossing)
    if across is None:
        return None
    turned = dict.fromkeys((i.buffer, e) for u, i, e in crossing if u == across)
    planes = tuple(d for d in digits if d not in (along, across))
    return Axes(nest, places, along, across, planes, tuple(turned))


def _only_nest(lane: Lane) -> Nest | None:
    """The nest of a lane that has nothing but one, elementwise."""
    nests = [n for s in lane.stages for n in s.nests]
    if len(nests) != 1 or lane.stages[0].once or lane.step != 1:
        return None
    (nest,) = nests
    memory = [i for i in nest.instructions if not isinstance(i, Let)]
    stores = [i for i in memory if isinstance(i, Store)]
    variables = {a.name for i in memory for a in atoms([i.offset]) if isinstance(a, Var)}
    known = {loop.var.name for loop in nest.loops}
    rows = 1 if lane.rows == 1 else math.prod(loop.var.extent for loop in nest.loops if loop.var.name == ROW)
    plain = (
        rows == lane.rows
        and not nest.accumulators
        and not nest.after
        and all(i.buffer.space is not Space.ARENA for i in memory)
        and all(i.depth == len(nest.loops) for i in stores)
        and all(loop.var.name == ROW or (loop.lo, loop.hi) == (0, loop.var.extent) for loop in nest.loops)
        and variables <= known
        and not {PROGRAM, STEP} & known
    )
    return nest if plain else None


# -- digits -----------------------------------------------------------------------------------------------


def _split(nest: Nest) -> tuple[dict[str, Index], list[Var]] | None:
    """Every variable in digits, and the digits; None when // and % do not fit into each other."""
    offsets = [i.offset for i in nest.body if not isinstance(i, Let)]
    places: dict[str, Index] = {}
    digits: list[Var] = []
    for loop in nest.loops:
        cuts = _cuts(loop.var, offsets)
        if any(b % a for a, b in itertools.pairwise(cuts)):
            return None
        places[loop.var.name] = Index()
        for low, high in reversed(list(itertools.pairwise(cuts))):
            digit = Var(f"d{len(digits)}", high // low)
            digits.append(digit)
            places[loop.var.name] = add(places[loop.var.name], mul(var(digit), low))
    return _join(offsets, places, digits)


def _cuts(v: Var, offsets: Sequence[Index]) -> list[int]:
    """1, the divisors by which the offsets take the variable apart, its extent."""
    found = {1, v.extent}
    for atom in atoms(offsets):
        if isinstance(atom, FloorDiv | Mod):
            part = _part(atom, v)
            found |= {k for k in part or () if k < v.extent}
    return sorted(found)


def _part(atom: object, v: Var) -> tuple[int, int] | None:
    """(low, high) if the atom is v % high // low."""
    if atom == v:
        return 1, v.extent
    if not isinstance(atom, FloorDiv | Mod) or atom.of.const or len(atom.of.terms) != 1:
        return None
    ((inner, k),) = atom.of.terms
    part = _part(inner, v) if k == 1 else None
    if part is None:
        return None
    low, high = part
    return (low * atom.by, high) if isinstance(atom, FloorDiv) else (low, min(high, low * atom.by))


def _join(
    offsets: Sequence[Index], places: dict[str, Index], digits: list[Var]
) -> tuple[dict[str, Index], list[Var]]:
    """Digits that are parts of one number in every offset become that number."""
    digits = [d for d in digits if d.extent > 1]
    while True:
        current = [_replace(e, places) for e in offsets]
        pairs = ((a, b) for a in digits for b in digits if a is not b)
        pair = next((p for p in pairs if all(_joined(e, *p) for e in current)), None)
        if pair is None:
            return places, digits
        outer, inner = pair
        whole = var(Var(f"{outer.name}_{inner.name}", outer.extent * inner.extent))
        parts = {outer.name: floordiv(whole, inner.extent), inner.name: mod(whole, inner.extent)}
        places = {name: _replace(e, parts) for name, e in places.items()}
        digits = [d for d in digits if d not in pair] + [Var(f"{outer.name}_{inner.name}", _extent(whole))]


def _extent(e: Index) -> int:
    ((atom, _),) = e.terms
    assert isinstance(atom, Var)
    return atom.extent


def _joined(e: Index, outer: Var, inner: Var) -> bool:
    a, b = coefficient(e, outer), coefficient(e, inner)
    return a is not None and b is not None and a == b * inner.extent


def _replace(e: Index, places: Mapping[str, Index]) -> Index:
    return substitute(e, lambda a: places.get(a.name) if isinstance(a, Var) else None)


# -- strides ----------------------------------------------------------------------------------------------


def coefficient(e: Index, digit: Var) -> int | None:
    """What one step of the digit adds to the offset; None where that is not one number."""
    rest = Index(0, tuple((a, k) for a, k in e.terms if a != digit))
    if any(a == digit for a in atoms([rest])):
        return None
    return dict(e.terms).get(digit, 0)


def in_vectors(buffer: Buffer, e: Index, digit: Var, width: int) -> bool:
    """Whether `width` neighbours in this direction, from a multiple of `width` on, are one vector."""
    others = [k for a, k in e.terms if a != digit]
    even = not any(k % width for k in (e.const, digit.extent, *others))
    return coefficient(e, digit) == 1 and even and width * buffer.type.dtype.itemsize <= VECTOR_BYTES


def _units(e: Index, digits: Iterable[Var]) -> list[Var]:
    return [d for d in digits if coefficient(e, d) in (1, -1)]


def _is_far(buffer: Buffer, e: Index, along: Var) -> bool:
    """Whether neighbours along the results are in different sectors of the operand."""
    step = coefficient(e, along)
    return step is not None and abs(step) * buffer.type.dtype.itemsize >= SECTOR


def _most(votes: Iterable[tuple[Var, Load | Store]]) -> Var | None:
    """The digit with the most bytes."""
    nbytes: Counter[Var] = Counter()
    for digit, i in votes:
        nbytes[digit] += i.buffer.type.nbytes
    return nbytes.most_common(1)[0][0] if nbytes else None
