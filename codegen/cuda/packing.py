"""How scalars lie in memory: narrow floats as codes, bools as bytes, vectors below 32 bits in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.expression import Value
from jstitch.codegen.cuda import pairs
from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.narrow import decode, encode
from jstitch.codegen.cuda.scalar import BOOL, Storage

WORD = 32


def decoded(dtype: Storage, raw: Value) -> Value:
    """A scalar from what one element of memory holds."""
    if dtype.narrow is not None:
        return decode(raw, dtype.narrow)
    return raw.compare("!=", 0) if dtype.kind == BOOL else raw


def encoded(dtype: Storage, value: Value) -> Value:
    """What one element of memory holds of a scalar."""
    if dtype.narrow is not None:
        return encode(value, dtype.narrow)
    return value.resize(8, signed=False) if dtype.kind == BOOL else value


def vector_type(dtype: Storage, lanes: int) -> Any:
    """How a vector travels: one word, or a vector of words."""
    word = dtype.llvm if dtype.bits >= WORD else ir.IntType(min(WORD, dtype.bits * lanes))
    count = lanes if dtype.bits >= WORD else max(1, dtype.bits * lanes // WORD)
    return ir.VectorType(word, count) if count > 1 else word


def unpacked(builder: Builder, raw: Any, dtype: Storage, lanes: int) -> list[Value]:
    """The scalars of a loaded vector."""
    words = [Value(builder, raw)]
    if isinstance(raw.type, ir.VectorType):
        words = [Value(builder, builder.extract_element(raw, _lane(k))) for k in range(raw.type.count)]
    if dtype.bits >= WORD:
        return words
    form = dtype.narrow
    if form is not None and pairs.decodes(builder, form):
        return [x for codes in _split(words, 2 * dtype.bits, lanes // 2) for x in pairs.decode(codes, form)]
    return [decoded(dtype, bits) for bits in _split(words, dtype.bits, lanes)]


def _split(words: Sequence[Value], bits: int, count: int) -> list[Value]:
    """The first `count` integers of that many bits."""
    per = count // len(words)
    return [words[k // per].shift_down(k % per * bits).resize(bits, signed=False) for k in range(count)]


def packed(builder: Builder, dtype: Storage, values: Sequence[Value]) -> Any:
    """The vector that is stored for scalars."""
    words = list(values) if dtype.bits >= WORD else _words(builder, dtype, values)
    if len(words) == 1:
        return words[0].raw
    vector: Any = ir.Constant(ir.VectorType(words[0].type, len(words)), ir.Undefined)
    for k, word in enumerate(words):
        vector = builder.insert_element(vector, word.raw, _lane(k))
    return vector


def _words(builder: Builder, dtype: Storage, values: Sequence[Value]) -> list[Value]:
    form, bits = dtype.narrow, dtype.bits
    if form is not None and pairs.encodes(builder, form):
        parts = [pairs.encode(values[k], values[k + 1], form) for k in range(0, len(values), 2)]
        bits *= 2
    else:
        parts = [encoded(dtype, v) for v in values]
    width = min(WORD, bits * len(parts))
    parts = [part.resize(width, signed=False) for part in parts]
    per = width // bits
    return [_joined(parts[k : k + per], bits) for k in range(0, len(parts), per)]


def _joined(parts: Sequence[Value], bits: int) -> Value:
    word = parts[0]
    for k, part in enumerate(parts[1:], 1):
        word = word | (part << (k * bits))
    return word


def _lane(k: int) -> Any:
    return ir.Constant(ir.IntType(32), k)
