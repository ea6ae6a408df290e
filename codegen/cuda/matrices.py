"""Products of small matrices by a warp, and copies that threads do not wait for.

    shared_copy_bf16x8(o, i, x, k)          cp.async: 16 bytes of x, from element k on, to the arena
    commit_copies(); await_copies(1)        groups of them; at most one is under way afterwards
    shared_matrices_bf16x8(o, i, w, 0)      ldmatrix.x4: words w[0] to w[3]; shared_turned_...: .trans
    multiply_add_bf16(s, 0, a, 0, b, 2)     mma.m16n8k16: s[0..3] += a[0..3] * b[2..3]
    multiply_add_f32(s, 0, a, 0, b, 2)      mma.m16n8k8 of tf32, to which a and b are rounded already

LLVM 7, which libNVVM reads for most GPUs, knows none of them: they are inline PTX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.declare import Function, Misuse, scalar
from jstitch.codegen.cuda.memory import global_place, read, shared_place
from jstitch.codegen.cuda.scalar import (
    F32,
    INTEGERS,
    STORAGE,
    Argument,
    Kind,
    Registers,
    Slot,
    Storage,
    describe,
)
from jstitch.codegen.launch_ir import PIECE_BYTES

WORD, FLOAT, VOID = ir.IntType(32), ir.FloatType(), ir.VoidType()
U32 = INTEGERS["u32"]
Emit = Callable[[Builder, Sequence[Argument]], None]


def _asm(builder: Builder, text: str, constraints: str, result: ir.Type, *operands: Any) -> Any:
    """Inline PTX that touches memory, or waits for other threads."""
    shape = ir.FunctionType(result, [o.type for o in operands])
    return builder.asm(shape, text, constraints, list(operands), True)


def _cells(name: str, array: Argument, first: Argument, count: int, kind: Kind) -> list[Slot]:
    """`count` variables of an array."""
    start = scalar(name, first).number
    if not isinstance(array, Registers) or array.kind != kind:
        raise Misuse(f"an array of {kind.name} in {name}", describe(array))
    if not isinstance(start, int) or not 0 <= start <= len(array.elements) - count:
        raise Misuse(f"{count} elements of an array of {len(array.elements)} in {name}", f"from {start} on")
    found = [cell for cell in array.elements[start : start + count] if isinstance(cell, Slot)]
    if len(found) < count:
        raise Misuse(f"an array made by registers_{kind.name} in {name}", "a vector that was read")
    return found


def _in_arena(builder: Builder, name: str, dtype: Storage, tile: Argument, index: Argument) -> Any:
    """The 32-bit address of an element of a tile."""
    return builder.ptrtoint(shared_place(name, dtype)(builder, tile, index), WORD)


def _copy(name: str, dtype: Storage) -> Emit:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> None:
        tile, index, base, place = arguments
        source = global_place(name, dtype)(builder, base, place)
        to = _in_arena(builder, name, dtype, tile, index)
        _asm(builder, "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}", VOID, to, source)

    return emit


def _commit(builder: Builder, arguments: Sequence[Argument]) -> None:
    _asm(builder, "cp.async.commit_group;", "~{memory}", VOID)


def _await(builder: Builder, arguments: Sequence[Argument]) -> None:
    pending = scalar("await_copies", arguments[0]).number
    if not isinstance(pending, int) or pending < 0:
        raise Misuse("a constant number of groups in await_copies", str(pending))
    _asm(builder, f"cp.async.wait_group {pending};", "~{memory}", VOID)


def _held(dtype: Storage) -> Kind:
    """What a register holds of an operand: a pair, or an f32."""
    return F32 if dtype.name == "f32" else U32


def _matrices(name: str, dtype: Storage, way: str) -> Emit:
    text = f"ldmatrix.sync.aligned.m8n8.x4{way}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
    kind = _held(dtype)

    def emit(builder: Builder, arguments: Sequence[Argument]) -> None:
        tile, index, array, first = arguments
        cells = _cells(name, array, first, 4, kind)
        words = ir.LiteralStructType([WORD] * 4)
        at = _in_arena(builder, name, dtype, tile, index)
        found = _asm(builder, text, "=r,=r,=r,=r,r,~{memory}", words, at)
        for n, cell in enumerate(cells):
            builder.store(builder.bitcast(builder.extract_value(found, n), kind.llvm), cell.pointer)

    return emit


def _multiply_add(name: str, dtype: Storage) -> Emit:
    kind = _held(dtype)
    element, depth = ("tf32", 8) if kind is F32 else (dtype.name, 16)
    shape = f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{element}.{element}.f32"
    text = f"{shape} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"

    def emit(builder: Builder, arguments: Sequence[Argument]) -> None:
        s, i, a, j, b, k = arguments
        sums, left = _cells(name, s, i, 4, F32), _cells(name, a, j, 4, kind)
        right = _cells(name, b, k, 2, kind)
        words = [builder.bitcast(read(builder, cell), WORD) for cell in (*left, *right)]
        values = [*words, *(read(builder, cell) for cell in sums)]
        floats = ir.LiteralStructType([FLOAT] * 4)
        found = builder.inline(text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", floats, *values)
        for n, cell in enumerate(sums):
            builder.store(builder.extract_value(found, n), cell.pointer)

    return emit


def _family(dtype: Storage) -> list[Function]:
    """Those of one type of elements."""
    piece = f"{dtype.name}x{PIECE_BYTES // dtype.itemsize}"
    copy, plain, turned = (f"shared_{verb}_{piece}" for verb in ("copy", "matrices", "turned"))
    product = f"multiply_add_{dtype.name}"
    found = [
        Function(copy, 4, _copy(copy, dtype)),
        Function(plain, 4, _matrices(plain, dtype, "")),
        Function(product, 6, _multiply_add(product, dtype)),
    ]
    return found if dtype.name == "f32" else [*found, Function(turned, 4, _matrices(turned, dtype, ".trans"))]


FUNCTIONS = {
    "commit_copies": Function("commit_copies", 0, _commit),
    "await_copies": Function("await_copies", 1, _await),
    **{f.name: f for name in ("f16", "bf16", "f32") for f in _family(STORAGE[name])},
}
