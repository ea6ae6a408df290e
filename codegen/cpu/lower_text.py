"""A kernel's text -> LLVM IR, by Numba's types and operators but without Numba's general front end.

    for r in range(lo, hi):                  head:  %r = phi i64 [%lo, ...], [%next, ...]
        v0 = load_f32(b0, r, 1)        ->    body:  %v0 = load float ...
        store_f32(b1, r, -v0, 2)                    store float ...

Generated text is plain Numba Python that needs no inference: scalars, calls of functions, `for` over a
range, `if`. Walking its syntax tree once types and lowers it, an order of magnitude faster than bytecode
analysis, SSA and type inference (nine tenths of what `numba.njit` spends on a kernel). What this module does
not know it refuses (`Unsupported`); Numba's own front end then compiles the same text. Imports Numba.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.core.fastmathpass import rewrite_module
from numba.core.types.misc import literal, unliteral
from numba.extending import intrinsic

from jstitch.codegen.cpu.assignments import assignments
from jstitch.codegen.cpu.expression import Value
from jstitch.codegen.cpu.hint_loop import hint_loop, hint_short_loop, hint_vector, trips_of
from jstitch.codegen.cpu.operand import Operand, Scope, Slot
from jstitch.codegen.cpu.operators import (
    CONTEXT,
    INT,
    TYPING,
    combine,
    constant_of,
    fill_tables,
    resolve,
    wrapped,
)
from jstitch.codegen.cpu.overlap_ends import NEUTRAL, vector_of
from jstitch.codegen.cpu.processor import host_has
from jstitch.codegen.cpu.short_rows import GATHERED, looked_up, rows_are_short, tiles_of, written_out
from jstitch.runtime.numba_compiler import flags

_WORD, _HALF = ir.IntType(64), ir.IntType(32)
_Intrinsic = type(intrinsic(lambda typing: None))


class Unsupported(Exception):
    """The text uses something that only Numba's own front end compiles."""


class _NoLibrary:
    """What Numba's implementations see as the library that is being compiled: it can link nothing."""

    def add_linking_library(self, library: Any) -> None:
        raise Unsupported(f"code in {library}")


def lower_text(
    defined: Mapping[str, ast.FunctionDef],
    names: Mapping[str, Any],
    functions: Mapping[str, str],
    arena_bytes: int = 0,
) -> Any:
    """An LLVM module with functions of a text, of int64 arguments, exported; functions: symbol -> name.

    defined: what the text defines. names: its globals. arena_bytes: that `arena` points to. Raises
    Unsupported.
    """
    module = CONTEXT.codegen()._create_empty_module("jstitch")
    try:
        with global_compiler_lock, CONTEXT.push_code_library(_NoLibrary()):
            for symbol, name in functions.items():
                _Function(module, symbol, defined[name], names, arena_bytes).lower()
    except NumbaError as error:
        raise Unsupported(str(error)) from error
    rewrite_module(module, flags().fastmath)
    return module


