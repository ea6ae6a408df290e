"""Division by what does not change in the loop: the same bits as a division."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.codegen.cpu_loop import Loop, compile_loop
from tests.codegen.cpu_source import source_of
from tests.codegen.test_prefetch import kernel_from

SMALLEST = np.float32(2.0**-126)
FARTHEST = 8  # from a midpoint, in units of 2^-48 / c: three times what could be rounded wrongly


@pytest.fixture(scope="module")
def divide() -> Loop:
    return compile_loop("divide_invariant({0}, {1})", ("f32", "f32"), "f32")


def wrong(divide: Loop, a: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Where the bits are not those of a / c; any NaN is as good as another."""
    with np.errstate(all="ignore"):
        exact = a / c
    found = divide.all(a, c)[0]
    same = (found == exact) & (np.signbit(found) == np.signbit(exact))
    denormal = (np.abs(exact) < SMALLEST) & (exact != 0)
    right: np.ndarray = same | (np.isnan(found) & np.isnan(exact)) | denormal
    return ~right


def mantissas(count: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).random(count) + 1).astype(np.float32)


def test_random_quotients(divide: Loop) -> None:
    assert not wrong(divide, mantissas(1 << 20, 0), mantissas(1 << 20, 1)).any()


@pytest.mark.parametrize("step", [4099, pytest.param(1, marks=pytest.mark.slow)])
def test_quotients_next_to_the_middle_of_two_floats(divide: Loop, step: int) -> None:
    cases = 0
    for start in range(1 << 23, 1 << 24, 1 << 20):
        for a, c in middles(np.arange(start, start + (1 << 20), step, dtype=np.int64)):
            assert not wrong(divide, a, c).any()
            cases += len(a)
    assert cases > 5 * (1 << 23) // step


def middles(divisors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All a/c = (m + k / c) 2^-p with m an odd number of 25 bits and 0 < |k| <= FARTHEST; a, c of 24 bits."""
    for bits in (24, 25):
        for k in (k for k in range(-FARTHEST, FARTHEST + 1) if k):
            for twos in (n for n in range(4) if k % (1 << n) == 0):
                c = divisors[divisors & ((1 << (twos + 1)) - 1) == 1 << twos]
                rest = bits - twos
                first = (-(k >> twos) * inverse(c >> twos)) & ((1 << rest) - 1)
                for n in range(2 << twos):
                    yield dividends(first + (n << rest), c, k, bits)


def inverse(odd: np.ndarray) -> np.ndarray:
    """Modulo 2^32 or more, by Newton's iteration."""
    x = odd
    for _ in range(5):
        x = x * (2 - odd * x) & ((1 << 32) - 1)
    return x


def dividends(m: np.ndarray, c: np.ndarray, k: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(a, c) with a 2^bits = m c + k, where a is a number of 24 bits and m an odd one of 25."""
    a, rest = np.divmod(m * c + k, 1 << bits)
    ok = (m >= 1 << 24) & (m < 1 << 25) & (m & 1 == 1) & (rest == 0) & (a >= 1 << 23) & (a < 1 << 24)
    ok &= (a >= c) if bits == 24 else (a < c)
    a, c = ((x[ok] * 2.0**-23).astype(np.float32) for x in (a, c))
    return a, c


def test_the_ends_of_the_range(divide: Loop) -> None:
    ends = [0.0, np.inf, np.nan, 1.0, 3.0, 7e-30, 1e30, 3e38, 3.4028235e38, 2.0**-126, 1.5 * 2.0**-126]
    powers = [2.0**n for n in (-100, 99, 100, 101, 125, 126, 127)]
    values = np.array([s * x for x in (*ends, *powers) for s in (1, -1)], np.float32)
    a, c = (x.ravel() for x in np.meshgrid(values, values))
    bad = wrong(divide, a, c)
    assert not bad.any(), list(zip(a[bad], c[bad], strict=True))
    for up in (-100, 0, 127):
        for down in (-126, -100, 0, 99, 100, 101, 126, 127):
            a, c = (np.ldexp(mantissas(1 << 12, seed), n) for seed, n in ((2, up), (3, down)))
            assert not wrong(divide, a, c).any()


def test_a_product_with_the_reciprocal_alone_is_caught() -> None:
    """A seeded defect: the quotient without its correction."""
    broken = compile_loop("{0} * (float32(1.0) / {1})", ("f32", "f32"), "f32")
    divisors = np.arange(1 << 23, 1 << 24, 4099, dtype=np.int64)
    assert any(wrong(broken, a, c).any() for a, c in middles(divisors))


def text_of(f: Callable[..., Array], *shapes: tuple[int, ...]) -> str:
    arguments = (jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)  # type: ignore[no-untyped-call]
    return source_of(kernel_from(f, *arguments))


@pytest.mark.parametrize(
    ("f", "shapes", "multiplies"),
    [
        (jax.nn.softmax, [(64, 300)], True),
        (lambda x: jnp.tanh(x) / 3.0, [(64, 300)], True),
        (lambda x: jnp.tanh(x) / 4.0, [(64, 300)], False),
        (lambda x, y: jnp.tanh(x) / y, [(64, 300), (64, 300)], False),
        (lambda x: jnp.tanh(1.0 / x), [(64, 300)], False),
    ],
    ids=["row", "number", "power of two", "element", "dividend"],
)
def test_where_divisions_become_products(
    f: Callable[..., Array], shapes: list[tuple[int, ...]], multiplies: bool
) -> None:
    assert ("divide_invariant(" in text_of(f, *shapes)) == multiplies
