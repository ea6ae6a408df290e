"""Loads and stores: global memory at raw addresses, the shared arena, single elements and vectors.

    read_f32x4(b, i)             ld.global.nc.v4.f32: memory that the launch does not write
    store_bf16x8(b, i, x, 0)     8 values rounded, packed in words: st.global.v4.b32
    shared_load_f32(o, i)        element i of the tile at byte o of the one dynamic arena

i counts elements. A vector is at most 16 bytes and aligned to its size. Types below 32 bits travel in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.expression import Value
from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.declare import Function, Misuse, require, scalar, widen
from jstitch.codegen.cuda.narrow import decode, encode, encode_pair, has_pairs
from jstitch.codegen.cuda.scalar import (
    ADDRESS,
    BOOL,
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


def _global(name: str, dtype: Storage) -> Place:
    """The address of element i of the buffer at `base`."""

    def place(builder: Builder, base: Argument, index: Any) -> Any:
        if not isinstance(base, Operand) or base.kind != ADDRESS:
            raise Misuse(f"a parameter of the function as the first argument of {name}", describe(base))
        return builder.gep(builder.bitcast(base.raw, dtype.llvm.as_pointer(GLOBAL)), [index], inbounds=True)

    return place


def _shared(name: str, dtype: Storage) -> Place:
    """The address of element i of the tile at byte `offset` of the arena."""

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


def _decoded(dtype: Storage, raw: Value) -> Operand:
    """A scalar from its bits in memory."""
    if dtype.narrow is not None:
        raw = decode(raw, dtype.narrow)
    elif dtype.kind == BOOL:
        raw = raw.compare("!=", 0)
    return Operand(dtype.kind, raw.raw)


def _encoded(dtype: Storage, value: Value) -> Value:
    if dtype.narrow is not None:
        return encode(value, dtype.narrow)
    return value.resize(8, signed=False) if dtype.kind == BOOL else value


def _load(name: str, dtype: Storage, place: Place, invariant: bool) -> Function:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> Operand:
        pointer = place(builder, arguments[0], _index(builder, name, arguments[1]))
        raw = builder.load(pointer, align=dtype.itemsize)
        if invariant:
            _invariant(builder, raw)
        return _decoded(dtype, Value(builder, raw))

    return Function(name, 2, emit)


def _store(name: str, dtype: Storage, place: Place) -> Function:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> None:
        pointer = place(builder, arguments[0], _index(builder, name, arguments[1]))
        value = require(name, arguments[2], dtype.kind).value(builder)
        builder.store(_encoded(dtype, value).raw, pointer, align=dtype.itemsize)

    return Function(name, 3, emit)


# -- vectors --------------------------------------------------------------------------------------------


def _words(dtype: Storage, lanes: int) -> tuple[Any, int]:
    """How a vector travels: the type of one word, and how many."""
    if dtype.bits >= 32:
        return dtype.llvm, lanes
    return ir.IntType(min(32, dtype.bits * lanes)), max(1, dtype.bits * lanes // 32)


def _vector_pointer(builder: Builder, pointer: Any, dtype: Storage, lanes: int, space: int) -> Any:
    word, count = _words(dtype, lanes)
    return builder.bitcast(pointer, (ir.VectorType(word, count) if count > 1 else word).as_pointer(space))


def _load_vector(
    name: str, dtype: Storage, lanes: int, place: Place, invariant: bool, space: int
) -> Function:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> Registers:
        pointer = place(builder, arguments[0], _index(builder, name, arguments[1]))
        pointer = _vector_pointer(builder, pointer, dtype, lanes, space)
        raw = builder.load(pointer, align=dtype.itemsize * lanes)
        if invariant:
            _invariant(builder, raw)
        return Registers(dtype.kind, tuple(_decoded(dtype, v) for v in _unpack(builder, raw, dtype, lanes)))

    return Function(name, 2, emit)


def _unpack(builder: Builder, raw: Any, dtype: Storage, lanes: int) -> list[Value]:
    """The lanes of a loaded vector, as bits below 32 bits."""
    words = [Value(builder, raw)]
    if isinstance(raw.type, ir.VectorType):
        words = [Value(builder, builder.extract_element(raw, _lane(k))) for k in range(raw.type.count)]
    if dtype.bits >= 32:
        return words
    per = lanes // len(words)
    shifted = (words[k // per].shift_down(k % per * dtype.bits) for k in range(lanes))
    return [word.resize(dtype.bits, signed=False) for word in shifted]


def _lane(k: int) -> Any:
    return ir.Constant(ir.IntType(32), k)


def _store_vector(name: str, dtype: Storage, lanes: int, place: Place, space: int) -> Function:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> None:
        pointer = place(builder, arguments[0], _index(builder, name, arguments[1]))
        pointer = _vector_pointer(builder, pointer, dtype, lanes, space)
        values = _taken(builder, name, dtype, lanes, arguments[2], arguments[3])
        builder.store(_packed(builder, _joined(dtype, values)), pointer, align=dtype.itemsize * lanes)

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


def _joined(dtype: Storage, values: Sequence[Value]) -> list[Value]:
    """Values below 32 bits in words; the others as they are."""
    if dtype.bits >= 32:
        return list(values)
    form = dtype.narrow
    if form is not None and has_pairs(values[0], form):
        return [encode_pair(values[k], values[k + 1], form) for k in range(0, len(values), 2)]
    width = min(32, dtype.bits * len(values))
    bits = [_encoded(dtype, v).resize(width, signed=False) for v in values]
    per = width // dtype.bits
    return [_word(bits[k : k + per], dtype.bits) for k in range(0, len(bits), per)]


def _word(parts: Sequence[Value], bits: int) -> Value:
    word = parts[0]
    for k, part in enumerate(parts[1:], 1):
        word = word | (part << (k * bits))
    return word


def _packed(builder: Builder, words: Sequence[Value]) -> Any:
    if len(words) == 1:
        return words[0].raw
    vector = ir.Constant(ir.VectorType(words[0].type, len(words)), ir.Undefined)
    for k, word in enumerate(words):
        vector = builder.insert_element(vector, word.raw, _lane(k))
    return vector


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


FUNCTIONS = {f.name: f for dtype in STORAGE.values() for f in _family(dtype)}
