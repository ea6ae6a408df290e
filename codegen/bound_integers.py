"""Prove that every integer of a kernel's text fits the width that it is computed in.

    lo = quotient((p + 1) * 24000000, 198)        p in [0, 197], indices of 32 bits
    ->  "line 9: (p + 1) * 24000000 may reach [24000000, 4752000000], beyond 32 bits"

Both backends write their kernels as text, in which all sizes and strides are numbers: what it computes is
what runs. One walk over it, with an interval for each name, bounds all of it: offsets, quotients, bounds and
steps of loops, bytes of the arena, numbers of barriers. Loops and branches narrow what their tests speak of.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from jstitch.codegen.interval import Interval, of_bits, point
from jstitch.codegen.memory_names import MEMORY, MemoryName
from jstitch.ir.ops.numerics import kernel_name
from jstitch.ir.types import DType

SHARED_BITS = 32  # of an address in the arena
WIDE = 64
_TABLE, _ADDRESS, _BOOL, _UNKNOWN = "table of addresses", "address", "bool", ""
_MAKERS = ("convert", "bitcast", "registers")  # name_<dtype>
_INTEGERS = {kernel_name(d): d for d in DType if d.is_integer and kernel_name(d)}
_TYPES = {d.numpy.name: name for d in DType if (name := kernel_name(d)) is not None}
_OPPOSITE = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.Eq: ast.NotEq}
_SWAPPED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq}
_FAR = 1 << 200


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer that places are made of. bits: that it is computed in; 0: a literal, any width."""

    range: Interval
    bits: int


@dataclass(frozen=True, slots=True)
class Datum:
    """Any other value: its dtype, "" where that does not matter."""

    dtype: str


Value = Whole | Datum
TABLE, ADDRESS = Datum(_TABLE), Datum(_ADDRESS)


def bound_integers(
    function: ast.FunctionDef,
    known: Mapping[str, Interval | Datum],
    bits: int,
) -> tuple[str, ...]:
    """What may not fit, one line each; empty when everything does.

    known: parameters, and functions without arguments such as "block()". bits: of a plain integer.
    """
    given = {name: Whole(v, bits) if isinstance(v, Interval) else v for name, v in known.items()}
    walk = _Walk(bits, given)
    walk.block(function.body)
    return tuple(walk.found)


