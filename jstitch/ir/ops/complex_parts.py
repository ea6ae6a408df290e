"""Ops on complex numbers as ops on their real and imaginary parts.

write_parts(multiply, [(a, b), (c, d)])   ->   (a * c - b * d, a * d + b * c)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, complex_arithmetic
from jstitch.ir.ops.part_writer import (
    COMPLEX,
    IMAGINARY_PART,
    REAL_PART,
    Number,
    Pair,
    PartWriter,
    part_type,
)
from jstitch.ir.ops.reduce import monoid_of
from jstitch.ir.types import DType, TensorType

Rule = Callable[[PartWriter, Op, Sequence[Number]], Sequence[Number]]


def has_rule(op: Op) -> bool:
    """Whether the op can be written on parts."""
    if op.name in _ON_REGIONS:
        return len(op.results) == 1 and op.attrs.get("monoid") in _ON_REGIONS[op.name]
    if op.name == _SCATTER:
        return _writes_one_window(op)
    if op.name == "stablehlo.compare":
        return op.attrs["comparison_direction"] in ("EQ", "NE")
    return op.name in _RULES or only_moves(op)


def only_moves(op: Op) -> bool:
    """Whether each part of its result is what it makes of that part of its operands, by no arithmetic."""
    return op.name in _MOVES


def write_parts(writer: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    """What the op's results are, of operands of which complex ones are pairs. It must have a rule."""
    if only_moves(op):
        return _on_each(writer, op, operands)
    return _RULES[op.name](writer, op, operands)


# -- part by part ---------------------------------------------------------------------------------------


def _on_each(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    re, im = (_on_one(w, op, part) for part in _sides(operands))
    return [(re, im)]


def _sides(operands: Sequence[Number]) -> Iterator[tuple[Value, ...]]:
    for part in (0, 1):
        yield tuple(x[part] if isinstance(x, tuple) else x for x in operands)


def _on_one(w: PartWriter, op: Op, operands: tuple[Value, ...]) -> Value:
    result = Value(part_type(op.result))
    return w.write(replace(op, operands=operands, results=(result,), source=None))


def _conjugate(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    (re, im) = _pair(operands[0])
    return [(re, w.do("negate", im))]


def _join(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    re, im = operands
    assert isinstance(re, Value)
    assert isinstance(im, Value)
    return [(re, im)]


def _take(part: int) -> Rule:
    return lambda w, op, operands: [_pair(operands[0])[part]]


def _by_pairs(function: Callable[..., Number]) -> Rule:
    return lambda w, op, operands: [function(w, *map(_pair, operands))]


def _pair(x: Number) -> Pair:
    assert isinstance(x, tuple)
    return x


def _constant(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    array = op.attrs["value"]
    re, im = (w.write(build.constant(part)) for part in (array.real, array.imag))
    return [(re, im)]


def _convert(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    """To a number that is not complex, the real part goes; to a bool, whether one is not zero."""
    x, target = operands[0], op.result.tensor.dtype
    if isinstance(x, Value):
        re = w.write(build.convert(x, target.part))
        return [(re, w.filled(re, 0.0))]
    if target.is_complex:
        re, im = (w.write(build.convert(part, target.part)) for part in x)
        return [(re, im)]
    if target is DType.BOOL:
        tests = [w.is_("NE", part, w.filled(part, 0.0)) for part in x]
        return [w.do("or", *tests)]
    return [w.write(build.convert(x[0], target))]


def _compare(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    a, b = map(_pair, operands)
    how = op.attrs["comparison_direction"]
    tests = [w.is_(how, x, y) for x, y in zip(a, b, strict=True)]
    return [w.do("and" if how == "EQ" else "or", *tests)]


# -- scatters and reductions ---------------------------------------------------------------------------


def _writes_one_window(op: Op) -> bool:
    """Whether a scatter overwrites one window, or adds to it: of many XLA had better write pairs."""
    if len(op.operands) != 3:
        return False
    one = op.operands[1].tensor.size == len(op.attrs["scattered_dims_to_operand_dims"])
    return one and (_overwrites(op.regions[0]) or monoid_of(op.regions[0]) == _ADD)


def _overwrites(region: Graph) -> bool:
    return not region.ops and region.outputs == (region.inputs[1],)


def _scatter(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    return _by(w, op, operands, _second(op) if _overwrites(op.regions[0]) else _added(op))


def _sum(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    """A sum of complex numbers is two sums."""
    return _by(w, op, operands, _added(op))


def _by(w: PartWriter, op: Op, operands: Sequence[Number], region: Graph) -> Sequence[Number]:
    """The op on each part, with a region of real numbers."""
    re, im = (
        w.write(replace(op, operands=side, results=(Value(part_type(op.result)),), regions=(region,)))
        for side in _sides(operands)
    )
    return [(re, im)]


def _second(op: Op) -> Graph:
    """What takes the new one of two numbers."""
    kind = TensorType((), op.result.tensor.dtype.part)
    inputs = (Value(kind), Value(kind))
    return Graph(inputs, (), inputs[1:])


def _added(op: Op) -> Graph:
    kind = TensorType((), op.result.tensor.dtype.part)
    inputs = (Value(kind), Value(kind))
    body = build.add(*inputs)
    return Graph(inputs, (body,), body.results)


def _reduce(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    """A product of complex numbers is one reduction of both parts."""
    if op.attrs["monoid"] == _ADD:
        return _sum(w, op, operands)
    flat = tuple(v for x in operands for v in _pair(x))
    results = (Value(part_type(op.result)), Value(part_type(op.result)))
    attrs = {name: value for name, value in op.attrs.items() if name != "monoid"}
    new = replace(op, operands=flat, results=results, attrs=attrs, regions=(_multiplied(op),), source=None)
    w.ops.append(new)
    return [results]


def _multiplied(op: Op) -> Graph:
    kind = TensorType((), op.result.tensor.dtype.part)
    inputs = tuple(Value(kind) for _ in range(4))
    inner = PartWriter()
    product = complex_arithmetic.multiply(inner, (inputs[0], inputs[1]), (inputs[2], inputs[3]))
    return Graph(inputs, tuple(inner.ops), product)


_ADD, _SCATTER = "stablehlo.add", "stablehlo.scatter"
_ON_REGIONS: Mapping[str, tuple[str, ...]] = {
    "stablehlo.reduce": (_ADD, "stablehlo.multiply"),
    "stablehlo.reduce_window": (_ADD,),
}
_MOVES = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("broadcast_in_dim", "reshape", "transpose", "slice", "pad", "concatenate", "reverse"),
        *("dynamic_slice", "dynamic_update_slice", "gather", "select"),
    )
)
_RULES: Mapping[str, Rule] = {
    "stablehlo.add": _on_each,
    "stablehlo.subtract": _on_each,
    "stablehlo.negate": _on_each,
    "stablehlo.multiply": _by_pairs(complex_arithmetic.multiply),
    "stablehlo.divide": _by_pairs(complex_arithmetic.divide),
    "stablehlo.abs": _by_pairs(complex_arithmetic.absolute),
    "stablehlo.sign": _by_pairs(complex_arithmetic.sign),
    "stablehlo.exponential": _by_pairs(complex_arithmetic.exponential),
    "stablehlo.log": _by_pairs(complex_arithmetic.log),
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.constant": _constant,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _sum,
    _SCATTER: _scatter,
    "chlo.conj": _conjugate,
    "chlo.square": _by_pairs(complex_arithmetic.square),
    REAL_PART: _take(0),
    IMAGINARY_PART: _take(1),
    COMPLEX: _join,
}
