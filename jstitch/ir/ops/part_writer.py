"""Ops on real and imaginary parts, as they are written one after another."""

from __future__ import annotations

from dataclasses import dataclass, field

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType

Pair = tuple[Value, Value]
"""A real and an imaginary part."""
Number = Value | Pair
REAL_PART, IMAGINARY_PART, COMPLEX = "stablehlo.real", "stablehlo.imag", "stablehlo.complex"


def is_complex(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype.is_complex


def part_type(v: Value) -> TensorType:
    """Of either part of a complex value."""
    return TensorType(v.shape, v.tensor.dtype.part)


def joined(re: Value, im: Value, dtype: DType) -> Op:
    """The complex value of two parts."""
    return build.elementwise(COMPLEX, re, im, dtype=dtype)


def parts_of(v: Value) -> tuple[Op, Op]:
    """Ops that take a complex value apart."""
    dtype = v.tensor.dtype.part
    return build.elementwise(REAL_PART, v, dtype=dtype), build.elementwise(IMAGINARY_PART, v, dtype=dtype)


@dataclass
class PartWriter:
    """Ops on parts, in order. zeros: values of which every element is known to be 0."""

    ops: list[Op] = field(default_factory=list)
    zeros: set[Value] = field(default_factory=set)

    def write(self, op: Op) -> Value:
        self.ops.append(op)
        if _is_zero(op) or (build.is_broadcast(op) and op.operands[0] in self.zeros):
            self.zeros.add(op.result)
        return op.result

    def do(self, name: str, *operands: Value) -> Value:
        """An elementwise op of StableHLO."""
        return self.write(build.elementwise(f"stablehlo.{name}", *operands))

    def filled(self, like: Value, number: float) -> Value:
        return self.write(build.splat(like.tensor, number))

    def is_(self, direction: str, a: Value, b: Value) -> Value:
        return self.write(build.compare(direction, a, b))

    def choose(self, test: Value, a: Value, b: Value) -> Value:
        return self.write(build.select(test, a, b))


def _is_zero(op: Op) -> bool:
    value = build.splat_value(op)
    return value is not None and value.dtype.kind == "f" and bool(value == 0)