class _Walk:
    """names: what each may be, where the walk stands. found: complaints."""

    def __init__(self, bits: int, names: dict[str, Value]) -> None:
        self.bits, self.names, self.found = bits, names, dict[str, None]()

    # -- statements -----------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                self.names[name] = self.value(value)
            case ast.Assign([ast.Subscript(_, index)], value):
                self.whole(index)
                self.value(value)
            case ast.Expr(value):
                self.value(value)
            case ast.For(ast.Name(name), ast.Call(ast.Name(kind), bounds), body):
                self.loop(statement, name, kind, bounds, body)
            case ast.If():
                self.branch(statement)
            case ast.Pass():
                pass
            case _:
                self.complain(statement, "is no statement of kernel text")

    def loop(
        self, node: ast.stmt, name: str, kind: str, bounds: Sequence[ast.expr], body: Sequence[ast.stmt]
    ) -> None:
        values = [self.whole(b) for b in bounds]
        if kind == "unroll":
            return self.turns(name, Interval(0, values[0].high - 1), body)
        low, high = values[:2]
        step = values[2] if len(values) > 2 else point(1)
        turn = Interval(low.low, high.high - 1)
        if turn.empty:
            return None
        if step.low < 1:
            self.complain(node, f"has a step that may be {step.low}")
        self.fit(node, Interval(turn.low, turn.high + step.high), self.bits, "after its last turn")
        before = dict(self.names)
        self.narrow(bounds[1], Interval(low.low + 1, _FAR))
        self.narrow(bounds[0], Interval(-_FAR, high.high - 1))
        inside = dict(self.names)
        self.turns(name, turn, body)
        narrowed = {n for n, v in inside.items() if v != before[n]}
        self.names = {n: _join(before[n], v) if n in narrowed else v for n, v in self.names.items()}
        return None

    def turns(self, name: str, turn: Interval, body: Sequence[ast.stmt]) -> None:
        """The body with the loop's variable in `turn`, until no name changes from turn to turn."""
        for last in (False, False, True):
            before = dict(self.names)
            self.names[name] = Whole(turn, self.bits)
            self.block(body)
            del self.names[name]
            self.names = _either(before, self.names)
            grown = [n for n, v in before.items() if self.names[n] != v]
            if not grown:
                return
            if last:
                self.complain(body[0], f"changes {', '.join(grown)} from turn to turn")

    def branch(self, statement: ast.If) -> None:
        """`if`, every `elif`, `else`: one after another, for chains may be long."""
        arms: list[dict[str, Value]] = []
        rest: Sequence[ast.stmt] = [statement]
        possible = True
        while possible and len(rest) == 1 and isinstance(node := rest[0], ast.If):
            self.value(node.test)
            before = dict(self.names)
            if self.assume(node.test, True):
                self.block(node.body)
                arms.append(self.names)
            self.names, rest = before, node.orelse
            possible = self.assume(node.test, False)
        if possible:
            self.block(rest)
            arms.append(self.names)
        self.names = reduce(_either, arms or [self.names])

    def assume(self, test: ast.expr, holds: bool) -> bool:
        """Narrow what a comparison speaks of; whether it can hold (or not hold) at all."""
        match test:
            case ast.Compare(left, [op], [right]) if type(op) in _OPPOSITE:
                kind = type(op) if holds else _OPPOSITE[type(op)]
                a, b = self.value(left), self.value(right)
                if isinstance(a, Whole) and isinstance(b, Whole) and kind in _SWAPPED:
                    possible = self.narrow(left, _side(kind, b.range))
                    return self.narrow(right, _side(_SWAPPED[kind], a.range)) and possible
        return True

    def narrow(self, node: ast.expr, to: Interval) -> bool:
        """A name, or a function without arguments, within the interval; whether anything is left of it."""
        match node:
            case ast.Name(name) | ast.Call(ast.Name(name), []):
                key = name if isinstance(node, ast.Name) else f"{name}()"
                found = self.names.get(key)
                if isinstance(found, Whole):
                    self.names[key] = replace(found, range=found.range & to)
                    return not (found.range & to).empty
        return True

    # -- expressions ----------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Name(name):
                return self.names.get(name) or self.unknown(node)
            case ast.Constant(bool()):
                return Datum(_BOOL)
            case ast.Constant(int() as number):
                return Whole(point(number), 0)
            case ast.BinOp(left, op, right):
                return self.binary(node, op, self.value(left), self.value(right))
            case ast.Call(ast.Name(name), arguments):
                return self.call(node, name, arguments)
            case ast.Subscript(array, index):
                self.whole(index)
                return self.value(array)
            case ast.Compare(left, [_], [right]):
                self.compared(node, self.value(left), self.value(right))
                return Datum(_BOOL)
            case ast.UnaryOp(ast.USub(), operand):
                return self.negated(node, self.value(operand))
            case ast.Constant():
                return Datum(_UNKNOWN)
        return self.unknown(node)

    def whole(self, node: ast.expr) -> Interval:
        """The interval of an integer that fits its width."""
        match self.value(node):
            case Whole(found, bits):
                self.fit(node, found, bits or self.bits)
                return found
            case Datum():
                self.complain(node, "is no index")
                return of_bits(self.bits)

    def binary(self, node: ast.expr, op: ast.operator, a: Value, b: Value) -> Value:
        if ADDRESS in (a, b):
            for v in (a, b):
                if isinstance(v, Whole):
                    self.fit(node, v.range, WIDE)
            return ADDRESS
        a, b = _as_whole(a), _as_whole(b)
        match a, b:
            case Whole(first, one), Whole(second, other):
                bits = max(one, other)
                if not (one and other):
                    self.fit(node, first | second, max(bits, self.bits))
                match op:
                    case ast.Add():
                        return self.computed(node, first + second, bits)
                    case ast.Sub():
                        return self.computed(node, first - second, bits)
                    case ast.Mult():
                        return self.computed(node, first * second, bits)
                return self.unknown(node)
        if any(isinstance(v, Whole) and v.bits for v in (a, b)):
            return self.unknown(node)
        return next(v for v in (a, b) if isinstance(v, Datum))

    def negated(self, node: ast.expr, value: Value) -> Value:
        match value:
            case Whole(found, 0):
                return Whole(point(0) - found, 0)
            case Whole(found, bits):
                return self.computed(node, point(0) - found, bits)
        return value

    def computed(self, node: ast.expr, found: Interval, bits: int) -> Whole:
        """A result of that width; what does not fit it is complained about once, not by all that use it."""
        bits = max(bits, self.bits)
        return Whole(found if self.fit(node, found, bits) else point(0), bits)

    def compared(self, node: ast.expr, a: Value, b: Value) -> None:
        if isinstance(a, Whole) and isinstance(b, Whole):
            self.fit(node, a.range | b.range, max(a.bits, b.bits, self.bits))

    def call(self, node: ast.expr, name: str, arguments: Sequence[ast.expr]) -> Value:
        if not arguments:
            return self.names.get(f"{name}()", Datum(_UNKNOWN))
        values = [self.value(a) for a in arguments]
        match name, values:
            case "quotient" | "remainder_pos", [Whole(a, one), Whole(b, other)]:
                return self.divided(node, name, a, b, max(one, other))
            case "clamp_index", [Whole(i), Whole(low), Whole(high)]:
                wide = max(v.bits for v in values if isinstance(v, Whole))
                for part in (i, low, high):
                    self.fit(node, part, max(wide, self.bits))
                return self.computed(node, i.clamp(low, high), 0)
            case "quotient" | "remainder_pos" | "clamp_index", _:
                return self.unknown(node)
            case "select", [_, Whole(a, one), Whole(b, other)]:
                return self.computed(node, a | b, max(one, other))
            case "prefetch_bulk", [_, Whole(piece, one), Whole(count)]:
                self.fit(node, piece, max(one, self.bits))
                self.fit(node, piece * point(16) + count, WIDE, "in bytes")
                self.fit(node, count, SHARED_BITS, "in bytes")
            case "int64", [Whole(found)]:
                return Whole(found, WIDE)
            case "int64", [Datum(dtype)]:
                return Whole(_range(dtype), WIDE)
        if (memory := MEMORY.get(name)) is not None:
            if memory.verb == "copy":
                self.access(node, replace(memory, shared=False), values[2:])
            return self.access(node, memory, values)
        return _result(name, values)

    def divided(self, node: ast.expr, name: str, a: Interval, b: Interval, bits: int) -> Value:
        """Both backends divide unsigned numbers."""
        bits = max(bits, self.bits)
        if a.low < 0 or b.low < 1 or not self.fit(node, a | b, bits):
            if a.low < 0 or b.low < 1:
                self.complain(node, f"divides {a} by {b}")
            return Whole(point(0), bits)
        return Whole(a.quotient(b) if name == "quotient" else a.remainder(b), bits)

    def access(self, node: ast.expr, memory: MemoryName, values: Sequence[Value]) -> Value:
        """Of element values[1] of the memory at values[0]: its place in bytes fits an address."""
        base, index = values[:2]
        if not isinstance(index, Whole):
            self.complain(node, "has no index")
            return _datum(memory.dtype)
        start = base.range if isinstance(base, Whole) else point(0)
        self.fit(node, start | index.range, max(index.bits, self.bits))
        size = point(memory.dtype.itemsize)
        self.fit(node, start + index.range * size, SHARED_BITS if memory.shared else WIDE, "in bytes")
        return ADDRESS if base == TABLE else _datum(memory.dtype)

    # -- complaints -----------------------------------------------------------------------------------

    def fit(self, node: ast.AST, found: Interval, bits: int, what: str = "") -> bool:
        fits = found in of_bits(bits)
        if not fits:
            self.complain(node, f"may reach {found}{f' {what}' if what else ''}, beyond {bits} bits")
        return fits

    def complain(self, node: ast.AST, what: str) -> None:
        text = ast.unparse(node).splitlines()[0]
        self.found[f"line {getattr(node, 'lineno', 0)}: {text} {what}"] = None

    def unknown(self, node: ast.expr) -> Datum:
        if not (isinstance(node, ast.Name) and node.id in ("inf", "nan")):
            self.complain(node, "is unknown")
        return Datum(_UNKNOWN)


