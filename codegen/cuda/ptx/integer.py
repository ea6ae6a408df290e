"""Integer arithmetic and bit manipulation. Everything wraps; shifts past the width give 0 or the sign."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jstitch.codegen.cuda.ptx.form import Form, Match, form, pure
from jstitch.codegen.cuda.ptx.scalar import DTYPES, SIGNED, UNSIGNED, Array, width

_INT = r"(?P<t>[su](?:16|32|64))"
_BITS = r"(?P<t>[bus](?:16|32|64))"
_REVERSED = np.array([int(f"{n:08b}"[::-1], 2) for n in range(256)], np.uint8)
_SIMPLE: dict[str, Callable[..., Array]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul.lo": operator.mul,
    "mad.lo": lambda a, b, c: a * b + c,
    "min": np.minimum,
    "max": np.maximum,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
}


@form(rf"(?P<name>add|sub|mul\.lo|mad\.lo|min|max)\.{_INT}")
def _simple(m: Match) -> Form:
    return pure(m["t"], _SIMPLE[m["name"]], 3 if m["name"] == "mad.lo" else 2)


@form(r"(?P<name>and|or|xor|not)\.(?P<t>pred|b16|b32|b64)")
def _logic(m: Match) -> Form:
    return pure(m["t"], _SIMPLE[m["name"]], 1 if m["name"] == "not" else 2)


@form(r"cnot\.(?P<t>b16|b32|b64)")
def _cnot(m: Match) -> Form:
    return pure(m["t"], lambda a: (a == 0).astype(a.dtype), 1)


@form(r"(?P<name>neg|abs)\.(?P<t>s16|s32|s64)")
def _sign(m: Match) -> Form:
    return pure(m["t"], np.negative if m["name"] == "neg" else np.abs, 1)


def high(a: Array, b: Array) -> Array:
    """The upper half of the product of integers of one type."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = (SIGNED if a.dtype.kind == "i" else UNSIGNED)[bits * 2]
        return np.asarray(((a.astype(wide) * b.astype(wide)) >> bits).astype(a.dtype))
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    x, y = a.view(np.uint64), b.view(np.uint64)
    cross = (x >> half) * (y & low) + (((x & low) * (y & low)) >> half)
    other = (x & low) * (y >> half) + (cross & low)
    result = (x >> half) * (y >> half) + (cross >> half) + (other >> half)
    if a.dtype.kind == "i":
        result = result - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return np.asarray(result.view(a.dtype))


@form(rf"mul\.hi\.{_INT}")
def _mul_high(m: Match) -> Form:
    return pure(m["t"], high, 2)


@form(rf"mad\.hi\.{_INT}")
def _mad_high(m: Match) -> Form:
    return pure(m["t"], lambda a, b, c: high(a, b) + c, 3)


@form(r"(?P<name>mul|mad)\.wide\.(?P<t>[su](?:16|32))")
def _wide(m: Match) -> Form:
    result = f"{m['t'][0]}{width(m['t']) * 2}"
    dtype = DTYPES[result]
    if m["name"] == "mul":
        return Form(result, (m["t"],) * 2, lambda a, b: a.astype(dtype) * b.astype(dtype))
    return Form(result, (m["t"], m["t"], result), lambda a, b, c: a.astype(dtype) * b.astype(dtype) + c)


