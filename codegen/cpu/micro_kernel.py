"""Products of tiles: c[i, j] = sum over k of a[i, k] * b[k, j], a few rows and two vectors at a time.

    multiply_f32_bf16(c, c_at, a, a_at, b, b_at, panel, c_row, a_row, a_column, b_row, b_column, m, n, k)

a is of f32 here and b of bf16, c and its sums always of f32. Each `*_at` is the element at which a matrix
begins, the others are strides; columns of c lie side by side. Of b, DEPTH rows of one panel's columns are
packed, as f32, so that the innermost loop reads line after line; of c, `rows` x panel are in registers while
it runs. Longer sums go on from what is in c. LLVM makes no such loops from scalar code: vectors are spelled
out here, as wide as the machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from jstitch.codegen.cpu.expression import fuses, host_has
from jstitch.codegen.cpu.panel import DEPTH

VECTORS = 2  # of a panel's row
HALF_BITS = 16
_FLOAT, _WORD, _BIT, _VOID = ir.FloatType(), ir.IntType(64), ir.IntType(1), ir.VoidType()
_POINTER = _FLOAT.as_pointer()
_HALF, _INT = ir.IntType(16), ir.IntType(32)
ELEMENTS: Mapping[str, ir.Type] = {"f32": _FLOAT, "bf16": _HALF}
"""Types of operands -> what their elements are in memory."""


@dataclass(frozen=True)
class _Machine:
    """lanes: floats of a vector. rows: of c that are in registers at once, with VECTORS vectors each."""

    lanes: int
    rows: int

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.lanes * VECTORS

    @property
    def heights(self) -> Sequence[int]:
        """Rows that are in registers at once, the most first."""
        return (self.rows, *(rows for rows in (8, 4, 2, 1) if rows < self.rows))

    @cached_property
    def vector(self) -> ir.VectorType:
        return ir.VectorType(_FLOAT, self.lanes)

    @cached_property
    def integers(self) -> ir.VectorType:
        return ir.VectorType(_INT, self.lanes)


def machine() -> _Machine:
    """What the machine that Numba compiles for has registers for."""
    if host_has("avx512f"):
        return _Machine(16, 12)
    return _Machine(8 if host_has("avx2") else 4, 6)


@dataclass(frozen=True)
class _Writer:
    """Writes one function of the module."""

    b: Any
    m: _Machine

    def at(self, base: Any, *offsets: Any, of: ir.Type = _FLOAT) -> Any:
        """The element so many behind `base`."""
        for offset in offsets:
            base = self.b.gep(base, [offset], source_etype=of)
        return base

    def read(self, place: Any, of: ir.Type = _FLOAT) -> Any:
        """A vector of floats, of elements that are those or the upper halves of those."""
        if of is _FLOAT:
            return self.b.load(place, align=4, typ=self.m.vector)
        narrow = self.b.load(place, align=2, typ=ir.VectorType(of, self.m.lanes))
        return self.widened(self.b.zext(narrow, self.m.integers))

    def one(self, place: Any, of: ir.Type = _FLOAT) -> Any:
        """A float."""
        if of is _FLOAT:
            return self.b.load(place, align=4, typ=_FLOAT)
        word = self.b.zext(self.b.load(place, align=2, typ=of), _INT)
        return self.b.bitcast(self.b.shl(word, _INT(HALF_BITS)), _FLOAT)

    def widened(self, words: Any) -> Any:
        """Floats whose upper halves are the lower ones of words."""
        shift = ir.Constant(self.m.integers, [HALF_BITS] * self.m.lanes)
        return self.b.bitcast(self.b.shl(words, shift), self.m.vector)

    def write(self, value: Any, place: Any) -> None:
        self.b.store(value, self.b.bitcast(place, self.m.vector.as_pointer()), align=4)

    def splat(self, place: Any, of: ir.Type = _FLOAT) -> Any:
        """A vector of one element, as floats."""
        if of is _FLOAT:
            return self.spread(self.one(place), self.m.lanes)
        halves = self.spread(self.b.load(place, align=2, typ=of), 2 * self.m.lanes)
        return self.widened(self.b.bitcast(halves, self.m.integers))

    def spread(self, element: Any, lanes: int) -> Any:
        undefined = ir.Constant(ir.VectorType(element.type, lanes), ir.Undefined)
        first = self.b.insert_element(undefined, element, _INT(0))
        return self.b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT, lanes), [0] * lanes))

    def least(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def multiply_add(self, x: Any, y: Any, z: Any) -> Any:
        if not fuses():
            return self.b.fadd(self.b.fmul(x, y), z)
        kind, name = ir.FunctionType(self.m.vector, [self.m.vector] * 3), f"llvm.fma.v{self.m.lanes}f32"
        fma = self.b.module.globals.get(name) or ir.Function(self.b.module, kind, name)
        return self.b.call(fma, [x, y, z])

    def loop(
        self,
        first: Any,
        end: Any,
        step: int,
        body: Callable[[Any, Sequence[Any]], Sequence[Any]],
        carried: Sequence[Any] = (),
    ) -> Sequence[Any]:
        """body(number, carried) -> carried, while number + step <= end; the number behind it, and carried."""
        b, before = self.b, self.b.block
        head, inside, after = (b.append_basic_block(name) for name in ("head", "turn", "after"))
        b.branch(head)
        b.position_at_end(head)
        number, *values = (b.phi(v.type) for v in (first, *carried))
        for phi, v in zip((number, *values), (first, *carried), strict=True):
            phi.add_incoming(v, before)
        behind = b.add(number, _WORD(step))
        b.cbranch(b.icmp_signed("<=", behind, end), inside, after)
        b.position_at_end(inside)
        made = body(number, values)
        for phi, v in zip((number, *values), (behind, *made), strict=True):
            phi.add_incoming(v, b.block)
        self._keep(b.branch(head))
        b.position_at_end(after)
        return number, *values

    def _keep(self, latch: Any) -> None:
        """The loop as it is written: it has as many independent sums as registers, and none to spare."""
        module = self.b.module
        loop = module.add_metadata([_WORD(len(module.metadata))])
        loop.operands = (loop, module.add_metadata(["llvm.loop.unroll.disable"]))
        latch.set_metadata("llvm.loop", loop)

    def transpose(self, rows: Sequence[Any]) -> list[Any]:
        """Vectors as columns of those given, by exchanging ever smaller blocks."""
        found, half = list(rows), self.m.lanes // 2
        index = ir.VectorType(ir.IntType(32), self.m.lanes)
        while half:
            keep = [j if not j & half else self.m.lanes + j - half for j in range(self.m.lanes)]
            take = [j + half if not j & half else self.m.lanes + j for j in range(self.m.lanes)]
            for i in (i for i in range(self.m.lanes) if not i & half):
                x, y = found[i], found[i + half]
                found[i] = self.b.shuffle_vector(x, y, ir.Constant(index, keep))
                found[i + half] = self.b.shuffle_vector(x, y, ir.Constant(index, take))
            half //= 2
        return found


# -- the module's functions ---------------------------------------------------------------------------------


def _function(module: Any, name: str, kinds: Sequence[Any], write: Callable[..., None]) -> Any:
    """A function of the module's own, written once; write(writer, *arguments)."""
    found = module.globals.get(name)
    if found is None:
        found = ir.Function(module, ir.FunctionType(_VOID, kinds), name)
        found.linkage = "internal"
        found.attributes.add("noinline")
        builder = ir.IRBuilder(found.append_basic_block("entry"))
        write(_Writer(builder, machine()), *found.args)
        builder.ret_void()
    return found


