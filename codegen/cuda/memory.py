"""Loads and stores: global memory at raw addresses, the shared arena, single elements and vectors.

    read_f32x4(b, i)             ld.global.nc.v4.f32: memory that the launch does not write
    store_bf16x8(b, i, x, 0)     8 values rounded, packed in words: st.global.v4.b32
    shared_load_f32(o, i)        element i of the tile at byte o of the one dynamic arena
    prefetch_bulk(b, k, 4096)    cp.async.bulk.prefetch: 4096 bytes of b, from piece k of 16 on, into L2

i counts elements. A vector is at most 16 bytes and aligned to its size. Types below 32 bits travel in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.expression import Value
from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.declare import Function, Misuse, require, scalar, widen
from jstitch.codegen.cuda.packing import decoded, encoded, packed, unpacked, vector_type
from jstitch.codegen.cuda.scalar import (
    ADDRESS,
    GLOBAL,
    S64,
    STORAGE,
    Argument,
    Operand,
    Registers,
    Slot,
    Storage,
    describe,
    index_kind,
)

SHARED = 3
ARENA = "jst_smem"
VECTOR_BYTES = 16
_BYTE = ir.IntType(8)
Place = Callable[[Builder, Argument, Any], Any]


def _index(builder: Builder, name: str, argument: Argument) -> Any:
    operand = scalar(name, argument)
    kind = S64 if operand.kind == S64 else index_kind(builder)
    return widen(builder, name, operand, kind).raw


def global_place(name: str, dtype: Storage) -> Place:
    """The address of element i of the buffer at `base`."""
    return _indexed(name, _global(name, dtype))


def shared_place(name: str, dtype: Storage) -> Place:
    """The address of element i of the tile at byte `offset` of the arena."""
    return _indexed(name, _shared(name, dtype))


def _indexed(name: str, place: Place) -> Place:
    return lambda builder, base, index: place(builder, base, _index(builder, name, index))


def _global(name: str, dtype: Storage) -> Place:
    def place(builder: Builder, base: Argument, index: Any) -> Any:
        if not isinstance(base, Operand) or base.kind != ADDRESS:
            raise Misuse(f"a parameter of the function as the first argument of {name}", describe(base))
        return builder.gep(builder.bitcast(base.raw, dtype.llvm.as_pointer(GLOBAL)), [index], inbounds=True)

    return place


def _shared(name: str, dtype: Storage) -> Place:
    def place(builder: Builder, offset: Argument, index: Any) -> Any:
        tile = builder.gep(
            _arena(builder), [ir.Constant(builder.index, 0), _index(builder, name, offset)], True
        )
        return builder.gep(builder.bitcast(tile, dtype.llvm.as_pointer(SHARED)), [index], inbounds=True)

    return place


def _arena(builder: Builder) -> Any:
    found = builder.module.globals.get(ARENA)
    if found is None:
        found = ir.GlobalVariable(builder.block.module, ir.ArrayType(_BYTE, 0), ARENA, addrspace=SHARED)
        found.linkage, found.align = "external", 128
    return found


def _invariant(builder: Builder, load: Any) -> None:
    load.set_metadata("invariant.load", builder.module.add_metadata([]))


# -- one element ----------------------------------------------------------------------------------------


def _load(name: str, dtype: Storage, place: Place, invariant: bool) -> Function:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> Operand:
        pointer = place(builder, arguments[0], _index(builder, name, arguments[1]))
        raw = builder.load(pointer, align=dtype.itemsize)
        if invariant:
            _invariant(builder, raw)
        return Operand(dtype.kind, decoded(dtype, Value(builder, raw)).raw)

    return Function(name, 2, emit)


def _store(name: str, dtype: Storage, place: Place) -> Function:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> None:
        pointer = place(builder, arguments[0], _index(builder, name, arguments[1]))
        value = require(name, arguments[2], dtype.kind).value(builder)
        builder.store(encoded(dtype, value).raw, pointer, align=dtype.itemsize)

    return Function(name, 3, emit)


def _prefetch_bulk(builder: Builder, arguments: Sequence[Argument]) -> None:
    base, place, count = arguments
    nbytes = scalar("prefetch_bulk", count).number
    if not isinstance(nbytes, int) or nbytes <= 0 or nbytes % VECTOR_BYTES:
        raise Misuse(f"a constant multiple of {VECTOR_BYTES} bytes in prefetch_bulk", str(nbytes))
    address = _global("prefetch_bulk", STORAGE["u8"])(builder, base, ir.Constant(builder.index, 0))
    pieces = builder.bitcast(address, ir.ArrayType(_BYTE, VECTOR_BYTES).as_pointer(GLOBAL))
    address = builder.gep(pieces, [_index(builder, "prefetch_bulk", place)], inbounds=True)
    shape = ir.FunctionType(ir.VoidType(), [address.type])
    builder.asm(shape, f"cp.async.bulk.prefetch.L2.global [$0], {nbytes};", "l", [address], True)


# -- vectors --------------------------------------------------------------------------------------------


def _load_vector(
    name: str, dtype: Storage, lanes: int, place: Place, invariant: bool, space: int
) -> Function:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> Registers:
        pointer = place(builder, arguments[0], _index(builder, name, arguments[1]))
        pointer = builder.bitcast(pointer, vector_type(dtype, lanes).as_pointer(space))
        raw = builder.load(pointer, align=dtype.itemsize * lanes)
        if invariant:
            _invariant(builder, raw)
        values = unpacked(builder, raw, dtype, lanes)
        return Registers(dtype.kind, tuple(Operand(dtype.kind, value.raw) for value in values))

    return Function(name, 2, emit)


def _store_vector(name: str, dtype: Storage, lanes: int, place: Place, space: int) -> Function:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> None:
        pointer = place(builder, arguments[0], _index(builder, name, arguments[1]))
        pointer = builder.bitcast(pointer, vector_type(dtype, lanes).as_pointer(space))
        values = _taken(builder, name, dtype, lanes, arguments[2], arguments[3])
        builder.store(packed(builder, dtype, values), pointer, align=dtype.itemsize * lanes)

    return Function(name, 4, emit)


def _taken(
    builder: Builder, name: str, dtype: Storage, lanes: int, array: Argument, first: Argument
) -> list[Value]:
    """Elements first, first + 1, ... of the array."""
    if not isinstance(array, Registers) or array.kind != dtype.kind:
        raise Misuse(f"an array of {dtype.kind.name} in {name}", describe(array))
    start = scalar(name, first).number
    if not isinstance(start, int) or not 0 <= start <= len(array.elements) - lanes:
        raise Misuse(
            f"a constant first element within 0..{len(array.elements) - lanes} in {name}", str(start)
        )
    return [Value(builder, read(builder, element)) for element in array.elements[start : start + lanes]]


def read(builder: Builder, cell: Slot | Operand) -> Any:
    """The current value of a variable."""
    return builder.load(cell.pointer) if isinstance(cell, Slot) else cell.raw


def _family(dtype: Storage) -> list[Function]:
    """All memory functions of one dtype."""
    found = []
    spaces = (
        ("read", _global, True, GLOBAL),
        ("load", _global, False, GLOBAL),
        ("shared_load", _shared, False, SHARED),
    )
    for verb, at, invariant, space in spaces:
        name = f"{verb}_{dtype.name}"
        found.append(_load(name, dtype, at(name, dtype), invariant))
        for n in _lane_counts(dtype):
            wide = f"{name}x{n}"
            found.append(_load_vector(wide, dtype, n, at(wide, dtype), invariant, space))
    for verb, at, _, space in (("store", _global, False, GLOBAL), ("shared_store", _shared, False, SHARED)):
        name = f"{verb}_{dtype.name}"
        found.append(_store(name, dtype, at(name, dtype)))
        found += [
            _store_vector(f"{name}x{n}", dtype, n, at(f"{name}x{n}", dtype), space)
            for n in _lane_counts(dtype)
        ]
    return found


def _lane_counts(dtype: Storage) -> list[int]:
    return [n for n in (2, 4, 8, 16) if n * dtype.itemsize <= VECTOR_BYTES]


FUNCTIONS = {
    "prefetch_bulk": Function("prefetch_bulk", 3, _prefetch_bulk),
    **{f.name: f for dtype in STORAGE.values() for f in _family(dtype)},
}
