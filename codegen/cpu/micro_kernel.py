"""Products of tiles: c[i, j] = sum over k of a[i, k] * b[k, j], a few rows and two vectors at a time.

    multiply_f32_bf16(c, c_at, a, a_at, b, b_at, panel, c_row, a_row, a_column, b_row, b_column, m, n, k)

a is of f32 here and b of bf16, c and its sums always of f32. Each `*_at` is the element at which a matrix
begins, the others are strides; columns of c lie side by side. Of b, DEPTH rows of one panel's columns are
packed, as f32, so that the innermost loop reads line after line; few rows of c read neighbouring columns of b
where they are. While a panel is multiplied, the next one is asked for. Of c, `rows` x panel are in registers
while it runs. Longer sums go on from what is in c. LLVM makes no such loops from scalar code: vectors are
spelled out here, as wide as the machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from jstitch.codegen.cpu.panel import DEPTH, UNPACKED_ROWS
from jstitch.codegen.cpu.product_parts import ProductParts, parts_of
from jstitch.codegen.cpu.vector_writer import (
    BIT,
    ELEMENTS,
    FLOAT,
    LINE,
    POINTER,
    SIZES,
    VECTORS,
    VOID,
    WORD,
    VectorWriter,
    machine,
)


def _function(module: Any, name: str, kinds: Sequence[Any], write: Callable[..., None]) -> Any:
    """A function of the module's own, written once; write(writer, *arguments)."""
    found = module.globals.get(name)
    if found is None:
        found = ir.Function(module, ir.FunctionType(VOID, kinds), name)
        found.linkage = "internal"
        found.attributes.add("noinline")
        builder = ir.IRBuilder(found.append_basic_block("entry"))
        write(VectorWriter(builder, machine()), *found.args)
        builder.ret_void()
    return found