def _rows(module: Any, of: str, rows: int, vectors: int) -> Any:
    """Rows of c, of a panel's first vectors: rows(c, c_row, a, a_row, a_column, panel, depth, resume)."""
    kinds = (_POINTER, _WORD, ELEMENTS[of].as_pointer(), _WORD, _WORD, _POINTER, _WORD, _BIT)

    def write(
        w: _Writer, c: Any, c_row: Any, a: Any, a_row: Any, a_column: Any, panel: Any, depth: Any, resume: Any
    ) -> None:
        b, columns = w.b, [_WORD(v * w.m.lanes) for v in range(vectors)]
        element = ELEMENTS[of]
        left = [w.at(a, b.mul(a_row, _WORD(i)), of=element) for i in range(rows)]
        into = [[w.at(c, b.mul(c_row, _WORD(i)), v) for v in columns] for i in range(rows)]

        def turn(k: Any, sums: Sequence[Any]) -> Sequence[Any]:
            right = [w.read(w.at(panel, b.mul(k, _WORD(w.m.panel)), v)) for v in columns]
            ones = [w.splat(w.at(place, b.mul(k, a_column), of=element), element) for place in left]
            return [
                w.multiply_add(ones[n // vectors], right[n % vectors], total) for n, total in enumerate(sums)
            ]

        zeros = [ir.Constant(w.m.vector, None)] * (rows * vectors)
        _, *sums = w.loop(_WORD(0), depth, 1, turn, zeros)
        places = [place for row in into for place in row]
        with b.if_else(resume) as (then, otherwise):
            with then:
                for total, place in zip(sums, places, strict=True):
                    w.write(b.fadd(w.read(place), total), place)
            with otherwise:
                for total, place in zip(sums, places, strict=True):
                    w.write(total, place)

    return _function(module, f"jstitch_rows{rows}x{vectors}_{of}", kinds, write)


def _pack(module: Any, of: str) -> Any:
    """pack(b, row, column, panel, depth, width): so many columns of b, at most a vector's, and zeros."""
    element = ELEMENTS[of]
    kinds = (element.as_pointer(), _WORD, _WORD, _POINTER, _WORD, _WORD)

    def write(w: _Writer, b_: Any, row: Any, column: Any, panel: Any, depth: Any, width: Any) -> None:
        b, m = w.b, w.m
        done = b.alloca(_WORD)
        b.store(_WORD(0), done)
        whole = b.icmp_signed("==", width, _WORD(m.lanes))

        def line(k: Any) -> Any:
            return w.at(panel, b.mul(k, _WORD(m.panel)))

        with b.if_then(b.and_(whole, b.icmp_signed("==", column, _WORD(1)))):

            def copy(k: Any, _: Sequence[Any]) -> Sequence[Any]:
                w.write(w.read(w.at(b_, b.mul(k, row), of=element), element), line(k))
                return ()

            b.store(w.loop(_WORD(0), depth, 1, copy)[0], done)
        with b.if_then(b.and_(whole, b.icmp_signed("==", row, _WORD(1)))):

            def turn(k: Any, _: Sequence[Any]) -> Sequence[Any]:
                places = [w.at(b_, b.mul(_WORD(i), column), k, of=element) for i in range(m.lanes)]
                for i, x in enumerate(w.transpose([w.read(place, element) for place in places])):
                    w.write(x, line(b.add(k, _WORD(i))))
                return ()

            b.store(w.loop(b.load(done, typ=_WORD), depth, m.lanes, turn)[0], done)

        def rest(k: Any, _: Sequence[Any]) -> Sequence[Any]:
            def one(j: Any, _: Sequence[Any]) -> Sequence[Any]:
                value = w.one(w.at(b_, b.mul(k, row), b.mul(j, column), of=element), element)
                b.store(value, w.at(line(k), j), align=4)
                return ()

            w.write(ir.Constant(m.vector, None), line(k))
            w.loop(_WORD(0), width, 1, one)
            return ()

        w.loop(b.load(done, typ=_WORD), depth, 1, rest)

    return _function(module, f"jstitch_pack_{of}", kinds, write)


def _multiply(module: Any, left: str, right: str) -> Any:
    """The whole product: see the module."""
    of_a, of_b = ELEMENTS[left], ELEMENTS[right]
    kinds = (_POINTER, of_a.as_pointer(), of_b.as_pointer(), _POINTER, *[_WORD] * 8)

    def write(
        w: _Writer,
        c: Any,
        a: Any,
        b_: Any,
        panel: Any,
        c_row: Any,
        a_row: Any,
        a_column: Any,
        b_row: Any,
        b_column: Any,
        m: Any,
        n: Any,
        k: Any,
    ) -> None:
        b, wide, lanes = w.b, _WORD(w.m.panel), _WORD(w.m.lanes)
        edge = b.bitcast(b.alloca(ir.ArrayType(_FLOAT, w.m.rows * w.m.panel)), _POINTER)

        def deep(block: Any, _: Sequence[Any]) -> Sequence[Any]:
            first = b.mul(block, _WORD(DEPTH))
            depth = w.least(_WORD(DEPTH), b.sub(k, first))
            resume = b.icmp_signed(">", block, _WORD(0))

            def across(number: Any, _: Sequence[Any]) -> Sequence[Any]:
                j = b.mul(number, wide)
                width = w.least(wide, b.sub(n, j))
                for v in range(VECTORS):
                    left_over = b.sub(width, _WORD(v * w.m.lanes))
                    with b.if_then(b.icmp_signed(">", left_over, _WORD(0))):
                        column = b.add(j, _WORD(v * w.m.lanes))
                        start = w.at(b_, b.mul(first, b_row), b.mul(column, b_column), of=of_b)
                        place = w.at(panel, _WORD(v * w.m.lanes))
                        given = [start, b_row, b_column, place, depth, w.least(lanes, left_over)]
                        b.call(_pack(module, right), given)
                with b.if_else(b.icmp_signed(">", width, lanes)) as (then, otherwise):
                    for vectors, part in ((VECTORS, then), (1, otherwise)):
                        with part:
                            strip(j, width, first, depth, resume, vectors)
                return ()

            panels = b.sdiv(b.add(n, b.sub(wide, _WORD(1))), wide)
            w.loop(_WORD(0), panels, 1, across)
            return ()

        def strip(j: Any, width: Any, first: Any, depth: Any, resume: Any, vectors: int) -> None:
            """All rows of c, of a panel's columns."""
            whole = b.icmp_signed("==", width, _WORD(vectors * w.m.lanes))
            done: Any = _WORD(0)
            for rows in w.m.heights:

                def down(i: Any, _: Sequence[Any], rows: int = rows) -> Sequence[Any]:
                    into = w.at(c, b.mul(i, c_row), j)
                    start = w.at(a, b.mul(i, a_row), b.mul(first, a_column), of=of_a)
                    given = (start, a_row, a_column, panel, depth)
                    made = _rows(module, left, rows, vectors)
                    with b.if_else(whole) as (then, otherwise):
                        with then:
                            b.call(made, [into, c_row, *given, resume])
                        with otherwise:
                            b.call(made, [edge, wide, *given, _BIT(0)])
                            _copy_edge(w, edge, into, c_row, rows, width, resume)
                    return ()

                done = w.loop(done, m, rows, down)[0]

        w.loop(_WORD(0), b.sdiv(b.add(k, _WORD(DEPTH - 1)), _WORD(DEPTH)), 1, deep)

    return _function(module, f"jstitch_multiply_{left}_{right}", kinds, write)


def _copy_edge(w: _Writer, edge: Any, c: Any, c_row: Any, rows: int, width: Any, resume: Any) -> None:
    """The columns that c has of a panel that is wider."""
    b = w.b

    def copied(adds: bool) -> Callable[[Any, Sequence[Any]], Sequence[Any]]:
        def row(i: Any, _: Sequence[Any]) -> Sequence[Any]:
            def one(j: Any, _: Sequence[Any]) -> Sequence[Any]:
                place = w.at(c, b.mul(i, c_row), j)
                value = b.load(w.at(edge, b.mul(i, _WORD(w.m.panel)), j), align=4, typ=_FLOAT)
                b.store(b.fadd(b.load(place, align=4, typ=_FLOAT), value) if adds else value, place, align=4)
                return ()

            w.loop(_WORD(0), width, 1, one)
            return ()

        return row

    with b.if_else(resume) as (then, otherwise):
        with then:
            w.loop(_WORD(0), _WORD(rows), 1, copied(adds=True))
        with otherwise:
            w.loop(_WORD(0), _WORD(rows), 1, copied(adds=False))


def multiply(left: str, right: str) -> Any:
    """c[i, j] = sum over k of a[i, k] * b[k, j], as an intrinsic; see the module."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        panel, numbers = arguments[6], arguments[7:]
        w, places = _Writer(builder, machine()), []
        for element, base, at in zip(
            (_FLOAT, ELEMENTS[left], ELEMENTS[right]), arguments[:6:2], arguments[1:6:2], strict=True
        ):
            places.append(w.at(builder.inttoptr(base, element.as_pointer()), at, of=element))
        made = _multiply(builder.module, left, right)
        builder.call(made, [*places, builder.inttoptr(panel, _POINTER), *numbers])
        return context.get_dummy_value()

    @intrinsic
    def call(  # type: ignore[no-untyped-def]
        typingctx, c, c_at, a, a_at, b, b_at, panel, c_row, a_row, a_column, b_row, b_column, m, n, k
    ):
        return types.none(*[types.int64] * 15), codegen

    return call
