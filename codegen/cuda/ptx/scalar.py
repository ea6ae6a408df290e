"""PTX's fundamental types as NumPy dtypes, and immediates as arrays of one element.

immediate("0f3F800000", "f32") -> [1.0]        immediate("-1", "u32") -> [4294967295]
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

UNSIGNED: dict[int, np.dtype[Any]] = {n: np.dtype(f"u{n // 8}") for n in (8, 16, 32, 64)}
SIGNED: dict[int, np.dtype[Any]] = {n: np.dtype(f"i{n // 8}") for n in (8, 16, 32, 64)}

DTYPES: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(bool),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16x2": np.dtype(np.uint32),
    "bf16x2": np.dtype(np.uint32),
    **{f"{letter}{n}": dtype for letter in "bu" for n, dtype in UNSIGNED.items()},
    **{f"s{n}": dtype for n, dtype in SIGNED.items()},
}

_BITS = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})")


def width(name: str) -> int:
    """Bits of a value of the type: 1 for pred."""
    return 1 if name == "pred" else DTYPES[name].itemsize * 8


def is_float(name: str) -> bool:
    """Whether the type is a floating-point scalar."""
    return name in ("f16", "bf16", "f32", "f64")


def immediate(text: str, name: str) -> Array:
    """The literal as one element of the type. Raises ValueError for what is no literal."""
    dtype = DTYPES[name]
    if pattern := _BITS.fullmatch(text):
        short, long = pattern.groups()
        bits = np.array([int(short or long, 16)], np.uint32 if short else np.uint64)
        value: Array = bits.view(np.float32 if short else np.float64)
        return value.astype(dtype) if is_float(name) else value.view(dtype)
    if is_float(name):
        return np.array([float(text)]).astype(dtype)
    number = int(text.rstrip("U"), 0)
    if name == "pred":
        return np.array([number != 0])
    return np.array([number & ((1 << width(name)) - 1)], UNSIGNED[width(name)]).view(dtype)


def extend(value: Array, name: str, bits: int) -> Array:
    """A value of the type as the content of a register of `bits` bits: signed types extend their sign."""
    if value.dtype.itemsize * 8 == bits or name == "pred":
        return value
    if name.startswith("s"):
        return value.view(SIGNED[width(name)]).astype(SIGNED[bits])
    return value.view(UNSIGNED[width(name)]).astype(UNSIGNED[bits])


def truncate(value: Array, name: str, bits: int) -> Array:
    """The low bits of a register of `bits` bits as a value of the type."""
    if width(name) == bits:
        return value.view(DTYPES[name])
    return value.view(UNSIGNED[bits]).astype(UNSIGNED[width(name)]).view(DTYPES[name])
