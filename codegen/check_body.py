"""What a body of the Launch IR does with names, whatever the target: the part of its check that both share.

    v7 after `if ok: v7 = ...`      may have no value
    h1[k * 4 + j] of 12             k * 4 + j may reach 13

Of every integer three things are followed: between which numbers it is, by which number it is divisible, and
how many neighbouring threads have the same one (`alike`, for who waits for whom).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from jstitch.codegen.interval import Interval, point
from jstitch.codegen.launch_ir import (
    Assign,
    Comment,
    Flag,
    For,
    Get,
    If,
    Integer,
    Pointer,
    Read,
    Registers,
    Shuffle,
    Statement,
    Unroll,
    Write,
)
from jstitch.codegen.launch_places import THREAD, Elements, Equal, IsSet, Less, Test
from jstitch.ir.expr import Expr, numbers, refs
from jstitch.ir.index import Atom, Clamp, Dynamic, FloorDiv, Index, Mod, Var

ALL = 1 << 30
"""Of threads that have the same value: those of any CTA."""
ANYTHING = Interval(-(1 << 62), 1 << 62)


@dataclass(frozen=True)
class Value:
    """An integer within `range`, divisible by `multiple` (0: is 0); any other value is within ANYTHING.

    alike: so many neighbouring threads, from a multiple of it on, have the same.
    """

    range: Interval = ANYTHING
    multiple: int = 1
    alike: int = ALL

    def join(self, other: Value) -> Value:
        """What is either of them."""
        widened = self.range if self.range == other.range else self.range | other.range
        return Value(widened, math.gcd(self.multiple, other.multiple), min(self.alike, other.alike))

    def below(self, bound: int) -> Value:
        """When it is known to be below the bound."""
        most = bound - 1
        most = most // self.multiple * self.multiple if self.multiple else most
        return replace(self, range=Interval(self.range.low, min(self.range.high, most)))


Names = dict[str, Value]


class BodyCheck:
    """Walks one body; targets add their own statements and memories. found: complaints."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.arrays: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.found: dict[str, None] = {}

    # -- what a target adds ---------------------------------------------------------------------------

    def own(self, s: Statement, alike: int) -> None:
        """A statement that is this target's only."""
        self.complain(s, "is no statement of this target")

    def place(self, s: Read | Write, at: Value) -> int:
        """Check an access; how many threads have the same place."""
        raise NotImplementedError

    # -- statements -----------------------------------------------------------------------------------

    def body(self, body: Iterable[Statement], alike: int) -> None:
        """alike: so many neighbouring threads run these statements together."""
        for s in body:
            self.kind(s)
            self.statement(s, alike)

    def kind(self, s: Statement) -> None:
        """A name is of one kind in all of a function, also in branches that no thread runs both of."""
        match s:
            case Registers(name) | Read(name, width=2 | 4 | 8 | 16):
                kind = "an array"
            case Integer(name) | Flag(name) | Assign(name) | Get(name) | Read(name) | Shuffle(name):
                kind = "a number"
            case Pointer(name):
                kind = "a pointer"
            case _:
                return
        if self.kinds.setdefault(name, kind) != kind:
            self.complain(s, f"makes {name} {kind}, which is {self.kinds[name]} elsewhere")

    def statement(self, s: Statement, alike: int) -> None:
        match s:
            case Comment():
                pass
            case Integer(name, value, within):
                self.names[name] = self.integer(value, within)
            case Flag(name, test):
                self.names[name] = Value(alike=self.test(test))
            case Assign(name, value):
                self.names[name] = self.scalar(value)
            case Read():
                self.read(s)
            case Write():
                self.write(s)
            case For() | Unroll():
                self.loop(s, alike)
            case If():
                self.branch(s, alike)
            case _:
                self.own(s, alike)

    def read(self, s: Read) -> None:
        alike = self.place(s, self.index(s.at))
        if s.width > 1:
            self.arrays[s.name] = s.width
        else:
            self.names[s.name] = Value(alike=alike)

    def write(self, s: Write) -> None:
        self.place(s, self.index(s.at))
        if isinstance(s.value, Elements):
            self.element(s.value.array, self.index(s.value.first), s.width)
        else:
            self.scalar(s.value)

    def loop(self, s: For | Unroll, alike: int) -> None:
        """The body, until nothing changes from turn to turn; its names end with it, unless it surely runs."""
        if isinstance(s, Unroll):
            turn, held = Value(Interval(0, s.count - 1)), ALL
        else:
            low, high = self.index(s.low), self.index(s.high)
            held = min(low.alike, high.alike)
            start = Value(Interval(low.range.low, ANYTHING.high), math.gcd(low.multiple, s.step), held)
            turn = start.below(high.range.high)
        if turn.range.empty:
            return
        self.names.pop(s.name, None)
        before, arrays = dict(self.names), dict(self.arrays)
        entered: Names | None = None
        while entered != self.names:  # what changes from turn to turn is soon as unknown as it gets
            entered = dict(self.names)
            self.names[s.name] = turn
            self.body(s.body, min(alike, held))
            made = {n: v for n, v in self.names.items() if n not in entered} if isinstance(s, Unroll) else {}
            # a name that a loop inside takes for its variable is nobody's after it
            left = {n: v for n, v in entered.items() if n in self.names}
            kept = {n: self._turned(v, self.names[n], held) for n, v in left.items()}
            self.names = kept | made
            self.names.pop(s.name, None)
        if isinstance(s, For):
            self.names, self.arrays = {n: self.names[n] for n in before if n in self.names}, arrays

    def _turned(self, before: Value, after: Value, held: int) -> Value:
        """A value that may have changed in a turn, of a loop that `held` threads leave together."""
        if before == after:
            return before
        alike = min(before.alike, after.alike, held)
        return Value(ANYTHING, math.gcd(before.multiple, after.multiple), alike)

    def branch(self, s: If, alike: int) -> None:
        held = self.test(s.test)
        before, arrays = self.names, self.arrays
        ways: list[tuple[Names, dict[str, int]]] = []
        for holds, body in ((True, s.body), (False, s.orelse)):
            assumed = self.assuming(s.test, holds)
            if any(v.range.empty for v in assumed.values()):
                continue  # no thread goes there: rows of a tile that are past the end of what is multiplied
            self.names, self.arrays = dict(assumed), dict(arrays)
            self.body(body, min(alike, held))
            left = {n: before[n] if v == assumed.get(n) else v for n, v in self.names.items()}
            ways.append((left, self.arrays))
            self.names, self.arrays = before, arrays
        if ways:
            (first, first_arrays), (rest, rest_arrays) = ways[0], ways[-1]
            self.names = {n: _either(first[n], v, held) for n, v in rest.items() if n in first}
            self.arrays = {n: c for n, c in rest_arrays.items() if first_arrays.get(n) == c}

    def assuming(self, test: Test, holds: bool = True) -> Names:
        """The names where the test holds, or does not."""
        names = dict(self.names)
        match test:
            case Less(Index(0, ((Var(name), 1),)), right) if name in names:
                bound, found = self.index(right).range, names[name]
                least = Interval(max(found.range.low, bound.low), found.range.high)
                names[name] = found.below(bound.high) if holds else replace(found, range=least)
        return names

    def element(self, array: str, at: Value, width: int) -> None:
        """at: of the first of `width` elements."""
        count = self.arrays.get(array)
        if count is None:
            self.found[f"{array} may be no array"] = None
        elif at.range.low < 0 or at.range.high + width > count:
            self.found[f"element {at.range.high + width - 1} of {array}, which has {count}"] = None

    # -- values ---------------------------------------------------------------------------------------

    def scalar(self, e: Expr) -> Value:
        found = [self.lookup(name) for name in refs(e)]
        found += [self.index(index) for index in numbers(e)]
        return Value(alike=min((v.alike for v in found), default=ALL))

    def integer(self, value: Index, within: tuple[Index, Index] | None) -> Value:
        found = self.index(value)
        if within is None:
            return found
        low, high = map(self.index, within)
        alike = min(found.alike, low.alike, high.alike)
        return Value(found.range.clamp(low.range, high.range), 1, alike)

    def index(self, e: Index) -> Value:
        found = Value(point(e.const), abs(e.const))
        for atom, k in e.terms:
            part = self.atom(atom)
            found = Value(
                found.range + part.range * point(k),
                math.gcd(found.multiple, part.multiple * abs(k)),
                min(found.alike, part.alike),
            )
        return found

    def atom(self, atom: Atom) -> Value:
        match atom:
            case Var(name):
                return self.lookup(name)
            case FloorDiv(of, by):
                found = self.index(of)
                groups = of == THREAD and by & (by - 1) == 0  # of powers of two: they lie in each other
                alike = by if groups else found.alike
                return Value(Interval(found.range.low // by, found.range.high // by), 1, alike)
            case Mod(of, by):
                found = self.index(of)
                inside = found.range if found.range in Interval(0, by - 1) else Interval(0, by - 1)
                return Value(inside, math.gcd(found.multiple, by), found.alike)
            case Clamp(of, low, high):
                found = self.index(of)
                return Value(found.range.clamp(point(low), point(high)), 1, found.alike)
            case Dynamic(operand):
                return self.lookup(str(operand))

    def test(self, test: Test) -> int:
        """How many threads agree."""
        match test:
            case Less(left, right) | Equal(left, right):
                return min(self.index(left).alike, self.index(right).alike)
            case IsSet(name):
                return self.lookup(name).alike

    def lookup(self, name: str) -> Value:
        found = self.names.get(name)
        if found is None:
            self.found[f"{name} may have no value"] = None
            return Value(alike=1)
        return found

    def complain(self, s: Statement, what: str) -> None:
        self.found[f"{type(s).__name__}: {what}"] = None


def _either(a: Value, b: Value, held: int) -> Value:
    """What a value is after a branch on which `held` threads agree."""
    return a if a == b else replace(a.join(b), alike=min(a.alike, b.alike, held))