def _rows(module: Any, of: str, rows: int, vectors: int) -> Any:
    """Rows of c, of a panel's first vectors: rows(c, c_row, a, a_row, a_column, panel, line, depth, resume).

    line: floats from a row of the panel to the next.
    """
    kinds = (POINTER, WORD, ELEMENTS[of].as_pointer(), WORD, WORD, POINTER, WORD, WORD, BIT)

    def write(
        w: VectorWriter,
        c: Any,
        c_row: Any,
        a: Any,
        a_row: Any,
        a_column: Any,
        panel: Any,
        line: Any,
        depth: Any,
        resume: Any,
    ) -> None:
        b, columns = w.b, [WORD(v * w.m.lanes) for v in range(vectors)]
        element = ELEMENTS[of]
        left = [w.at(a, b.mul(a_row, WORD(i)), of=element) for i in range(rows)]
        into = [[w.at(c, b.mul(c_row, WORD(i)), v) for v in columns] for i in range(rows)]

        def turn(k: Any, sums: Sequence[Any]) -> Sequence[Any]:
            right = [w.read(w.at(panel, b.mul(k, line), v)) for v in columns]
            ones = [w.splat(w.at(place, b.mul(k, a_column), of=element), element) for place in left]
            return [
                w.multiply_add(ones[n // vectors], right[n % vectors], total) for n, total in enumerate(sums)
            ]

        zeros = [ir.Constant(w.m.vector, None)] * (rows * vectors)
        _, *sums = w.loop(WORD(0), depth, 1, turn, zeros)
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
    kinds = (element.as_pointer(), WORD, WORD, POINTER, WORD, WORD)

    def write(w: VectorWriter, b_: Any, row: Any, column: Any, panel: Any, depth: Any, width: Any) -> None:
        b, m = w.b, w.m
        done = b.alloca(WORD)
        b.store(WORD(0), done)
        whole = b.icmp_signed("==", width, WORD(m.lanes))

        def line(k: Any) -> Any:
            return w.at(panel, b.mul(k, WORD(m.panel)))

        with b.if_then(b.and_(whole, b.icmp_signed("==", column, WORD(1)))):

            def copy(k: Any, _: Sequence[Any]) -> Sequence[Any]:
                w.write(w.read(w.at(b_, b.mul(k, row), of=element), element), line(k))
                return ()

            b.store(w.loop(WORD(0), depth, 1, copy)[0], done)
        with b.if_then(b.and_(whole, b.icmp_signed("==", row, WORD(1)))):

            def turn(k: Any, _: Sequence[Any]) -> Sequence[Any]:
                places = [w.at(b_, b.mul(WORD(i), column), k, of=element) for i in range(m.lanes)]
                for i, x in enumerate(w.transpose([w.read(place, element) for place in places])):
                    w.write(x, line(b.add(k, WORD(i))))
                return ()

            b.store(w.loop(b.load(done, typ=WORD), depth, m.lanes, turn)[0], done)

        def rest(k: Any, _: Sequence[Any]) -> Sequence[Any]:
            def one(j: Any, _: Sequence[Any]) -> Sequence[Any]:
                value = w.one(w.at(b_, b.mul(k, row), b.mul(j, column), of=element), element)
                b.store(value, w.at(line(k), j), align=4)
                return ()

            w.write(ir.Constant(m.vector, None), line(k))
            w.loop(WORD(0), width, 1, one)
            return ()

        w.loop(b.load(done, typ=WORD), depth, 1, rest)

    return _function(module, f"jstitch_pack_{of}", kinds, write)


def _ask(module: Any, of: str) -> Any:
    """ask(b, row, column, first, end, depth): for some of a panel's `depth` rows.

    Where rows, not columns, are lines of memory, for as large a share of the columns.
    """
    element = ELEMENTS[of]
    kinds = (element.as_pointer(), *[WORD] * 5)

    def write(w: VectorWriter, b_: Any, row: Any, column: Any, first: Any, end: Any, depth: Any) -> None:
        b, line = w.b, LINE // SIZES[of]

        def across(k: Any, _: Sequence[Any]) -> Sequence[Any]:
            for j in range(0, w.m.panel, line):
                w.ask(w.at(b_, b.mul(k, row), WORD(j), of=element))
            return ()

        def down(j: Any, _: Sequence[Any]) -> Sequence[Any]:
            def one(k: Any, _: Sequence[Any]) -> Sequence[Any]:
                w.ask(w.at(b_, b.mul(j, column), k, of=element))
                return ()

            w.loop(WORD(0), depth, line, one)
            return ()

        with b.if_else(b.icmp_signed("==", column, WORD(1))) as (then, otherwise):
            with then:
                w.loop(first, end, 1, across)
            with otherwise, b.if_then(b.icmp_signed("==", row, WORD(1))):
                columns = [b.sdiv(b.mul(k, WORD(w.m.panel)), w.most(depth, WORD(1))) for k in (first, end)]
                w.loop(columns[0], columns[1], 1, down)

    return _function(module, f"jstitch_ask_{of}", kinds, write)


def _multiply(module: Any, left: str, right: str, parts: ProductParts) -> Any:
    """The whole product: see the module. parts: that there are for its sizes."""
    of_a, of_b = ELEMENTS[left], ELEMENTS[right]
    kinds = (POINTER, of_a.as_pointer(), of_b.as_pointer(), POINTER, *[WORD] * 8)

    def write(
        w: VectorWriter,
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
        b, wide, lanes = w.b, WORD(w.m.panel), WORD(w.m.lanes)
        packed = panel, wide
        is_near = BIT(0)
        if of_b is FLOAT:
            few = b.icmp_signed("<=", m, WORD(UNPACKED_ROWS))
            is_near = b.and_(few, b.icmp_signed("==", b_column, WORD(1)))
        edge = b.bitcast(b.alloca(ir.ArrayType(FLOAT, w.m.rows * w.m.panel)), POINTER)

        def deep(block: Any, _: Sequence[Any]) -> Sequence[Any]:
            first = b.mul(block, WORD(DEPTH))
            depth = w.least(WORD(DEPTH), b.sub(k, first))
            resume = b.icmp_signed(">", block, WORD(0))

            def across(number: Any, _: Sequence[Any]) -> Sequence[Any]:
                j = b.mul(number, wide)
                width = w.least(wide, b.sub(n, j))
                is_whole = b.icmp_signed("==", width, wide)
                as_it_is = b.and_(is_near, is_whole)
                with b.if_then(b.not_(as_it_is)):
                    for v in range(VECTORS):
                        left_over = b.sub(width, WORD(v * w.m.lanes))
                        with b.if_then(b.icmp_signed(">", left_over, WORD(0))):
                            column = b.add(j, WORD(v * w.m.lanes))
                            start = w.at(b_, b.mul(first, b_row), b.mul(column, b_column), of=of_b)
                            place = w.at(panel, WORD(v * w.m.lanes))
                            given = [start, b_row, b_column, place, depth, w.least(lanes, left_over)]
                            b.call(_pack(module, right), given)
                source = packed
                if of_b is FLOAT:
                    there = w.at(b_, b.mul(first, b_row), j)
                    source = b.select(as_it_is, there, panel), b.select(as_it_is, b_row, wide)
                is_wide = b.icmp_signed(">", width, lanes)
                for vectors, is_it in ((VECTORS, is_wide), (1, b.not_(is_wide))):
                    if parts.has(vectors):
                        with b.if_then(is_it):
                            strip(j, width, first, depth, resume, vectors, source)
                return ()

            panels = b.sdiv(b.add(n, b.sub(wide, WORD(1))), wide)
            w.loop(WORD(0), panels, 1, across)
            return ()

        def behind(j: Any, first: Any) -> tuple[Any, Any]:
            """Where the next panel begins, of these rows of b or the first of those below, and its rows."""
            is_last = b.icmp_signed(">=", b.add(j, wide), n)
            row = b.select(is_last, b.add(first, WORD(DEPTH)), first)
            column = b.select(is_last, WORD(0), b.add(j, wide))
            place = w.at(b_, b.mul(row, b_row), b.mul(column, b_column), of=of_b)
            return place, w.least(WORD(DEPTH), b.sub(k, row))

        def strip(
            j: Any, width: Any, first: Any, depth: Any, resume: Any, vectors: int, source: tuple[Any, Any]
        ) -> None:
            """All rows of c, of a panel's columns. source: where these are, and the floats of a row there.

            Meanwhile the columns behind them come from memory.
            """
            ahead, next_depth = behind(j, first)
            is_whole = b.icmp_signed("==", width, WORD(vectors * w.m.lanes))
            done: Any = WORD(0)
            for rows in parts.heights:

                def down(i: Any, _: Sequence[Any], rows: int = rows) -> Sequence[Any]:
                    part = [b.sdiv(b.mul(x, next_depth), m) for x in (i, b.add(i, WORD(rows)))]
                    b.call(_ask(module, right), [ahead, b_row, b_column, *part, next_depth])
                    into = w.at(c, b.mul(i, c_row), j)
                    start = w.at(a, b.mul(i, a_row), b.mul(first, a_column), of=of_a)
                    given = (start, a_row, a_column, *source, depth)
                    made = _rows(module, left, rows, vectors)
                    if parts.has(vectors, whole=True):
                        with b.if_then(is_whole):
                            b.call(made, [into, c_row, *given, resume])
                    if parts.has(vectors, whole=False):
                        with b.if_then(b.not_(is_whole)):
                            b.call(made, [edge, wide, *given, BIT(0)])
                            _copy_edge(w, edge, into, c_row, rows, width, resume)
                    return ()

                done = w.loop(done, m, rows, down)[0]

        w.loop(WORD(0), b.sdiv(b.add(k, WORD(DEPTH - 1)), WORD(DEPTH)), 1, deep)

    return _function(module, f"jstitch_multiply_{left}_{right}_{parts}", kinds, write)


def _copy_edge(w: VectorWriter, edge: Any, c: Any, c_row: Any, rows: int, width: Any, resume: Any) -> None:
    """The columns that c has of a panel that is wider."""
    b = w.b

    def copied(adds: bool) -> Callable[[Any, Sequence[Any]], Sequence[Any]]:
        def row(i: Any, _: Sequence[Any]) -> Sequence[Any]:
            def one(j: Any, _: Sequence[Any]) -> Sequence[Any]:
                place = w.at(c, b.mul(i, c_row), j)
                value = b.load(w.at(edge, b.mul(i, WORD(w.m.panel)), j), align=4, typ=FLOAT)
                b.store(b.fadd(b.load(place, align=4, typ=FLOAT), value) if adds else value, place, align=4)
                return ()

            w.loop(WORD(0), width, 1, one)
            return ()

        return row

    with b.if_else(resume) as (then, otherwise):
        with then:
            w.loop(WORD(0), WORD(rows), 1, copied(adds=True))
        with otherwise:
            w.loop(WORD(0), WORD(rows), 1, copied(adds=False))


def multiply(left: str, right: str) -> Any:
    """c[i, j] = sum over k of a[i, k] * b[k, j], as an intrinsic; see the module."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        panel, numbers = arguments[6], arguments[7:]
        w, places = VectorWriter(builder, machine()), []
        for element, base, at in zip(
            (FLOAT, ELEMENTS[left], ELEMENTS[right]), arguments[:6:2], arguments[1:6:2], strict=True
        ):
            places.append(w.at(builder.inttoptr(base, element.as_pointer()), at, of=element))
        m, n, _ = (x.constant if isinstance(x, ir.Constant) else None for x in numbers[-3:])
        made = _multiply(builder.module, left, right, parts_of(m, n, w.m))
        builder.call(made, [*places, builder.inttoptr(panel, POINTER), *numbers])
        return context.get_dummy_value()

    @intrinsic
    def call(  # type: ignore[no-untyped-def]
        typingctx, c, c_at, a, a_at, b, b_at, panel, c_row, a_row, a_column, b_row, b_column, m, n, k
    ):
        return types.none(*[types.int64] * 15), codegen

    return call
