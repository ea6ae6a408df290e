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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.core.fastmathpass import rewrite_module
from numba.core.types.misc import literal, unliteral
from numba.extending import intrinsic

from jstitch.codegen.cpu.expression import Value, host_has
from jstitch.codegen.cpu.operators import CONTEXT, INT, TYPING, combine, constant_of, fill_tables, resolve
from jstitch.runtime.numba_compiler import flags

_WORD, _HALF = ir.IntType(64), ir.IntType(32)
MIDDLE_LOOP, LONG_LOOP = 26, 40  # instructions
VECTOR, FEW_VECTORS = 8, 8
MASKED, LEAST_MASKED, MOST_MASKED = 16, 9, 128  # elements of a vector; turns of loops that end in masked ones
SMALLEST = 4  # elements of a vector, of the widest type
MOST_UNROLLED = 96  # turns that LLVM may write out one by one
_Intrinsic = type(intrinsic(lambda typing: None))


class Unsupported(Exception):
    """The text uses something that only Numba's own front end compiles."""


class _NoLibrary:
    """What Numba's implementations see as the library that is being compiled: it can link nothing."""

    def add_linking_library(self, library: Any) -> None:
        raise Unsupported(f"code in {library}")


@dataclass(frozen=True)
class Operand:
    """A scalar: its Numba type (a literal's keeps the value), its LLVM value."""

    type: Any
    raw: Any


@dataclass(frozen=True)
class Slot:
    """A variable that is assigned more than once: memory that LLVM turns into registers."""

    type: Any
    pointer: Any


def lower_text(text: str, names: Mapping[str, Any], functions: Mapping[str, str]) -> Any:
    """An LLVM module with the text's functions, of int64 arguments, exported; functions: symbol -> name.

    names: the text's globals. Raises Unsupported.
    """
    defined = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    module = CONTEXT.codegen()._create_empty_module("jstitch")
    try:
        with global_compiler_lock, CONTEXT.push_code_library(_NoLibrary()):
            for symbol, name in functions.items():
                _Function(module, symbol, defined[name], names).lower()
    except NumbaError as error:
        raise Unsupported(str(error)) from error
    rewrite_module(module, flags().fastmath)
    return module


@dataclass
class _Scope:
    """One block of statements: what it defines, and how often it assigns each name (inner blocks too)."""

    counts: Counter[str]
    names: dict[str, Operand | Slot] = field(default_factory=dict)


