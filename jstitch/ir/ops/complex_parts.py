"""Ops on complex numbers as ops on their real and imaginary parts.

    write_parts(multiply, [(a, b), (c, d)])   ->   (a * c - b * d, a * d + b * c)

Infinities, zeros and NaN go where XLA's own forms (MLIR's complex dialect) and C's Annex G take them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.reduce import monoid_of
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


# -- arithmetic -----------------------------------------------------------------------------------------


def _multiply(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    return [_product(w, *map(_pair, operands))]


def _product(w: PartWriter, x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    re = w.do("subtract", w.do("multiply", a, c), w.do("multiply", b, d))
    return re, w.do("add", w.do("multiply", a, d), w.do("multiply", b, c))


def _square(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    a, b = _pair(operands[0])
    half = w.do("multiply", a, b)
    re = w.do("multiply", w.do("subtract", a, b), w.do("add", a, b))
    return [(re, w.do("add", half, half))]


def _divide(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    """Smith's algorithm, then what it has no number for."""
    x, y = map(_pair, operands)
    if y[1] in w.zeros:
        return [_by_real(w, x, y)]
    quotient = _smith(w, x, y)
    zero, finite = w.filled(y[0], 0.0), [_are_finite(w, z) for z in (x, y)]
    infinite = [_are_infinite(w, z) for z in (x, y)]
    # infinite by finite, finite by infinite: as if infinities were 1 and all else 0
    found = quotient
    for test, factor, (a, b) in (
        (w.do("and", infinite[0], finite[1]), math.inf, (_units(w, x), y)),
        (w.do("and", finite[0], infinite[1]), 0.0, (x, _units(w, y))),
    ):
        whole = _product(w, a, (b[0], w.do("negate", b[1])))
        scale = w.filled(zero, factor)
        found = _either(
            w, test, (w.do("multiply", scale, whole[0]), w.do("multiply", scale, whole[1])), found
        )
    # by zero: infinities of the sign that its real part has
    inverse = w.do("divide", w.filled(zero, 1.0), y[0])
    none = w.do("and", *(w.is_("EQ", part, zero) for part in y))
    found = _either(w, none, (w.do("multiply", inverse, x[0]), w.do("multiply", inverse, x[1])), found)
    return [_either(w, _are_nan(w, quotient), found, quotient)]


def _by_real(w: PartWriter, x: Pair, y: Pair) -> Pair:
    """By a number whose imaginary part is 0, with which the other part is multiplied: it may be infinite."""
    re = w.do("add", x[0], w.do("multiply", x[1], y[1]))
    im = w.do("subtract", x[1], w.do("multiply", x[0], y[1]))
    none = w.is_("EQ", y[0], w.filled(y[0], 0.0))
    lost = w.do("and", _are_nan(w, (re, im)), _are_infinite(w, x))
    above = _either(w, w.do("or", none, lost), x, (re, im))
    return w.do("divide", above[0], y[0]), w.do("divide", above[1], y[0])


def _are_nan(w: PartWriter, x: Pair) -> Value:
    return w.do("and", *(w.is_("NE", part, part) for part in x))


def _smith(w: PartWriter, x: Pair, y: Pair) -> Pair:
    """The larger part of the divisor is divided by."""
    (a, b), (c, d) = x, y
    first = w.is_("GE", w.do("abs", c), w.do("abs", d))
    large, small = w.choose(first, c, d), w.choose(first, d, c)
    ratio = w.do("divide", small, large)
    by = w.do("add", large, w.do("multiply", small, ratio))
    ahead, behind = w.choose(first, a, b), w.choose(first, b, a)
    re = w.do("divide", w.do("add", ahead, w.do("multiply", behind, ratio)), by)
    im = w.do("divide", w.do("subtract", behind, w.do("multiply", ahead, ratio)), by)
    return re, w.choose(first, im, w.do("negate", im))


def _either(w: PartWriter, test: Value, x: Pair, y: Pair) -> Pair:
    return w.choose(test, x[0], y[0]), w.choose(test, x[1], y[1])


def _are_finite(w: PartWriter, x: Pair) -> Value:
    return w.do("and", *(w.write(build.elementwise(_FINITE, part, dtype=DType.BOOL)) for part in x))


def _are_infinite(w: PartWriter, x: Pair) -> Value:
    """Whether one of them is."""
    return w.do("or", *(_is_infinite(w, part) for part in x))


def _is_infinite(w: PartWriter, x: Value) -> Value:
    return w.is_("EQ", w.do("abs", x), w.filled(x, math.inf))


def _units(w: PartWriter, x: Pair) -> Pair:
    """1 where a part is infinite, 0 where not, with its sign."""
    re, im = (_unit(w, part) for part in x)
    return re, im


def _unit(w: PartWriter, x: Value) -> Value:
    zero = w.filled(x, 0.0)
    none = w.choose(w.is_("LT", x, zero), w.filled(x, -0.0), zero)
    return w.choose(_is_infinite(w, x), w.do("sign", x), none)


def _size(w: PartWriter, x: Pair) -> tuple[Value, Value]:
    """The larger of both parts, and the smaller one divided by it (of equal ones 1)."""
    a, b = (w.do("abs", part) for part in x)
    large, small = w.do("maximum", a, b), w.do("minimum", a, b)
    equal = w.is_("EQ", large, small)
    return large, w.choose(equal, w.filled(a, 1.0), w.do("divide", small, large))


def _absolute(w: PartWriter, x: Pair) -> Value:
    large, ratio = _size(w, x)
    square = w.do("multiply", ratio, ratio)
    return w.do("multiply", large, w.do("sqrt", w.do("add", w.filled(large, 1.0), square)))


def _abs(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    return [_absolute(w, _pair(operands[0]))]


def _sign(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    x = _pair(operands[0])
    size = _absolute(w, x)
    zero = w.filled(size, 0.0)
    none = w.is_("EQ", size, zero)
    scaled = w.do("divide", x[0], size), w.do("divide", x[1], size)
    return [_either(w, none, (zero, zero), scaled)]


def _exponential(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    a, b = _pair(operands[0])
    size = w.do("exponential", a)
    real = w.is_("EQ", b, w.filled(b, 0.0))
    im = w.choose(real, b, w.do("multiply", size, w.do("sine", b)))
    return [(w.do("multiply", size, w.do("cosine", b)), im)]


def _log(w: PartWriter, op: Op, operands: Sequence[Number]) -> Sequence[Number]:
    a, b = _pair(operands[0])
    large, ratio = _size(w, (a, b))
    more = w.do("log_plus_one", w.do("multiply", ratio, ratio))
    size = w.do("add", w.do("log", large), w.do("multiply", w.filled(large, 0.5), more))
    return [(size, w.do("atan2", b, a))]


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
    product = _product(inner, (inputs[0], inputs[1]), (inputs[2], inputs[3]))
    return Graph(inputs, tuple(inner.ops), product)


_ADD, _FINITE, _SCATTER = "stablehlo.add", "stablehlo.is_finite", "stablehlo.scatter"
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
    "stablehlo.multiply": _multiply,
    "stablehlo.divide": _divide,
    "stablehlo.abs": _abs,
    "stablehlo.sign": _sign,
    "stablehlo.exponential": _exponential,
    "stablehlo.log": _log,
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.constant": _constant,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _sum,
    _SCATTER: _scatter,
    "chlo.conj": _conjugate,
    "chlo.square": _square,
    REAL_PART: _take(0),
    IMAGINARY_PART: _take(1),
    COMPLEX: _join,
}
