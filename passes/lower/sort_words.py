"""Keys of a sort as words of 32 bits without sign, which are in the same order: the lowest word first.

f32, ascending    ->  its bits as an integer, of which all but the sign are turned where it is negative, +2^31
f64, descending   ->  the same of 64 bits, turned, in two words
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.sort_order import Key
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.write_sorts import inlined
from jstitch.passes.lower.build_nest import CannotLowerError

HALF, LOW = 32, (1 << 32) - 1
BITS = {DType.F32: DType.S32, DType.F64: DType.S64}
SIGNED = {DType.S32: DType.U32, DType.S64: DType.U64}


def sort_words(op: Op, keys: Sequence[Key]) -> tuple[list[Value], list[Op]]:
    """Of whole tensors, one word for each item, from the last key's lowest to the first one's highest.

    And the ops that make them of the sort's operands. Raises CannotLowerError for types that no kernel holds.
    """
    writer = _Writer(op)
    words = [word for key in reversed(keys) for word in writer.words(key)]
    return words, writer.ops


@dataclass
class _Writer:
    op: Op
    ops: list[Op] = field(default_factory=list)

    def words(self, key: Key) -> list[Value]:
        """The low one before the high one, if there are two."""
        number = self.unsigned(self.key(key.of))
        if key.descends:
            number = self.emit(build.elementwise("stablehlo.not", number))
        if number.tensor.dtype is DType.U32:
            return [number]
        low = self.emit(build.elementwise("stablehlo.and", number, self.all(number, LOW)))
        high = self.emit(build.elementwise("stablehlo.shift_right_logical", number, self.all(number, HALF)))
        return [self.emit(build.convert(half, DType.U32)) for half in (low, high)]

    def key(self, of: Value) -> Value:
        """Of all items, as the comparison makes it of its left one."""
        if of in self.op.operands:
            return of
        region = dce(replace(self.op.regions[0], outputs=(of,)))
        ops, (found,) = inlined(region, [v for v in self.op.operands for _ in range(2)])
        self.ops += ops
        return found

    def unsigned(self, v: Value) -> Value:
        """A number without sign that is in the same order, of 32 or 64 bits."""
        dtype = v.tensor.dtype
        if dtype.is_float:
            v = v if dtype.compute is dtype else self.emit(build.convert(v, dtype.compute))
            v = self.by_bits(v)
        elif dtype.itemsize < DType.U32.itemsize:
            v = self.emit(build.convert(v, DType.S32))
        dtype = v.tensor.dtype
        if dtype not in SIGNED and dtype not in SIGNED.values():
            raise CannotLowerError(f"no kernel sorts by keys of type '{dtype.value}'")
        return v if dtype not in SIGNED else self.flipped(self.cast(v, SIGNED[dtype]))

    def by_bits(self, v: Value) -> Value:
        """A float as an integer in the same order: of negative ones all bits but the sign are turned."""
        number = self.cast(v, BITS[v.tensor.dtype])
        most = self.all(number, (1 << 8 * number.tensor.dtype.itemsize - 1) - 1)
        turned = self.emit(build.elementwise("stablehlo.xor", number, most))
        negative = self.emit(build.compare("LT", number, self.all(number, 0)))
        return self.emit(build.select(negative, turned, number))

    def flipped(self, v: Value) -> Value:
        """What had a sign, with that bit turned: negative ones come first."""
        sign = self.all(v, 1 << 8 * v.tensor.dtype.itemsize - 1)
        return self.emit(build.elementwise("stablehlo.xor", v, sign))

    def cast(self, v: Value, dtype: DType) -> Value:
        return self.emit(build.elementwise("stablehlo.bitcast_convert", v, dtype=dtype))

    def all(self, v: Value, number: int) -> Value:
        """As many of the number as there are of v."""
        return self.emit(build.splat(TensorType(v.shape, v.tensor.dtype), number))

    def emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result
