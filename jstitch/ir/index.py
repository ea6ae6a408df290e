"""Symbolic integer expressions: where an element of a result comes from.

    Index ::= Sum(const + coeff * Atom + ...)
    Atom  ::= Var(name, extent)                a loop variable, 0 <= v < extent
            | FloorDiv(Sum, k) | Mod(Sum, k)
            | Clamp(Sum, lo, hi)
            | Dynamic(operand, index)          an integer read from an operand of the op at `index`

Everything is built through `const`, `add`, `mul`, `floordiv`, `mod` and `clamp` (or +, -, *, //, %), which
simplify with the atoms' ranges, so that equal expressions are equal values:

    >>> b, c = Var("b", 6), Var("c", 4)
    >>> str(floordiv(add(mul(var(b), 4), var(c)), 4))
    'b'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

_INT64 = 1 << 63


@dataclass(frozen=True)
class Var:
    """A loop variable: 0 <= value < extent."""

    name: str
    extent: int

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FloorDiv:
    """Floor division by a positive constant."""

    of: Index
    by: int

    def __str__(self) -> str:
        return f"({self.of}) // {self.by}"


@dataclass(frozen=True)
class Mod:
    """Remainder of floor division by a positive constant."""

    of: Index
    by: int

    def __str__(self) -> str:
        return f"({self.of}) % {self.by}"


@dataclass(frozen=True)
class Clamp:
    """min(max(of, lo), hi)."""

    of: Index
    lo: int
    hi: int

    def __str__(self) -> str:
        return f"clamp({self.of}, {self.lo}, {self.hi})"


@dataclass(frozen=True)
class Dynamic:
    """The integer element of `operand` (anything hashable that names a tensor) at `index`."""

    operand: object
    index: tuple[Index, ...]

    def __str__(self) -> str:
        return f"{self.operand}[{', '.join(map(str, self.index))}]"


Atom = Var | FloorDiv | Mod | Clamp | Dynamic


@dataclass(frozen=True)
class Index:
    """const + sum of coeff * atom; atoms are distinct and coefficients are not 0."""

    const: int = 0
    terms: tuple[tuple[Atom, int], ...] = ()

    @property
    def is_const(self) -> bool:
        return not self.terms

    def __add__(self, other: Index | int) -> Index:
        return add(self, _as_index(other))

    def __sub__(self, other: Index | int) -> Index:
        return add(self, mul(_as_index(other), -1))

    def __mul__(self, k: int) -> Index:
        return mul(self, k)

    def __floordiv__(self, k: int) -> Index:
        return floordiv(self, k)

    def __mod__(self, k: int) -> Index:
        return mod(self, k)

    def __str__(self) -> str:
        parts = [f"{k} * {_wrap(a)}" if k != 1 else _wrap(a) for a, k in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


def _wrap(atom: Atom) -> str:
    return f"({atom})" if isinstance(atom, FloorDiv | Mod) else str(atom)


def _as_index(value: Index | int) -> Index:
    return const(value) if isinstance(value, int) else value


@lru_cache(maxsize=1024, typed=True)
def const(value: int) -> Index:
    return Index(value)


def var(v: Atom) -> Index:
    """A single atom as an Index; a loop variable of extent 1 is 0."""
    return Index() if isinstance(v, Var) and v.extent == 1 else Index(0, ((v, 1),))


def bounds(e: Index) -> tuple[int, int]:
    """Smallest and largest value that e may take."""
    lo = hi = e.const
    for atom, k in e.terms:
        a, b = _atom_bounds(atom)
        lo, hi = lo + min(k * a, k * b), hi + max(k * a, k * b)
    return lo, hi


@lru_cache(maxsize=8192)
def _atom_bounds(atom: Atom) -> tuple[int, int]:
    match atom:
        case Var(_, extent):
            return 0, extent - 1
        case FloorDiv(of, by):
            lo, hi = bounds(of)
            return lo // by, hi // by
        case Mod(of, by):
            return 0, by - 1
        case Clamp(of, lo, hi):
            a, b = bounds(of)
            return min(max(a, lo), hi), min(max(b, lo), hi)
        case Dynamic():
            return -_INT64, _INT64 - 1


def add(a: Index, b: Index) -> Index:
    if not b.terms:  # what is in order stays so
        return Index(a.const + b.const, a.terms) if b.const else a
    if not a.terms:
        return Index(a.const + b.const, b.terms) if a.const else b
    terms = dict(a.terms)
    for atom, k in b.terms:
        terms[atom] = terms.get(atom, 0) + k
    return _rejoin(a.const + b.const, {t: k for t, k in terms.items() if k})


def _rejoin(constant: int, terms: dict[Atom, int]) -> Index:
    """k*n * (x // n) + k * (x % n)  ->  k * x."""
    for atom, k in terms.items():
        quotient = _only_atom(floordiv(atom.of, atom.by)) if isinstance(atom, Mod) else None
        if isinstance(atom, Mod) and quotient is not None and terms.get(quotient) == k * atom.by:
            rest = {t: c for t, c in terms.items() if t not in (atom, quotient)}
            return add(_sorted(constant, rest), mul(atom.of, k))
    return _sorted(constant, terms)


def _sorted(constant: int, terms: dict[Atom, int]) -> Index:
    if len(terms) < 2:
        return Index(constant, tuple(terms.items()))
    return Index(constant, tuple(sorted(terms.items(), key=_order)))


def _order(term: tuple[Atom, int]) -> tuple[int, str]:
    atom, k = term
    return -abs(k), atom.name if isinstance(atom, Var) else str(atom)


def mul(a: Index, k: int) -> Index:
    if k == 1:
        return a
    return Index(a.const * k, tuple((t, c * k) for t, c in a.terms)) if k else Index()


def _split(e: Index, k: int) -> tuple[Index, Index]:
    """e = k * quotient + rest, with as much as possible in the quotient."""
    whole = tuple((t, c // k) for t, c in e.terms if c % k == 0)
    rest = tuple((t, c) for t, c in e.terms if c % k)
    return Index(e.const // k, whole), Index(e.const % k, rest)


def floordiv(e: Index, k: int) -> Index:
    """Floor division by a constant k > 0."""
    quotient, rest = _split(e, k)
    lo, hi = bounds(rest)
    if lo // k == hi // k:
        return add(quotient, const(lo // k))
    return add(quotient, _divided(rest, k))


def _divided(e: Index, k: int) -> Index:
    """(d * a + b) // (d * m) with 0 <= b < d is a // m; (a + b // n) // k is (n * a + b) // (n * k)."""
    for d in _common(e, k):
        whole, rest = _split(e, d)
        lo, hi = bounds(rest)
        if lo // d == hi // d:
            return floordiv(add(whole, const(lo // d)), k // d)
    match [(atom, c) for atom, c in e.terms if isinstance(atom, FloorDiv)]:
        case [(FloorDiv(of, by) as atom, 1)]:
            others = add(e, mul(var(atom), -1))
            return floordiv(add(mul(others, by), of), by * k)
        case _:
            return var(FloorDiv(e, k))


def _only_atom(e: Index) -> Atom | None:
    match e:
        case Index(0, ((atom, 1),)):
            return atom
        case _:
            return None


def _common(e: Index, k: int) -> list[int]:
    """Divisors of k that terms have in common with it, the largest first."""
    found = {math.gcd(c, k) for _, c in e.terms}
    return sorted(found - {1, k}, reverse=True)


def mod(e: Index, k: int) -> Index:
    """Remainder of floor division by a constant k > 0."""
    _, rest = _split(e, k)
    lo, hi = bounds(rest)
    if lo // k == hi // k:
        return add(rest, const(-(lo // k) * k))
    for d in _common(rest, k):
        whole, small = _split(rest, d)
        lo, hi = bounds(small)
        if lo >= 0 and hi < d:
            return add(mul(mod(whole, k // d), d), small)
    return var(Mod(rest, k))


def clamp(e: Index, lo: int, hi: int) -> Index:
    a, b = bounds(e)
    if lo == hi:
        return const(lo)
    if lo <= a and b <= hi:
        return e
    return const(min(max(e.const, lo), hi)) if e.is_const else var(Clamp(e, lo, hi))


def linearize(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """Row-major offset of a multi-dimensional index."""
    offset = Index()
    for i, d in zip(index, shape, strict=True):
        offset = add(mul(offset, d), i)
    return offset


def delinearize(offset: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The index whose row-major offset in `shape` is `offset` (0 <= offset < size)."""
    index: list[Index] = []
    for d in reversed(shape[1:]):
        index.append(mod(offset, d))
        offset = floordiv(offset, d)
    return (*([offset] if shape else []), *reversed(index))


def substitute(e: Index, value: Callable[[Atom], Index | None]) -> Index:
    """Replace atoms for which `value` gives an Index, inside other atoms too."""
    result = const(e.const)
    for atom, k in e.terms:
        result = add(result, mul(_substitute_atom(atom, value), k))
    return result


def _substitute_atom(atom: Atom, value: Callable[[Atom], Index | None]) -> Index:
    new = value(atom)
    if new is not None:
        return new
    match atom:
        case FloorDiv(of, by):
            return floordiv(substitute(of, value), by)
        case Mod(of, by):
            return mod(substitute(of, value), by)
        case Clamp(of, lo, hi):
            return clamp(substitute(of, value), lo, hi)
        case Dynamic(operand, index):
            return var(Dynamic(operand, tuple(substitute(i, value) for i in index)))
        case Var():
            return var(atom)


def is_longer(e: Index, most: int) -> bool:
    """Whether more atoms than that are written in e, each as often as it stands there."""
    count, todo = 0, [e]
    while todo and count <= most:
        for atom, _ in todo.pop().terms:
            count += 1
            match atom:
                case FloorDiv(of, _) | Mod(of, _) | Clamp(of, _, _):
                    todo.append(of)
                case Dynamic(_, index):
                    todo.extend(index)
    return count > most


def atoms(exprs: Iterable[Index]) -> set[Atom]:
    """Every atom in the expressions, nested ones too."""
    found: set[Atom] = set()
    todo = list(exprs)
    while todo:
        for atom, _ in todo.pop().terms:
            found.add(atom)
            match atom:
                case FloorDiv(of, _) | Mod(of, _) | Clamp(of, _, _):
                    todo.append(of)
                case Dynamic(_, index):
                    todo.extend(index)
    return found


@dataclass(frozen=True)
class Condition:
    """lo <= of < hi, and of - lo is a multiple of `step`."""

    of: Index
    lo: int
    hi: int
    step: int = 1

    @property
    def always(self) -> bool:
        a, b = bounds(self.of)
        return self.lo <= a and b < self.hi and (self.step == 1 or a == b == self.lo)

    @property
    def never(self) -> bool:
        a, b = bounds(self.of)
        return b < self.lo or a >= self.hi


@dataclass(frozen=True)
class Case:
    """An element comes from `operand` (its number) at `index` when all conditions hold.

    `index` must be read only when they hold; it may be out of bounds otherwise.
    """

    operand: int
    index: tuple[Index, ...]
    conditions: tuple[Condition, ...] = ()