class _Function:
    def __init__(
        self, module: Any, symbol: str, node: ast.FunctionDef, names: Mapping[str, Any], arena_bytes: int
    ) -> None:
        self.node, self.globals, self.arena_bytes = node, names, arena_bytes
        self.short = rows_are_short(node, arena_bytes, host_has("avx2"))
        self.tile_names = tiles_of(node) if self.short else frozenset[str]()
        self.written_out = frozenset[ast.For]() if self.short else written_out(node)
        self.tiles: dict[int, Any] = {}
        arguments = [a.arg for a in node.args.args]
        kind = ir.FunctionType(ir.VoidType(), [_WORD] * len(arguments))
        self.function = ir.Function(module, kind, symbol)
        self.entry = self.function.append_basic_block("entry")
        self.builder = ir.IRBuilder(self.function.append_basic_block("body"))
        given = zip(arguments, self.function.args, strict=True)
        self.scopes = [Scope(Counter(), {name: Operand(INT, raw) for name, raw in given})]
        self.zero: Any = None
        # of the vector that a loop ends with: the loop's variable, and its first new value
        self.again: tuple[str, Any] | None = None

    def lower(self) -> None:
        first = self.builder.block
        self.block(self.node.body)
        self.builder.ret_void()
        ir.IRBuilder(self.entry).branch(first)

    # -- statements -----------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], **given: Operand) -> None:
        self.scopes.append(Scope(assignments(body), dict(given)))
        for statement in body:
            self.statement(statement)
        self.scopes.pop()

    def statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name(adds), [ast.Name(total), value], [])) if (
                self.again is not None and name == total and self.is_slot(name)
            ):
                self.assign(name, self.added(adds, name, value))
            case ast.Assign([ast.Name(name)], value):
                self.assign(name, self.value(value))
            case ast.Expr(ast.Call() as call):
                self.value(call)
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                pass
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [lo, hi], []), body, []):
                self.loop(name, self.index(lo), self.index(hi), body, statement in self.written_out)
            case ast.If(test, body, orelse):
                self.branch(self.value(test), body, orelse)
            case _:
                raise Unsupported(ast.unparse(statement))

    def assign(self, name: str, value: Operand) -> None:
        found = self.find(name)
        scope = self.scopes[-1]
        if found is None and scope.counts[name] == 1:
            scope.names[name] = value
            return
        if found is None:
            found = scope.names[name] = self.slot(unliteral(value.type), name)
        if not isinstance(found, Slot):
            raise Unsupported(f"a second value for {name}")
        if unliteral(value.type) != found.type:
            raise Unsupported(f"{name} changes from {found.type} to {value.type}")
        self.builder.store(value.raw, found.pointer)

    def slot(self, numba_type: Any, name: str) -> Slot:
        with self.builder.goto_block(self.entry):
            return Slot(numba_type, self.builder.alloca(CONTEXT.get_value_type(numba_type), name=name))

    def loop(self, name: str, lo: Any, hi: Any, body: Sequence[ast.stmt], written_out: bool) -> None:
        if self.find(name) is not None or assignments(body)[name]:
            raise Unsupported(f"a loop over {name}, which is something else too")
        trips = trips_of(lo, hi)
        if trips == 1:
            # As a loop, it would keep LLVM from making vectors of a loop whose integer sum goes on in it.
            self.block(body, **{name: Operand(INT, lo)})
        elif written_out or (self.short and trips is not None and trips <= GATHERED):
            self.turns(name, lo, hi, body, hint_short_loop)
        elif self.short:
            self.turns(name, lo, hi, body, lambda *_: None)
        elif trips is not None and (vector := vector_of(trips, name, body, self.is_slot)):
            whole = lo.constant + trips // vector * vector
            self.turns(name, lo, _WORD(whole), body, hint_loop)
            self.again = name, _WORD(whole)
            self.turns(name, _WORD(hi.constant - vector), hi, body, hint_vector)
            self.again = None
        else:
            self.turns(name, lo, hi, body, hint_loop)

    def turns(self, name: str, lo: Any, hi: Any, body: Sequence[ast.stmt], hint: Callable[..., None]) -> None:
        """hint: tells LLVM of the loop: hint_loop, or another with these parameters."""
        before = self.builder.block
        head, inside, after = (self.function.append_basic_block(n) for n in ("head", "loop", "after"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        number = self.builder.phi(_WORD, name)
        number.add_incoming(lo, before)
        self.builder.cbranch(self.builder.icmp_signed("<", number, hi), inside, after)
        self.builder.position_at_end(inside)
        self.block(body, **{name: Operand(INT, number)})
        number.add_incoming(self.builder.add(number, _WORD(1), flags=["nsw"]), self.builder.block)
        hint(self.builder.branch(head), inside, number, trips_of(lo, hi))
        self.builder.position_at_end(after)

    def added(self, function: str, total: str, value: ast.expr) -> Operand:
        """A total and what a turn adds to it, unless a vector before has."""
        assert self.again is not None
        number, first = self.again
        more, nothing = self.value(value), NEUTRAL[function]
        if nothing is not None:
            is_new = self.builder.icmp_signed(">=", self.read(number).raw, first)
            raw = self.builder.select(is_new, more.raw, constant_of(unliteral(more.type), nothing))
            more = Operand(more.type, raw)
        return self.applied(self.globals.get(function), [self.read(total), more])

    def branch(self, test: Operand, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        (condition,) = self.cast([test], [types.boolean])
        with self.builder.if_else(condition) as (then, otherwise):
            with then:
                self.block(body)
            with otherwise:
                self.block(orelse)

    # -- expressions ----------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Operand:
        number = self.number(node)
        if number is not None:
            return self.constant(number)
        match node:
            case ast.Name("arena") if self.short:
                return self.tile(0)
            case ast.BinOp(ast.Name("arena"), ast.Add(), ast.Constant(int() as offset)) if self.short:
                return self.tile(offset)
            case ast.Name(name):
                return self.read(name)
            case ast.BinOp(left, kind, right) | ast.Compare(left, [kind], [right]):
                return self.operator(kind, self.value(left), self.value(right))
            case ast.UnaryOp(kind, operand):
                return self.operator(kind, self.value(operand))
            case ast.Call(
                ast.Name("convert_s32" | "convert_u32" as name),
                [ast.Call(ast.Name("int64"), [index], [])],
                [],
            ) if self.is_index(index):
                short = types.int32 if name == "convert_s32" else types.uint32
                return Operand(short, self.builder.add(self.narrow(index), self.hidden_zero()))
            case ast.Call(ast.Name(name), [ast.Name(tile), ast.Call() as place, scope], []) if (
                tile in self.tile_names and (count := looked_up(place))
            ):
                loads = [[ast.Name(tile), ast.Constant(n), scope] for n in range(count)]
                return self.one_of(place, [self.call(self.globals.get(name), load) for load in loads])
            case ast.Call(ast.Name(name), arguments, []):
                return self.call(self.globals.get(name), arguments)
        raise Unsupported(ast.unparse(node))

    def one_of(self, place: ast.expr, operands: Sequence[Operand]) -> Operand:
        """The operand with the place's number, which is one of theirs."""
        number, (found, *others) = self.index(place), operands
        for n, other in enumerate(others, 1):
            is_it = self.builder.icmp_signed("==", number, _WORD(n))
            found = Operand(found.type, self.builder.select(is_it, other.raw, found.raw))
        return found

    def tile(self, offset: int) -> Operand:
        """The address of a tile of the arena, which is a variable of the function."""
        if offset not in self.tiles:
            with self.builder.goto_block(self.entry):
                size = ir.ArrayType(ir.IntType(8), self.arena_bytes - offset)
                self.tiles[offset] = self.builder.alloca(size, name="tile")
                self.tiles[offset].align = 64
        return Operand(INT, self.builder.ptrtoint(self.tiles[offset], _WORD))

    def is_index(self, node: ast.expr) -> bool:
        """Whether an expression is made of indices alone."""
        found = (self.find(n.id) for n in ast.walk(node) if isinstance(n, ast.Name))
        return all(x is None or unliteral(x.type) == INT for x in found)

    def narrow(self, node: ast.expr) -> Any:
        """The low 32 bits of an index, computed in 32 bits: a loop's vectors then have twice the lanes."""
        match node:
            case ast.BinOp(left, ast.Add(), right):
                return self.builder.add(self.narrow(left), self.narrow(right))
            case ast.BinOp(left, ast.Mult(), right):
                return self.builder.mul(self.narrow(left), self.narrow(right))
        return self.builder.trunc(self.index(node), _HALF)

    def hidden_zero(self) -> Any:
        """A zero that LLVM cannot see: the sign of the last argument, a number that is never negative.

        LLVM compares a shortened loop variable in 64 bits, four lanes and a shuffle at a time, unless
        something is added to it.
        """
        if self.zero is None:
            with self.builder.goto_block(self.entry):
                sign = self.builder.lshr(self.function.args[-1], _WORD(63))
                self.zero = self.builder.trunc(sign, _HALF)
        return self.zero

    def index(self, node: ast.expr) -> Any:
        found = self.value(node)
        if unliteral(found.type) != INT:
            raise Unsupported(f"a loop variable of type {found.type}")
        return found.raw

    def number(self, node: ast.expr) -> bool | int | float | None:
        """The value of a literal, or of inf and nan, perhaps negated; else None."""
        match node:
            case ast.Constant(bool() | int() | float() as number):
                return number
            case ast.UnaryOp(ast.USub(), operand):
                inner = self.number(operand)
                return None if inner is None or isinstance(inner, bool) else -inner
            case ast.Name("inf" | "nan" as name) if self.find(name) is None:
                return float(name)
        return None

    def constant(self, number: bool | int | float) -> Operand:
        if isinstance(number, float):
            return Operand(types.float64, constant_of(types.float64, number))
        if not -(1 << 63) <= number < 1 << 64:
            raise Unsupported(f"the literal {number}")
        kind = literal(number)
        return Operand(kind, constant_of(unliteral(kind), number))

    def read(self, name: str) -> Operand:
        match self.find(name):
            case Slot(kind, pointer):
                return Operand(kind, self.builder.load(pointer))
            case Operand() as operand:
                return operand
        raise Unsupported(f"the name {name}")

    def is_slot(self, name: str) -> bool:
        """Whether a name's value changes."""
        return isinstance(self.find(name), Slot)

    def find(self, name: str) -> Operand | Slot | None:
        return next((s.names[name] for s in reversed(self.scopes) if name in s.names), None)

    def operator(self, kind: ast.AST, *operands: Operand) -> Operand:
        kinds = tuple(o.type for o in operands)
        found = combine(self.builder, kind, kinds, [o.raw for o in operands])
        if found is not None:
            return Operand(*found)
        resolved = resolve(type(kind).__name__, kinds)
        if resolved is None:
            raise Unsupported(f"{type(kind).__name__} of {', '.join(map(str, kinds))}")
        signature, implementation = resolved
        raws = self.cast(operands, signature.args)
        return Operand(signature.return_type, implementation(self.builder, raws))

    def call(self, function: Any, arguments: Sequence[ast.expr]) -> Operand:
        if isinstance(function, types.Number | types.Boolean):
            return self.convert(function, arguments)
        if not isinstance(function, _Intrinsic):
            raise Unsupported(f"a call of {function!r}")
        return self.applied(function, [self.value(a) for a in arguments])

    def applied(self, function: Any, operands: Sequence[Operand]) -> Operand:
        signature, codegen = _type_intrinsic(function, [o.type for o in operands])
        raws = self.cast(operands, signature.args)
        return Operand(signature.return_type, codegen(CONTEXT, self.builder, signature, raws))

    def convert(self, kind: Any, arguments: Sequence[ast.expr]) -> Operand:
        """A typed literal, float32(0.5), or a wider or narrower integer, int64(v0)."""
        match kind, [self.number(a) for a in arguments]:
            case types.Boolean(), [int() as number]:
                return Operand(kind, constant_of(kind, bool(number)))
            case types.Integer(), [int() as number]:
                return Operand(kind, constant_of(kind, wrapped(number, kind)))
            case types.Float(), [float() | int() as number]:
                return Operand(kind, constant_of(kind, float(number)))
            case types.Integer(), [None]:
                operand = self.value(arguments[0])
                if isinstance(operand.type, types.Integer | types.Boolean):
                    return Operand(kind, *self.cast([operand], [kind]))
        raise Unsupported(f"a conversion to {kind}")

    def cast(self, operands: Sequence[Operand], kinds: Sequence[Any]) -> list[Any]:
        return [self.cast_one(o, kind) for o, kind in zip(operands, kinds, strict=True)]

    def cast_one(self, o: Operand, kind: Any) -> Any:
        found = unliteral(o.type)
        if found == unliteral(kind):
            return o.raw
        if kind == INT and isinstance(found, types.Integer | types.Boolean):
            return Value(self.builder, o.raw).resize(_WORD.width, getattr(found, "signed", False)).raw
        fill_tables()
        return CONTEXT.cast(self.builder, o.raw, o.type, kind)


def _type_intrinsic(function: Any, operands: Sequence[Any]) -> tuple[Any, Any]:
    """(signature, codegen) by the intrinsic's own typing: literal types first, as Numba tries them."""
    try:
        try:
            signature, codegen = function._defn(TYPING, *operands)
        except NumbaError:
            signature, codegen = function._defn(TYPING, *map(unliteral, operands))
    except TypeError as error:  # the number of arguments
        raise Unsupported(str(error)) from error
    return signature, codegen
