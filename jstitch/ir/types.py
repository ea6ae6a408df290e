"""Types of values: an element type and a static shape.

TensorType ::= 'tensor<' dim 'x' ... dtype '>'
OpaqueType ::= any other MLIR type (tokens, tuples); carried, never looked into
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike


class DType(enum.Enum):
    """Element types, named as StableHLO prints them."""

    BOOL = "i1"
    S4 = "i4"
    S8 = "i8"
    S16 = "i16"
    S32 = "i32"
    S64 = "i64"
    U4 = "ui4"
    U8 = "ui8"
    U16 = "ui16"
    U32 = "ui32"
    U64 = "ui64"
    F8E4M3FN = "f8E4M3FN"
    F8E5M2 = "f8E5M2"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    C64 = "complex<f32>"
    C128 = "complex<f64>"

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        return np.dtype(_NUMPY[self])

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_signed(self) -> bool:
        return self in _SIGNED

    @property
    def is_unsigned(self) -> bool:
        return self in _UNSIGNED

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; BOOL is neither."""
        return self.is_signed or self.is_unsigned

    @property
    def is_complex(self) -> bool:
        return self in (DType.C64, DType.C128)

    @property
    def part(self) -> DType:
        """The type of a complex number's real part; of other numbers their own."""
        return {DType.C64: DType.F32, DType.C128: DType.F64}.get(self, self)

    @property
    def compute(self) -> DType:
        """The type kernels compute in: f32 for the narrow floats, else the type itself."""
        return DType.F32 if self.is_float and self.itemsize < 4 else self

    @staticmethod
    def of(dtype: DTypeLike) -> DType:
        """The DType of a NumPy dtype. Raises KeyError for one StableHLO has no name for."""
        return _BY_NUMPY[np.dtype(dtype)]


_SIGNED = frozenset({DType.S4, DType.S8, DType.S16, DType.S32, DType.S64})
_UNSIGNED = frozenset({DType.U4, DType.U8, DType.U16, DType.U32, DType.U64})
_FLOATS = frozenset({DType.F8E4M3FN, DType.F8E5M2, DType.F16, DType.BF16, DType.F32, DType.F64})
HALVES = (DType.F16, DType.BF16)
"""Floats of 16 bits."""
_NUMPY: dict[DType, DTypeLike] = {
    DType.BOOL: np.bool_,
    DType.S4: ml_dtypes.int4,
    DType.S8: np.int8,
    DType.S16: np.int16,
    DType.S32: np.int32,
    DType.S64: np.int64,
    DType.U4: ml_dtypes.uint4,
    DType.U8: np.uint8,
    DType.U16: np.uint16,
    DType.U32: np.uint32,
    DType.U64: np.uint64,
    DType.F8E4M3FN: ml_dtypes.float8_e4m3fn,
    DType.F8E5M2: ml_dtypes.float8_e5m2,
    DType.F16: np.float16,
    DType.BF16: ml_dtypes.bfloat16,
    DType.F32: np.float32,
    DType.F64: np.float64,
    DType.C64: np.complex64,
    DType.C128: np.complex128,
}
_BY_NUMPY = {np.dtype(v): k for k, v in _NUMPY.items()}


@dataclass(frozen=True)
class TensorType:
    """A static shape and an element type."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def rank(self) -> int:
        return len(self.shape)

    @cached_property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def in_memory(self) -> TensorType:
        """The same bytes as numbers that are not complex: real and imaginary parts, in turn."""
        return TensorType((*self.shape, 2), self.dtype.part) if self.dtype.is_complex else self

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{d}x' for d in self.shape)}{self.dtype.value}>"


@dataclass(frozen=True)
class OpaqueType:
    """A type the project never looks into, by its MLIR spelling."""

    text: str

    def __str__(self) -> str:
        return self.text


Type = TensorType | OpaqueType
