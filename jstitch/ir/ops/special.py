"""NumPy and SciPy functions behind elementwise references that NumPy has no single ufunc for.

Arguments are arrays of one dtype; results keep it unless said otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def sign(x: Array) -> Array:
    """-1, 0 or 1; keeps signed zeros and NaN; z / |z| for complex."""
    if x.dtype.kind == "c":
        size = np.abs(x)
        return np.where(size == 0, x.dtype.type(0), x / np.where(size == 0, 1, size))
    return np.where((x == 0) | np.isnan(x), x, np.sign(x)) if x.dtype.kind == "f" else np.sign(x)


def round_half_away(x: Array) -> Array:
    whole = np.trunc(x)
    away = np.abs(x - whole) >= x.dtype.type(0.5)
    return np.where(np.isfinite(x), np.copysign(np.abs(whole) + away, x).astype(x.dtype), x)


def _unsigned(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def popcnt(x: Array) -> Array:
    return np.bitwise_count(_unsigned(x))


def count_leading_zeros(x: Array) -> Array:
    bits, value = x.dtype.itemsize * 8, _unsigned(x).astype(np.uint64)
    count = np.full(x.shape, bits, np.int64)
    for k in range(bits):
        count = np.where((value >> np.uint64(k)) & np.uint64(1), bits - 1 - k, count)
    return count


def _inside(amount: Array) -> tuple[Array, Array]:
    """(shift amount made safe, is it smaller than the width); a negative amount is a huge one."""
    bits = amount.dtype.itemsize * 8
    inside = _unsigned(amount) < bits
    return np.where(inside, amount, amount.dtype.type(0)), inside


def shift_left(x: Array, amount: Array) -> Array:
    by, inside = _inside(amount)
    return np.where(inside, x << by, x.dtype.type(0))


def shift_right_logical(x: Array, amount: Array) -> Array:
    by, inside = _inside(amount)
    shifted = (_unsigned(np.asarray(x)) >> _unsigned(by)).view(x.dtype)
    return np.where(inside, shifted, x.dtype.type(0))


def shift_right_arithmetic(x: Array, amount: Array) -> Array:
    by, inside = _inside(amount)
    signed = np.asarray(x).view(np.dtype(f"i{x.dtype.itemsize}"))
    wide = np.where(inside, by, by.dtype.type(x.dtype.itemsize * 8 - 1)).view(signed.dtype)
    return np.asarray(signed >> wide).view(x.dtype)


def multiply_high(x: Array, y: Array) -> Array:
    """Upper half of the double-width product."""
    product = x.astype(object) * y.astype(object)
    return np.asarray(product >> (x.dtype.itemsize * 8)).astype(x.dtype)


def make_complex(re: Array, im: Array) -> Array:
    both = np.stack(np.broadcast_arrays(re, im), axis=-1)
    return np.ascontiguousarray(both).view(np.dtype(f"c{2 * re.dtype.itemsize}"))[..., 0]


def sqrt(x: Array) -> Array:
    return np.asarray(np.sqrt(x))


def rsqrt(x: Array) -> Array:
    return np.asarray(x.dtype.type(1) / np.sqrt(x))


def logistic(x: Array) -> Array:
    one = x.dtype.type(1)
    return np.asarray(one / (one + np.exp(-x)))


def power(x: Array, y: Array) -> Array:
    """x ** y; a negative integer exponent gives 1 for x = 1, +-1 for x = -1, else 0."""
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    whole = np.power(x, np.where(y < 0, y.dtype.type(0), y))
    odd = np.where(y % 2 == 0, x.dtype.type(1), x)
    return np.where(y < 0, np.where(np.abs(x) == 1, odd, x.dtype.type(0)), whole)


def _scipy() -> Any:
    # Imported here because it takes a third of `import jstitch`, and only the interpreter needs it.
    import scipy.special

    return scipy.special


def erf(x: Array) -> Array:
    return np.asarray(_scipy().erf(x))


def erfc(x: Array) -> Array:
    return np.asarray(_scipy().erfc(x))


def erf_inv(x: Array) -> Array:
    return np.asarray(_scipy().erfinv(x))


def lgamma(x: Array) -> Array:
    return np.asarray(np.where(np.isinf(x), x.dtype.type(np.inf), _scipy().gammaln(x)))


def digamma(x: Array) -> Array:
    """NaN at the poles (0 and the negative integers), as XLA has it."""
    pole = (x <= 0) & (np.floor(x) == x)
    return np.asarray(np.where(pole, x.dtype.type(np.nan), _scipy().digamma(x)))


def bessel_i1e(x: Array) -> Array:
    return np.asarray(_scipy().i1e(x))


def zeta(x: Array, q: Array) -> Array:
    return np.asarray(_scipy().zeta(x, q))


def polygamma(order: Array, x: Array) -> Array:
    """NaN unless the order is a non-negative whole number."""
    order = np.where((order >= 0) & (np.floor(order) == order), order, np.nan)
    factorial = np.where(order % 2 == 0, -1.0, 1.0) * _scipy().gamma(order + 1.0)
    return np.where(order == 0, digamma(x), factorial * _scipy().zeta(order + 1.0, x))