def _either(a: dict[str, Value], b: dict[str, Value]) -> dict[str, Value]:
    """What holds after one of two ways."""
    found = {**a, **b}
    for name in a.keys() & b.keys():
        if a[name] != b[name]:
            found[name] = _join(a[name], b[name])
    return found


def _join(a: Value, b: Value) -> Value:
    match a, b:
        case Whole(first, one), Whole(second, other):
            return Whole(first | second, max(one, other))
    return Datum(_UNKNOWN)


def _side(kind: type, of: Interval) -> Interval:
    """Where x may be when `x kind y` for some y in the interval."""
    match kind:
        case ast.Lt:
            return Interval(-_FAR, of.high - 1)
        case ast.LtE:
            return Interval(-_FAR, of.high)
        case ast.Gt:
            return Interval(of.low + 1, _FAR)
        case ast.GtE:
            return Interval(of.low, _FAR)
    return of


def _as_whole(value: Value) -> Value:
    """A datum of 64 bits beside an index is one."""
    if isinstance(value, Datum) and value.dtype == "s64":
        return Whole(of_bits(WIDE), WIDE)
    return value


def _range(dtype: str) -> Interval:
    """Of an integer datum at 64 bits."""
    if dtype == _BOOL:
        return Interval(0, 1)
    found = _INTEGERS.get(dtype)
    if found is None or found.itemsize == WIDE // 8:
        return of_bits(WIDE)
    return of_bits(8 * found.itemsize, found.is_signed)


def _datum(dtype: DType) -> Datum:
    return Datum(dtype.name.lower())


def _result(name: str, values: Sequence[Value]) -> Datum:
    """Of a function of data: named after its dtype, or of its last operand's."""
    maker, _, dtype = name.partition("_")
    if maker in _MAKERS:
        return Datum(dtype)
    if name in _TYPES:
        return Datum(_TYPES[name])
    data = [v.dtype for v in values if isinstance(v, Datum)]
    return Datum(data[-1] if data else "s64")
