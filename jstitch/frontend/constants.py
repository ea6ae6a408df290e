"""Element types, tensor types and constants between MLIR and NumPy.

A splat becomes a broadcast array whose strides are all 0, however large its type is: nothing is ever
filled in, in either direction.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from jstitch.frontend.mlir import ir
from jstitch.ir.types import DType, OpaqueType, TensorType, Type

MOST_BYTES = 1 << 60
_DTYPES = {d.value: d for d in DType}
_TOKEN = re.compile(r"0x[0-9A-Fa-f]+|true|false|-?[0-9][0-9.eE+-]*")
_DIRECT = frozenset(
    {
        DType.BOOL,
        DType.S8,
        DType.S16,
        DType.S32,
        DType.S64,
        DType.U8,
        DType.U16,
        DType.U32,
        DType.U64,
        DType.F16,
        DType.F32,
        DType.F64,
    }
)


def import_type(type_: ir.Type) -> Type:
    """The Graph type of an MLIR type; anything but a static ranked tensor of a known dtype is opaque.

    So is a tensor that no memory holds, and whose bytes NumPy and kernels cannot count.
    """
    if isinstance(type_, ir.RankedTensorType) and type_.has_static_shape and type_.encoding is None:
        dtype = _DTYPES.get(str(type_.element_type))
        if dtype is not None and math.prod(type_.shape) * dtype.itemsize <= MOST_BYTES:
            return TensorType(tuple(type_.shape), dtype)
    return OpaqueType(str(type_))


def export_type(type_: Type) -> ir.Type:
    """The MLIR type of a Graph type, in the current context."""
    if isinstance(type_, OpaqueType):
        return ir.Type.parse(type_.text)
    return ir.RankedTensorType.get(type_.shape, ir.Type.parse(type_.dtype.value))


def decode_dense(source: ir.Operation) -> np.ndarray:
    """The value of a `stablehlo.constant`."""
    type_ = import_type(source.results[0].type)
    assert isinstance(type_, TensorType)
    if type_.dtype in _DIRECT:
        return _from_buffer(source.attributes["value"], type_)
    return _from_text(source.operation.get_asm(), type_)


def _from_buffer(attribute: Any, type_: TensorType) -> np.ndarray:
    array = np.asarray(attribute)
    if attribute.is_splat and type_.size:
        return np.broadcast_to(array.reshape(-1)[:1].copy().reshape(()), type_.shape)
    array = array.copy()  # the attribute's memory belongs to its context
    array.flags.writeable = False
    return array


def _from_text(text: str, type_: TensorType) -> np.ndarray:
    """For the element types that jaxlib's buffers lack: complex, bf16, f8 and 4-bit integers."""
    start = text.index("dense<") + len("dense<")  # after the name; the op may print in its generic form
    body = text[start : text.index(">", start)]
    if body.startswith('"0x'):
        values = np.frombuffer(bytes.fromhex(body[3:-1]), type_.dtype.numpy)
    else:
        values = _parse_elements(_TOKEN.findall(body), type_.dtype)
    if values.size == 1:
        return np.broadcast_to(values.reshape(()), type_.shape)
    return values.reshape(type_.shape)


def _parse_elements(tokens: list[str], dtype: DType) -> np.ndarray:
    if dtype.is_complex:
        part = DType.F32 if dtype is DType.C64 else DType.F64
        return np.ascontiguousarray(_parse_elements(tokens, part)).view(dtype.numpy)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    values = np.zeros(len(tokens), dtype.numpy)
    bits = values.view(unsigned)
    for i, token in enumerate(tokens):
        if token.startswith("0x"):
            bits[i] = int(token, 16)
        else:
            values[i] = int(token) if dtype.is_integer else float(token)
    return values


def encode_dense(array: np.ndarray) -> ir.Attribute:
    """A dense (or splat) elements attribute in the current context."""
    type_ = TensorType(array.shape, DType.of(array.dtype))
    element = ir.Type.parse(type_.dtype.value)
    if type_.size > 1 and not any(array.strides):
        return _encode_splat(array[(0,) * array.ndim], type_)
    return ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=element, shape=type_.shape)


def _encode_splat(value: Any, type_: TensorType) -> ir.Attribute:
    """jaxlib reads a buffer of one element as a splat of any shape, except for 1-bit integers."""
    one = np.asarray(value, type_.dtype.numpy).reshape(1)
    shape = "".join(f"{d}x" for d in type_.shape) + type_.dtype.value
    if type_.dtype is DType.BOOL:
        return ir.Attribute.parse(f"dense<{str(bool(one[0])).lower()}> : tensor<{shape}>")
    return ir.DenseElementsAttr.get(one, type=ir.Type.parse(type_.dtype.value), shape=type_.shape)