def _magnitude(a: Array) -> Array:
    return np.asarray(np.abs(a).view(UNSIGNED[a.dtype.itemsize * 8]))


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "u":
        return np.asarray(a // b)
    quotient = (_magnitude(a) // _magnitude(b)).view(a.dtype)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


@form(rf"div\.{_INT}")
def _div(m: Match) -> Form:
    return pure(m["t"], _divide, 2)


@form(rf"rem\.{_INT}")
def _rem(m: Match) -> Form:
    return pure(m["t"], lambda a, b: a - _divide(a, b) * b, 2)


def shift_left(a: Array, n: Array) -> Array:
    """a << n, 0 where n reaches the width. n: unsigned 32-bit."""
    bits = a.dtype.itemsize * 8
    shifted = a << (n & np.uint32(bits - 1)).astype(a.dtype)
    return np.asarray(shifted if n.max() < bits else np.where(n < bits, shifted, a.dtype.type(0)))


def shift_right(a: Array, n: Array) -> Array:
    """a >> n, arithmetic for signed integers. n: unsigned 32-bit."""
    bits = a.dtype.itemsize * 8
    if a.dtype.kind == "i":
        return np.asarray(a >> np.minimum(n, np.uint32(bits - 1)).astype(a.dtype))
    shifted = a >> (n & np.uint32(bits - 1)).astype(a.dtype)
    return np.asarray(shifted if n.max() < bits else np.where(n < bits, shifted, a.dtype.type(0)))


@form(r"shl\.(?P<t>b16|b32|b64)")
def _shl(m: Match) -> Form:
    return Form(m["t"], (m["t"], "u32"), shift_left)


@form(rf"shr\.{_BITS}")
def _shr(m: Match) -> Form:
    return Form(m["t"], (m["t"], "u32"), shift_right)


@form(r"shf\.(?P<way>[lr])\.(?P<mode>wrap|clamp)\.b32")
def _funnel(m: Match) -> Form:
    def apply(low: Array, up: Array, count: Array) -> Array:
        n = count & np.uint32(31) if m["mode"] == "wrap" else np.minimum(count, np.uint32(32))
        both, n = (up.astype(np.uint64) << np.uint64(32)) | low, n.astype(np.uint64)
        return np.asarray(both << n >> np.uint64(32) if m["way"] == "l" else both >> n).astype(np.uint32)

    return pure("b32", apply, 3)


def _low_mask(count: Array, dtype: Any) -> Array:
    """Ones in the lowest `count` bits."""
    return np.asarray(shift_left(np.ones(1, dtype), count) - dtype.type(1))


@form(r"bfe\.(?P<t>[su](?:32|64))")
def _extract(m: Match) -> Form:
    bits, unsigned = width(m["t"]), UNSIGNED[width(m["t"])]

    def apply(a: Array, position: Array, length: Array) -> Array:
        position, length = position & np.uint32(255), length & np.uint32(255)
        room = np.uint32(bits) - np.minimum(position, np.uint32(bits))
        mask = _low_mask(np.minimum(length, room), unsigned)
        result = shift_right(a.view(unsigned), position) & mask
        if m["t"].startswith("s"):
            top = np.minimum(position + np.maximum(length, np.uint32(1)) - np.uint32(1), np.uint32(bits - 1))
            sign = (shift_right(a.view(unsigned), top) & unsigned.type(1)) * (length > 0)
            result = np.where(sign != 0, result | ~mask, result)
        return np.asarray(result.view(a.dtype))

    return Form(m["t"], (m["t"], "u32", "u32"), apply)


@form(r"bfi\.(?P<t>b32|b64)")
def _insert(m: Match) -> Form:
    def apply(a: Array, b: Array, position: Array, length: Array) -> Array:
        position, length = position & np.uint32(255), length & np.uint32(255)
        mask = shift_left(_low_mask(length, a.dtype), position)
        return np.asarray((b & ~mask) | (shift_left(a, position) & mask))

    return Form(m["t"], (m["t"], m["t"], "u32", "u32"), apply)


def _length(a: Array) -> Array:
    """Bits up to the highest one."""
    if a.dtype.itemsize == 8:
        up = (a >> np.uint64(32)).astype(np.uint32)
        return np.where(up != 0, _length(up) + np.uint32(32), _length(a.astype(np.uint32)))
    return np.frexp(a.astype(np.float64))[1].astype(np.uint32)


@form(r"clz\.(?P<t>b32|b64)")
def _clz(m: Match) -> Form:
    return Form("u32", (m["t"],), lambda a: np.uint32(width(m["t"])) - _length(a))


@form(r"bfind(?P<shift>\.shiftamt)?\.(?P<t>[su](?:32|64))")
def _bfind(m: Match) -> Form:
    def apply(a: Array) -> Array:
        bits = np.where(a < 0, ~a, a).view(UNSIGNED[width(m["t"])])
        found = _length(bits) - np.uint32(1)
        return np.where(bits == 0, found, np.uint32(width(m["t"]) - 1) - found) if m["shift"] else found

    return Form("u32", (m["t"],), apply)


@form(r"popc\.(?P<t>b32|b64)")
def _popc(m: Match) -> Form:
    return Form("u32", (m["t"],), lambda a: np.bitwise_count(a).astype(np.uint32))


@form(r"brev\.(?P<t>b32|b64)")
def _brev(m: Match) -> Form:
    return pure(m["t"], lambda a: _REVERSED[a.byteswap().view(np.uint8)].view(a.dtype), 1)


@form(r"prmt\.b32")
def _permute(m: Match) -> Form:
    def apply(a: Array, b: Array, selectors: Array) -> Array:
        both, result = (b.astype(np.uint64) << np.uint64(32)) | a, np.zeros(1, np.uint32)
        for n in range(4):
            choice = (selectors >> np.uint32(4 * n)).astype(np.uint64)
            byte = (both >> ((choice & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
            sign = np.where(byte >> np.uint64(7) != 0, np.uint64(255), np.uint64(0))
            byte = np.where(choice & np.uint64(8) != 0, sign, byte)
            result = result | (byte << np.uint64(8 * n)).astype(np.uint32)
        return result

    return pure("b32", apply, 3)


@form(r"dp4a\.(?P<a>[su]32)\.(?P<b>[su]32)")
def _dot_of_bytes(m: Match) -> Form:
    """A product of four bytes by four bytes, added to a word; either is signed or not."""
    result = "u32" if m["a"] == m["b"] == "u32" else "s32"

    def apply(a: Array, b: Array, c: Array) -> Array:
        total = c.astype(np.int64)
        for n in range(4):
            left, right = (_part(x, n, kind, 8) for x, kind in ((a, m["a"]), (b, m["b"])))
            total = total + left * right
        return total.astype(np.uint64).astype(np.uint32).view(c.dtype)

    return Form(result, (m["a"], m["b"], result), apply)


@form(r"dp2a\.(?P<half>lo|hi)\.(?P<a>[su]32)\.(?P<b>[su]32)")
def _dot_of_halves(m: Match) -> Form:
    """A product of two halves of a word by two bytes, its low or its high ones, added to a word."""
    result = "u32" if m["a"] == m["b"] == "u32" else "s32"
    first = 2 * (m["half"] == "hi")

    def apply(a: Array, b: Array, c: Array) -> Array:
        total = c.astype(np.int64)
        for n in range(2):
            total = total + _part(a, n, m["a"], 16) * _part(b, first + n, m["b"], 8)
        return total.astype(np.uint64).astype(np.uint32).view(c.dtype)

    return Form(result, (m["a"], m["b"], result), apply)


def _part(x: Array, n: int, kind: str, bits: int) -> Array:
    """Bits [n * bits, (n + 1) * bits) of a word."""
    found = (x.view(np.uint32) >> np.uint32(bits * n)).astype(f"u{bits // 8}")
    return (found.view(f"i{bits // 8}") if kind == "s32" else found).astype(np.int64)


@form(r"lop3\.b32")
def _lop3(m: Match) -> Form:
    def apply(a: Array, b: Array, c: Array, table: Array) -> Array:
        result = np.zeros(1, np.uint32)
        for n in range(8):
            if int(table[0]) >> n & 1:
                result = result | ((a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c))
        return result

    return pure("b32", apply, 4)
