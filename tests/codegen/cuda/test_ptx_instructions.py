"""Each instruction of the PTX interpreter against plain Python on the same values."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from ptx_kernels import apply, run

EDGES = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, -1, -2, -7, -128]


def integers(dtype: str, seed: int = 0) -> np.ndarray:
    """Edges and random values of every magnitude."""
    kind = np.dtype(dtype)
    bits = kind.itemsize * 8
    rng = np.random.default_rng(seed)
    edges = [*EDGES, 1 << (bits - 1), (1 << (bits - 1)) - 1, -(1 << (bits - 1)) + 1]
    random = [int(rng.integers(0, 2**63)) * 2 + 1 >> int(rng.integers(0, 64)) for _ in range(46)]
    values = np.array([v % 2**bits for v in [*edges, *random]], f"u{kind.itemsize}")
    return rng.permutation(values).view(kind)


def wrap(value: int, dtype: np.dtype) -> int:
    bits = dtype.itemsize * 8
    value %= 1 << bits
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


def truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": truncated,
    "rem": lambda a, b: a - truncated(a, b) * b,
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("t", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_integer_arithmetic(name: str, t: str) -> None:
    dtype = np.dtype(f"{'i' if t[0] == 's' else 'u'}{int(t[1:]) // 8}")
    a, b = integers(dtype.str), integers(dtype.str, 1)
    b = np.where(b == 0, 5, b).astype(dtype)
    expected = [wrap(BINARY[name](int(x), int(y)), dtype) for x, y in zip(a, b, strict=True)]
    assert apply(f"{name}.{t} {{d}}, {{a}}, {{b}};", dtype.str, a, b).tolist() == expected


@pytest.mark.parametrize("t", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_upper_half_of_a_product(t: str) -> None:
    dtype = np.dtype(f"{'i' if t[0] == 's' else 'u'}{int(t[1:]) // 8}")
    a, b = integers(dtype.str), integers(dtype.str, 1)
    expected = [wrap(int(x) * int(y) >> int(t[1:]), dtype) for x, y in zip(a, b, strict=True)]
    assert apply(f"mul.hi.{t} {{d}}, {{a}}, {{b}};", dtype.str, a, b).tolist() == expected


@pytest.mark.parametrize("t", ["s16", "u16", "s32", "u32"])
def test_wide_product_and_sum(t: str) -> None:
    size = int(t[1:]) // 8
    dtype, wide = (np.dtype(f"{'i' if t[0] == 's' else 'u'}{n}") for n in (size, size * 2))
    a, b, c = integers(dtype.str), integers(dtype.str, 1), integers(wide.str, 2)
    expected = [wrap(int(x) * int(y) + int(z), wide) for x, y, z in zip(a, b, c, strict=True)]
    assert apply(f"mad.wide.{t} {{d}}, {{a}}, {{b}}, {{c}};", wide.str, a, b, c).tolist() == expected


@pytest.mark.parametrize("t", ["b32", "b64", "s32", "u32", "s64", "u64"])
def test_shifts_past_the_width(t: str) -> None:
    bits = int(t[1:])
    dtype = np.dtype(f"{'i' if t[0] == 's' else 'u'}{bits // 8}")
    a, counts = integers(dtype.str), np.arange(64, dtype=np.uint32) * 5 % 97
    name, shift = ("shl", lambda x, n: x << n) if t[0] == "b" else ("shr", lambda x, n: x >> n)
    expected = [wrap(shift(int(x), int(n)), dtype) for x, n in zip(a, counts, strict=True)]
    assert apply(f"{name}.{t} {{d}}, {{a}}, {{b}};", dtype.str, a, counts).tolist() == expected


@pytest.mark.parametrize("way", ["l", "r"])
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shift(way: str, mode: str) -> None:
    low, up, counts = integers("u4"), integers("u4", 1), np.arange(64, dtype=np.uint32)
    expected = []
    for x, y, n in zip(low.tolist(), up.tolist(), counts.tolist(), strict=True):
        n = n % 32 if mode == "wrap" else min(n, 32)
        both = y << 32 | x
        expected.append((both << n >> 32 if way == "l" else both >> n) & 0xFFFFFFFF)
    assert (
        apply(f"shf.{way}.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};", "u4", low, up, counts).tolist() == expected
    )


def field(value: int, position: int, length: int, bits: int, signed: bool) -> int:
    """Bits [position, position + length) of a value whose sign goes on for ever if signed, as PTX says."""
    top = min(position + length - 1, bits - 1)
    sign = value >> top & 1 if signed and length else 0
    found = [value >> (position + n) & 1 if position + n < bits else sign for n in range(min(length, bits))]
    found += [sign] * (bits - len(found))
    return sum(bit << n for n, bit in enumerate(found))


@pytest.mark.parametrize("t", ["s32", "u32", "s64", "u64"])
def test_bit_field_extract(t: str) -> None:
    bits = int(t[1:])
    a, rng = integers(f"u{bits // 8}"), np.random.default_rng(3)
    position, length = (rng.integers(0, bits + 8, 64).astype(np.uint32) for _ in range(2))
    triples = zip(a.tolist(), position.tolist(), length.tolist(), strict=True)
    expected = [field(x, p, n, bits, t[0] == "s") for x, p, n in triples]
    step = f"bfe.{t} {{d}}, {{a}}, {{b}}, {{c}};"
    assert apply(step, f"u{bits // 8}", a, position, length).tolist() == expected


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(bits: int) -> None:
    kind, rng = f"u{bits // 8}", np.random.default_rng(4)
    a, b = integers(kind), integers(kind, 1)
    position, length = (rng.integers(0, bits + 8, 64).astype(np.uint32) for _ in range(2))
    expected = []
    for x, y, p, n in zip(a.tolist(), b.tolist(), position.tolist(), length.tolist(), strict=True):
        mask = ((1 << n) - 1 << p) & ((1 << bits) - 1)
        expected.append((y & ~mask) | (x << p & mask))
    step = f"bfi.b{bits} {{d}}, {{a}}, {{b}}, {{c}}, {{e}};"
    assert apply(step, kind, a, b, position, length).tolist() == expected


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counts(bits: int) -> None:
    a = integers(f"u{bits // 8}")
    values = a.tolist()
    assert apply(f"popc.b{bits} {{d}}, {{a}};", "u4", a).tolist() == [v.bit_count() for v in values]
    assert apply(f"clz.b{bits} {{d}}, {{a}};", "u4", a).tolist() == [bits - v.bit_length() for v in values]
    highest = [(v.bit_length() - 1) % 2**32 for v in values]
    assert apply(f"bfind.u{bits} {{d}}, {{a}};", "u4", a).tolist() == highest
    signed = [((v if v < 1 << bits - 1 else ~v % 2**bits).bit_length() - 1) % 2**32 for v in values]
    assert apply(f"bfind.s{bits} {{d}}, {{a}};", "u4", a.view(f"i{bits // 8}")).tolist() == signed
    reverse = [int(f"{v:0{bits}b}"[::-1], 2) for v in values]
    assert apply(f"brev.b{bits} {{d}}, {{a}};", f"u{bits // 8}", a).tolist() == reverse


def test_logic_tables_and_byte_permutation() -> None:
    a, b, c = (integers("u4", seed) for seed in range(3))
    assert (apply("lop3.b32 {d}, {a}, {b}, {c}, 0x96;", "u4", a, b, c) == a ^ b ^ c).all()
    assert (apply("lop3.b32 {d}, {a}, {b}, {c}, 0xE2;", "u4", a, b, c) == (a & b | ~b & c)).all()
    assert (apply("prmt.b32 {d}, {a}, {b}, 0x5410;", "u4", a, b) == (a & 0xFFFF | b << 16)).all()
    signs = np.where(a >> 31, 0xFF, 0).astype("u4")
    assert (apply("prmt.b32 {d}, {a}, 0, 0x444b;", "u4", a) == signs).all()
    assert (apply("not.b32 {d}, {a};", "u4", a) == ~a).all()
    assert (apply("cnot.b32 {d}, {a};", "u4", a) == (a == 0)).all()


@pytest.mark.parametrize("left", ["u32", "s32"])
@pytest.mark.parametrize("right", ["u32", "s32"])
def test_products_of_four_bytes(left: str, right: str) -> None:
    a, b, c = (integers("u4", seed) for seed in range(3))

    def parts(word: int, kind: str) -> list[int]:
        found = word.to_bytes(4, "little")
        return [x - 256 if kind == "s32" and x > 127 else x for x in found]

    expected = [
        (sum(p * q for p, q in zip(parts(x, left), parts(y, right), strict=True)) + z) % 2**32
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    found = apply(f"dp4a.{left}.{right} {{d}}, {{a}}, {{b}}, {{c}};", "u4", a, b, c)
    assert found.tolist() == expected


@pytest.mark.parametrize("half", ["lo", "hi"])
@pytest.mark.parametrize(("left", "right"), [("u32", "u32"), ("s32", "u32"), ("u32", "s32"), ("s32", "s32")])
def test_products_of_two_halves(half: str, left: str, right: str) -> None:
    a, b, c = (integers("u4", seed) for seed in range(3))

    def parts(word: int, kind: str, bits: int) -> list[int]:
        found = [word >> n & (1 << bits) - 1 for n in range(0, 32, bits)]
        return [x - (1 << bits) if kind == "s32" and x >> (bits - 1) else x for x in found]

    def bytes_of(word: int) -> list[int]:
        found = parts(word, right, 8)
        return found[2:] if half == "hi" else found[:2]

    expected = [
        (sum(p * q for p, q in zip(parts(x, left, 16), bytes_of(y), strict=True)) + z) % 2**32
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    found = apply(f"dp2a.{half}.{left}.{right} {{d}}, {{a}}, {{b}}, {{c}};", "u4", a, b, c)
    assert found.tolist() == expected


def test_carries_make_128_bit_arithmetic() -> None:
    a, b = integers("u8"), integers("u8", 1)
    halves = [x for value in (a, b) for x in ((value & 0xFFFFFFFF).astype("u4"), (value >> 32).astype("u4"))]
    chain = (
        "{name}.cc.u32 %r10, {{a}}, {{c}}; {name}c.u32 %r11, {{b}}, {{e}}; mov.b64 {{d}}, {{{{%r10, %r11}}}};"
    )
    assert (apply(chain.format(name="add"), "u8", *halves) == a + b).all()
    assert (apply(chain.format(name="sub"), "u8", *halves) == a - b).all()
    step = "mul.lo.u64 %rd11, {a}, {b}; mad.lo.cc.u64 %rd12, {a}, {b}, {a}; madc.hi.u64 {d}, {a}, {b}, 0;"
    expected = [(int(x) * int(y) + int(x)) >> 64 for x, y in zip(a, b, strict=True)]
    assert apply(step, "u8", a, b).tolist() == expected


SPECIALS = [0.0, -0.0, 1.0, -1.5, 2.5, 1e-40, -1e-40, 3e38, math.inf, -math.inf, math.nan, 0.3]


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    values = np.array(SPECIALS).astype(dtype)
    return np.repeat(values, 12), np.tile(values, 12)


@pytest.mark.parametrize("t", ["f32", "f64"])
def test_float_arithmetic(t: str) -> None:
    a, b = pairs(f"f{int(t[1:]) // 8}")
    with np.errstate(all="ignore"):
        for name, expected in (("add", a + b), ("sub.rn", a - b), ("mul", a * b), ("div.rn", a / b)):
            np.testing.assert_array_equal(
                apply(f"{name}.{t} {{d}}, {{a}}, {{b}};", a.dtype.str, a, b), expected
            )


def test_minimum_and_maximum_of_zeros_and_nan() -> None:
    a, b = pairs("f4")
    low, high = (apply(f"{name}.f32 {{d}}, {{a}}, {{b}};", "f4", a, b) for name in ("min", "max"))
    zeros = (a == 0) & (b == 0)
    assert (np.signbit(low) == (np.signbit(a) | np.signbit(b)))[zeros].all()
    assert (np.signbit(high) == (np.signbit(a) & np.signbit(b)))[zeros].all()
    np.testing.assert_array_equal(low, np.fmin(a, b))
    np.testing.assert_array_equal(high, np.fmax(a, b))
    np.testing.assert_array_equal(apply("max.NaN.f32 {d}, {a}, {b};", "f4", a, b), np.maximum(a, b))


def test_flush_to_zero_and_saturation() -> None:
    tiny, half = np.array([1e-40, -1e-40, 1e-20], "f4"), np.array([0.5, 0.5, 1e-20], "f4")
    assert apply("mul.ftz.f32 {d}, {a}, {b};", "f4", tiny, half).tolist() == [0, 0, 0]
    assert apply("mul.f32 {d}, {a}, {b};", "f4", tiny, half)[0] > 0
    values = np.array([-1, 0.25, 7, np.nan], "f4")
    assert apply("add.sat.f32 {d}, {a}, 0f00000000;", "f4", values).tolist() == [0, 0.25, 1, 0]


def test_fused_multiply_add_keeps_the_product() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 128))
    c = -(a * b)
    exact = [
        float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert apply("fma.rn.f64 {d}, {a}, {b}, {c};", "f8", a, b, c).tolist() == exact
    a, b, c = (x.astype("f4") for x in (a, b, c))
    exact = [
        float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    down = apply("fma.rm.f32 {d}, {a}, {b}, {c};", "f4", a, b, c)
    near = apply("fma.rn.f32 {d}, {a}, {b}, {c};", "f4", a, b, c)
    assert (near == np.array(exact).astype("f4")).all()
    assert (down <= near).all()
    assert (down <= exact).all()
    assert (np.nextafter(down, np.float32(np.inf)) > exact).all()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ex2.approx.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("sqrt.rn.f32", np.sqrt),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)),
        ("rcp.rn.f32", lambda x: 1 / x),
        ("sin.approx.f32", np.sin),
        ("tanh.approx.f32", np.tanh),
    ],
)
def test_functions_of_one_operand(name: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    values = np.linspace(0.01, 9, 96).astype("f4")
    expected = function(values.astype("f8")).astype("f4")
    np.testing.assert_array_equal(apply(f"{name} {{d}}, {{a}};", "f4", values), expected)


@pytest.mark.parametrize(
    "test", ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
)
def test_comparisons_of_floats(test: str) -> None:
    a, b = pairs("f4")
    unordered = np.isnan(a) | np.isnan(b)
    if test in ("num", "nan"):
        expected = unordered == (test == "nan")
    else:
        table = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
        expected = np.where(unordered, len(test) == 3, table[test[:2]])
    step = f"setp.{test}.f32 %p1|%p2, {{a}}, {{b}}; selp.b32 %r10, 1, 0, %p1; selp.b32 {{d}}, 2, %r10, %p2;"
    assert (apply(step, "u4", a, b) == np.where(expected, 1, 2)).all()


def test_choices() -> None:
    a, b = integers("i4"), integers("i4", 1)
    step = "setp.lt.s32 %p1, {a}, 0; setp.gt.and.s32 %p2, {b}, 5, !%p1; selp.b32 {d}, {a}, {b}, %p2;"
    assert (apply(step, "i4", a, b) == np.where((a >= 0) & (b > 5), a, b)).all()
    assert (apply("slct.b32.s32 {d}, {a}, {b}, {b};", "i4", a, b) == np.where(b >= 0, a, b)).all()
    assert (apply("set.lt.u32.s32 {d}, {a}, {b};", "u4", a, b) == np.where(a < b, 2**32 - 1, 0)).all()
    nan = np.array([0x7FC12345], "u4").view("f4")
    kept = apply("setp.eq.s32 %p1, 0, 0; selp.f32 {d}, {a}, {a}, %p1;", "f4", nan)
    assert kept.view("u4")[0] == 0x7FC12345


CONVERSIONS = [
    ("cvt.rzi.s32.f32", "f4", "i4", [1.9, -1.9, 3e9, -3e9, math.nan], [1, -1, 2**31 - 1, -(2**31), 0]),
    ("cvt.rni.s32.f32", "f4", "i4", [0.5, 1.5, 2.5, -0.5], [0, 2, 2, 0]),
    ("cvt.rmi.s32.f32", "f4", "i4", [0.5, -0.5], [0, -1]),
    ("cvt.rpi.s32.f32", "f4", "i4", [0.5, -0.5], [1, 0]),
    ("cvt.rzi.u32.f32", "f4", "u4", [-1, 5e9, 7.9], [0, 2**32 - 1, 7]),
    ("cvt.rzi.s64.f64", "f8", "i8", [1e300, -7.5, math.nan], [2**63 - 1, -7, -(2**63)]),
    ("cvt.rn.f32.s32", "i4", "f4", [16777217, -5], [16777216, -5]),
    ("cvt.rn.f32.u64", "u8", "f4", [2**64 - 1], [2**64]),
    ("cvt.rn.f32.f64", "f8", "f4", [0.1, 1e300], [float(np.float32(0.1)), math.inf]),
    ("cvt.rz.f32.f64", "f8", "f4", [1 + 2**-24 + 2**-30, -1 - 2**-23 - 2**-24], [1, -1 - 2**-23]),
    ("cvt.rni.f32.f32", "f4", "f4", [2.5, -3.5], [2, -4]),
    ("cvt.sat.f32.f32", "f4", "f4", [2.5, -3.5, 0.5], [1, 0, 0.5]),
    ("cvt.s64.s32", "i4", "i8", [-5], [-5]),
    ("cvt.u64.u32", "u4", "u8", [2**32 - 1], [2**32 - 1]),
    ("cvt.s32.s8", "u4", "i4", [0xFF, 0x17F], [-1, 127]),
    ("cvt.u32.u8", "u4", "u4", [0x1FF], [255]),
    ("cvt.sat.s8.s32", "i4", "i4", [300, -300, 5], [127, -128, 5]),
    ("cvt.f32.f16", "f2", "f4", [0.5, 65504], [0.5, 65504]),
    ("cvt.rn.f16.f32", "f4", "f2", [1 / 3, 1e9], [float(np.float16(1 / 3)), math.inf]),
]


@pytest.mark.parametrize(("name", "source", "result", "values", "expected"), CONVERSIONS)
def test_conversions(name: str, source: str, result: str, values: list, expected: list) -> None:
    found = apply(f"{name} {{d}}, {{a}};", result, np.array(values, source))
    np.testing.assert_array_equal(found, np.array(expected, result))


@pytest.mark.parametrize(
    ("pair", "dtype"),
    [("f16x2", np.float16), ("bf16x2", ml_dtypes.bfloat16), ("e4m3x2", ml_dtypes.float8_e4m3fn)],
)
def test_packed_narrow_floats(pair: str, dtype: type) -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 64)).astype("f4")
    bits = np.dtype(dtype).itemsize * 8
    high, low = (x.astype(dtype).view(f"u{bits // 8}").astype("u4") for x in (a, b))
    clamp = ".satfinite" if bits == 8 else ""
    found = apply(f"cvt.rn{clamp}.{pair}.f32 {{d}}, {{a}}, {{b}};", f"u{bits // 4}", a, b)
    assert (found == (high << bits | low)).all()


def test_eight_bit_floats_clamp_and_widen() -> None:
    values, zero = np.array([1e9, -1e9, 440, math.nan], "f4"), np.zeros(4, "f4")
    packed = apply("cvt.rn.satfinite.e4m3x2.f32 {d}, {a}, {b};", "u2", zero, values)
    assert packed.tolist() == [0x7E, 0xFE, 0x7E, 0x7F]
    wide = apply("cvt.rn.f16x2.e4m3x2 {d}, {a};", "u4", packed)
    assert struct.pack("<I", int(wide[0]))[:2] == np.float16(448).tobytes()


def test_registers_hold_bits() -> None:
    a = np.array([0x3F800000, 0x40490FDB], "u4")
    assert (
        apply("mov.b32 %f1, {a}; add.f32 %f1, %f1, %f1; mov.b32 {d}, %f1;", "f4", a) == a.view("f4") * 2
    ).all()
    step = "mov.b32 {{%rs1, _}}, {a}; mov.b32 {{_, %rs2}}, {a}; mov.b32 {d}, {{%rs2, %rs1}};"
    assert (apply(step, "u4", a) == (a << 16 | a >> 16)).all()
    assert apply("mov.f32 %f1, 0f3FC00000; mov.f64 %fd1, 0d3FF8000000000000; cvt.f64.f32 %fd2, %f1;"
                 "sub.f64 %fd3, %fd1, %fd2; mov.b64 {d}, %fd3;", "f8", a)[0] == 0  # fmt: skip


def test_special_registers() -> None:
    out = np.zeros((2, 64, 4), "u4")
    body = """
        mad.wide.u32 %rd1, %r30, 16, %rd20; mov.u32 %r1, %laneid;
        mov.u32 %r2, %nctaid.x; mov.u32 %r3, %lanemask_lt;
        st.global.v4.u32 [%rd1], {%r31, %r1, %r2, %r3};
    """
    counts = run(body, out, grid=2, block=64)
    assert (out[1, :, 0] == np.arange(64)).all()
    assert (out[1, :, 1] == np.arange(64) % 32).all()
    assert (out[:, :, 2] == 2).all()
    assert (out[0, :, 3] == (1 << np.arange(64, dtype="u8") % 32) - 1).all()
    assert (counts.written_bytes, counts.vector_accesses) == (2048, 128)