class _Function:
    def __init__(self, module: Any, symbol: str, node: ast.FunctionDef, names: Mapping[str, Any]) -> None:
        self.node, self.globals = node, names
        arguments = [a.arg for a in node.args.args]
        kind = ir.FunctionType(ir.VoidType(), [_WORD] * len(arguments))
        self.function = ir.Function(module, kind, symbol)
        self.entry = self.function.append_basic_block("entry")
        self.builder = ir.IRBuilder(self.function.append_basic_block("body"))
        given = zip(arguments, self.function.args, strict=True)
        self.scopes = [_Scope(Counter(), {name: Operand(INT, raw) for name, raw in given})]
        self.zero: Any = None

    def lower(self) -> None:
        first = self.builder.block
        self.block(self.node.body)
        self.builder.ret_void()
        ir.IRBuilder(self.entry).branch(first)

    # -- statements -----------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], **given: Operand) -> None:
        self.scopes.append(_Scope(_assignments(body), dict(given)))
        for statement in body:
            self.statement(statement)
        self.scopes.pop()

    def statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                self.assign(name, self.value(value))
            case ast.Expr(ast.Call() as call):
                self.value(call)
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                pass
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [lo, hi], []), body, []):
                self.loop(name, self.index(lo), self.index(hi), body)
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

    def loop(self, name: str, lo: Any, hi: Any, body: Sequence[ast.stmt]) -> None:
        if self.find(name) is not None or _assignments(body)[name]:
            raise Unsupported(f"a loop over {name}, which is something else too")
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
        self._hint(self.builder.branch(head), inside, number, _trips(lo, hi))
        self.builder.position_at_end(after)

    def _hint(self, latch: Any, body: Any, number: Any, trips: int | None) -> None:
        """What LLVM cannot know about a long loop (of more than a few instructions, or with loops inside).

        Unrolling it does not pay, and can take ten times the rest of the compilation. Two vectors at a time
        do when it is innermost; LLVM does that by itself to short ones only, and more of them than have room
        in registers beside a polynomial's constants. (It would force a loop with division, whose loads are
        gathers, into vectors.) A loop of a few vectors must not be unrolled before it is made of vectors.
        What is left over of one has a masked vector of its own: one by one, 15 of 47 turns take longest.
        """
        innermost, size = latch.parent is body, len(body.instructions)
        few = trips is not None and trips <= MOST_UNROLLED
        gathers = any(i.opname in ("udiv", "urem") for i in body.instructions)
        masked = innermost and trips is not None and _leaves_much(trips) and not _gathers(body, number)
        one_left = trips is not None and trips % SMALLEST == 1
        masked = masked and not (one_left and _narrows(body))
        vectors = trips is not None and few and (trips % VECTOR == 0 or trips > FEW_VECTORS * VECTOR)
        if innermost and size < MIDDLE_LOOP and not vectors and not masked:
            return
        module = self.function.module
        hints = [module.add_metadata(["llvm.loop.unroll.disable"])]
        if masked:
            hints.append(module.add_metadata(["llvm.loop.vectorize.predicate.enable", ir.IntType(1)(1)]))
        if innermost and size >= MIDDLE_LOOP and not gathers:
            count = ir.IntType(32)(1 if size < LONG_LOOP else 2)
            hints.append(module.add_metadata(["llvm.loop.interleave.count", count]))
        loop = module.add_metadata([ir.IntType(64)(len(module.metadata))])
        loop.operands = (loop, *hints)  # LLVM's loop identifiers refer to themselves
        latch.set_metadata("llvm.loop", loop)

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
            case ast.Call(ast.Name(name), arguments, []):
                return self.call(self.globals.get(name), arguments)
        raise Unsupported(ast.unparse(node))

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
        operands = [self.value(a) for a in arguments]
        signature, codegen = _type_intrinsic(function, [o.type for o in operands])
        raws = self.cast(operands, signature.args)
        return Operand(signature.return_type, codegen(CONTEXT, self.builder, signature, raws))

    def convert(self, kind: Any, arguments: Sequence[ast.expr]) -> Operand:
        """A typed literal, float32(0.5), or a wider or narrower integer, int64(v0)."""
        match kind, [self.number(a) for a in arguments]:
            case types.Boolean(), [int() as number]:
                return Operand(kind, constant_of(kind, bool(number)))
            case types.Integer(), [int() as number]:
                return Operand(kind, constant_of(kind, _wrapped(number, kind)))
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


def _wrapped(number: int, kind: Any) -> int:
    """The integer of this type with the number's low bits."""
    width = int(kind.bitwidth)
    low = number & ((1 << width) - 1)
    return low - (1 << width) if kind.signed and low >> (width - 1) else low


def _trips(lo: Any, hi: Any) -> int | None:
    """The number of iterations, where it is known."""
    known = isinstance(lo, ir.Constant) and isinstance(hi, ir.Constant)
    return hi.constant - lo.constant if known else None


def _gathers(body: Any, number: Any) -> bool:
    """Whether the loop's number is divided: its loads are not of neighbours."""
    varying = {number}
    for i in body.instructions:
        if not varying.isdisjoint(i.operands):
            varying.add(i)
            if i.opname in ("udiv", "urem"):
                return True
    return False


def _narrows(body: Any) -> bool:
    """Whether it stores less than it computes, as bfloat16 from float32.

    LLVM's x86 backend writes all of what was computed, and so behind an array's end, where a mask that it
    knows has one element (`reduceMaskedStoreToScalarStore` of a truncating store).
    """
    stored = (i.operands[0].type for i in body.instructions if i.opname == "store")
    narrow = any(isinstance(t, ir.IntType) and t.width < _HALF.width for t in stored)
    return narrow or any(i.opname == "trunc" for i in body.instructions)


def _leaves_much(trips: int) -> bool:
    """Whether a short loop's last turns, fewer than a vector, are worth a vector with a mask.

    Where masks are registers of their own: elsewhere LLVM would store element by element.
    """
    few = trips <= FEW_VECTORS * VECTOR  # which LLVM would write out
    much = trips % VECTOR > 0 if few else trips % MASKED > 1 + trips // (2 * MASKED)
    return LEAST_MASKED <= trips <= MOST_MASKED and much and host_has("avx512f")


def _assignments(body: Sequence[ast.stmt]) -> Counter[str]:
    """How often each name is assigned in the statements, those of inner blocks included."""
    found, todo = Counter[str](), list(body)
    while todo:
        match todo.pop():
            case ast.Assign(targets):
                found.update(t.id for t in targets if isinstance(t, ast.Name))
            case ast.For(_, _, inner):
                todo += inner
            case ast.If(_, inner, orelse):
                todo += [*inner, *orelse]
    return found


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
