"""What the values of a step's columns are made of, and how they change when a running maximum grows.

    t0[r, c] = sum of q * k           no reduction over columns in it
    t1[r] = maximum of 0.125 * t0     the maximum of that
    e = exp(0.125 * t0[r, c] - t1)    e becomes e * exp(old t1 - t1) where t1 grows

Equal values have equal numbers, in whichever nest they are made. A value changes by a factor where it is a
product of such an exponential and of what knows nothing of running values, or a sum of equal factors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jstitch.codegen.kernel_ir import Buffer, Instr, Let, Load, Loop, Nest, Store
from jstitch.ir.expr import Call, Const, Expr, Number, Ref, index_refs
from jstitch.ir.index import Index, Var, substitute, var

Key = tuple[Any, ...]
"""A function and the numbers of its operands, or what a leaf is."""
Factors = tuple[int, ...]
"""Numbers of what is subtracted in exponentials, whose product a value has as a factor."""

ADDS = ("add", "add_reassoc")
MAXIMA = ("maximum", "max_reassoc")
TIMES = ("mul", "mul_reassoc")
EXPONENTIALS = ("exp", "exp_nonpositive")
OVER_COLUMNS, RUNNING = "over columns", "running"


@dataclass(frozen=True)
class Update:
    """total = function(total, summand), by the summand's number."""

    function: str
    summand: int


@dataclass
class ColumnValues:
    """Values of nests in their order. tiles: of blocks of columns. column: the loop over all of them.

    stored: tile -> what is in it. running: tile of a row -> what it is the maximum of, or None.
    depends: value -> tiles of running values in it. factors: None where it does not change by a factor.
    """

    tiles: frozenset[Buffer]
    columns: int
    keys: list[Key] = field(default_factory=list)
    numbers: dict[Key, int] = field(default_factory=dict)
    depends: list[frozenset[Buffer]] = field(default_factory=list)
    factors: list[Factors | None] = field(default_factory=list)
    stored: dict[Buffer, int] = field(default_factory=dict)
    running: dict[Buffer, int | None] = field(default_factory=dict)

    def follow(self, nest: Nest, column: Loop | None) -> tuple[dict[str, Update], list[tuple[Store, int]]]:
        """Updates of accumulators, and what is stored. column: the nest's loop over columns."""
        names: dict[str, int] = {}
        updates: dict[str, Update] = {}
        stores: list[tuple[Store, int]] = []
        totals = {a.name for a in nest.accumulators}
        for name in totals:
            names[name] = self._number(("total", id(nest), name), ())
        for i in nest.body:
            if isinstance(i, Let) and i.name in totals:
                updates[i.name] = self._update(i, names, column)
            else:
                self._instruction(i, names, column, stores)
        for name, update in updates.items():
            names[name] = self._number((OVER_COLUMNS, update.function, update.summand), (update.summand,))
        for i in nest.after:
            self._instruction(i, names, column, stores)
        return updates, stores

    def base(self, number: int) -> Buffer:
        """The running maximum that a factor's base is made of."""
        (tile,) = self.depends[number]
        return tile

    # -- values ---------------------------------------------------------------------------------------

    def _instruction(
        self, i: Instr, names: dict[str, int], column: Loop | None, stores: list[tuple[Store, int]]
    ) -> None:
        match i:
            case Load(name, buffer) if buffer in self.stored:
                names[name] = self.stored[buffer]
            case Load(name, buffer, offset) if buffer in self.running:
                names[name] = self._number((RUNNING, buffer, offset), ())
            case Load(name, buffer, offset):
                read = tuple(names[n] for n in index_refs(offset))
                names[name] = self._number(("load", buffer, self._canonical(offset, column), *read), read)
            case Let(name, value):
                names[name] = self.of(value, names, column)
            case Store(buffer, _, value):
                stores.append((i, self.of(value, names, column)))
                if buffer in self.tiles:
                    self.stored[buffer] = stores[-1][1]

    def _update(self, i: Let, names: dict[str, int], column: Loop | None) -> Update:
        match i.value:
            case Call(function, (Ref(i.name), other)) | Call(function, (other, Ref(i.name))):
                return Update(function, self.of(other, names, column))
        return Update("", self.of(i.value, names, column))

    def of(self, e: Expr, names: dict[str, int], column: Loop | None) -> int:
        """The number of an expression."""
        match e:
            case Ref(name):
                return names[name]
            case Const():
                return self._number(("const", e), ())
            case Number(index):
                read = tuple(names[n] for n in index_refs(index))
                return self._number(("number", self._canonical(index, column), *read), read)
            case Call(function, args):
                operands = tuple(self.of(a, names, column) for a in args)
                return self._number((function, *operands), operands)

    def _canonical(self, e: Index, column: Loop | None) -> Index:
        """With one name for the column."""
        if column is None:
            return e
        own = var(Var("column", self.columns))
        return substitute(e, lambda atom: own if atom == column.var else None)

    def _number(self, key: Key, operands: Sequence[int]) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.keys)
            self.keys.append(key)
            own = {key[1]} if key[0] == RUNNING else set()
            self.depends.append(frozenset(own).union(*(self.depends[n] for n in operands)))
            self.factors.append(self._factors(key, operands))
        return self.numbers[key]

    # -- factors --------------------------------------------------------------------------------------

    def _factors(self, key: Key, operands: Sequence[int]) -> Factors | None:
        if not self.depends[-1]:
            return ()
        found = [self.factors[n] for n in operands]
        function, *rest = key
        if function in EXPONENTIALS:
            return self._exponential(operands[0])
        if function in TIMES and None not in found:
            return tuple(sorted(f for part in found for f in part or ()))
        if function == "div" and not self.depends[operands[1]]:
            return found[0]
        if function in (*ADDS, "sub"):
            return self._alike(operands)
        if function == "select" and not self.depends[operands[0]]:
            return self._alike(operands[1:])
        summed = function == OVER_COLUMNS and rest[0] in ADDS
        return found[0] if summed or function == "neg" or _converts(key) else None

    def _alike(self, numbers: Iterable[int]) -> Factors | None:
        """The factors that all have; zero has any."""
        found = {self.factors[n] for n in numbers if not _is_zero(self.keys[n])}
        return found.pop() if len(found) == 1 else None

    def _exponential(self, x: int) -> Factors | None:
        """exp(a - b), where b is the running maximum of a, or no less than that."""
        while _converts(self.keys[x]):
            x = self.keys[x][1]
        if self.keys[x][0] != "sub":
            return None
        _, a, b = self.keys[x]
        if len(self.depends[b]) != 1:
            return None
        return (b,) if self.running[self.base(b)] == a and self._is_bound(b) else None

    def _is_bound(self, b: int) -> bool:
        """Whether it is a running maximum, something larger, or a constant in its place."""
        todo = [b]
        while todo:
            key = self.keys[todo.pop()]
            match key[0]:
                case "running" | "const":
                    pass
                case "select":
                    todo += key[2:]
                case function if function in MAXIMA or _converts(key):
                    todo += key[1:]
                case _:
                    return False
        return True


def _converts(key: Key) -> bool:
    return str(key[0]).startswith("convert_")


def _is_zero(key: Key) -> bool:
    return bool(key[0] == "const" and key[1].value == 0)
