"""Simplifications that keep every bit: what canonicalization may do to each op.

    simplify(op, producer)  ->  None            as simple as it gets
                                Value           use this value for the op's only result
                                Op              put this op in its place

`producer(value)` is the op that makes a value, or None (inputs, captures).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.build import splat_value
from jstitch.ir.ops.numerics import largest, smallest
from jstitch.ir.types import DType, TensorType

Producer = Callable[[Value], Op | None]
Simpler = Value | Op | None
Rule = Callable[[Op, Producer], Simpler]


def simplify(op: Op, producer: Producer) -> Simpler:
    """One step. Never changes the type of the result."""
    rule = _RULES.get(op.name)
    if rule is None or not all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
        return None
    return rule(op, producer)


def _from(op: Op, producer: Producer, name: str) -> Op | None:
    """The producer of the only operand, when it is this kind of op."""
    made = producer(op.operands[0])
    return made if made is not None and made.name == name else None


def _moved(op: Op, producer: Producer) -> Simpler:
    """For ops that only move elements: nothing to do, or a splat stays a splat."""
    value = splat_value(producer(op.operands[0]))
    return None if value is None else build.splat(op.result.tensor, value)


def _reshape(op: Op, producer: Producer) -> Simpler:
    (x,), shape = op.operands, op.result.shape
    if x.shape == shape:
        return x
    inner = _from(op, producer, "stablehlo.reshape")
    if inner is not None:
        return build.reshape(inner.operands[0], shape)
    return _reshaped_iota(op, producer) or _moved(op, producer)


def _wide(shape: tuple[int, ...]) -> list[int]:
    return [d for d, n in enumerate(shape) if n != 1]


def _reshaped_iota(op: Op, producer: Producer) -> Op | None:
    """Adding or dropping dimensions of size 1 keeps an iota an iota."""
    made, shape = _from(op, producer, "stablehlo.iota"), op.result.shape
    if made is None:
        return None
    old, new = _wide(made.result.shape), _wide(shape)
    if [made.result.shape[d] for d in old] != [shape[d] for d in new] or made.attrs[
        "iota_dimension"
    ] not in old:
        return None
    return build.iota(op.result.tensor, new[old.index(made.attrs["iota_dimension"])])


def _transpose(op: Op, producer: Producer) -> Simpler:
    (x,), permutation = op.operands, op.attrs["permutation"]
    if tuple(permutation) == tuple(range(len(permutation))):
        return x
    if sorted(moved := [d for d in permutation if x.shape[d] != 1]) == moved:
        return build.reshape(x, op.result.shape)
    inner = _from(op, producer, "stablehlo.transpose")
    if inner is not None:
        return build.transpose(inner.operands[0], [inner.attrs["permutation"][d] for d in permutation])
    return _moved(op, producer)


def _broadcast(op: Op, producer: Producer) -> Simpler:
    (x,), shape, dims = op.operands, op.result.shape, tuple(op.attrs["broadcast_dimensions"])
    if x.shape == shape and dims == tuple(range(len(shape))):
        return x
    if x.tensor.size == op.result.tensor.size and list(dims) == sorted(dims):
        return build.reshape(x, shape)
    inner = _from(op, producer, "stablehlo.broadcast_in_dim")
    if inner is not None:
        composed = [dims[d] for d in inner.attrs["broadcast_dimensions"]]
        return build.broadcast(inner.operands[0], shape, composed)
    return _broadcast_iota(op, producer) or _broadcast_reshape(op, producer) or _moved(op, producer)


def _broadcast_iota(op: Op, producer: Producer) -> Op | None:
    made = _from(op, producer, "stablehlo.iota")
    if made is None:
        return None
    dim = made.attrs["iota_dimension"]
    target = op.attrs["broadcast_dimensions"][dim]
    same = made.result.shape[dim] == op.result.shape[target]
    return build.iota(op.result.tensor, target) if same else None


def _broadcast_reshape(op: Op, producer: Producer) -> Op | None:
    """A reshape that only added dimensions of size 1 (`keepdims`) is part of the broadcast."""
    inner = _from(op, producer, "stablehlo.reshape")
    if inner is None:
        return None
    x, middle = inner.operands[0], inner.result.shape
    wide = _wide(middle)
    if x.shape != tuple(middle[d] for d in wide):
        return None
    return build.broadcast(x, op.result.shape, [op.attrs["broadcast_dimensions"][d] for d in wide])


def _slice(op: Op, producer: Producer) -> Simpler:
    (x,) = op.operands
    return x if x.shape == op.result.shape else _moved(op, producer)


def _reverse(op: Op, producer: Producer) -> Simpler:
    (x,) = op.operands
    return x if all(x.shape[d] <= 1 for d in op.attrs["dimensions"]) else _moved(op, producer)


def _pad(op: Op, producer: Producer) -> Simpler:
    x, fill = op.operands
    edges = (op.attrs["edge_padding_low"], op.attrs["edge_padding_high"], op.attrs["interior_padding"])
    if x.shape == op.result.shape and not any(any(e) for e in edges):
        return x
    value, filler = splat_value(producer(x)), splat_value(producer(fill))
    if value is None or filler is None or value.tobytes() != filler.tobytes():
        return None
    return build.splat(op.result.tensor, value)


def _concatenate(op: Op, producer: Producer) -> Simpler:
    parts = [v for v in op.operands if v.tensor.size]
    if len(parts) == 1 and parts[0].shape == op.result.shape:
        return parts[0]
    if parts and len(parts) < len(op.operands):
        return build.concatenate(parts, op.attrs["dimension"])
    return None


def _dynamic_slice(op: Op, producer: Producer) -> Simpler:
    """Constant starts make it a slice; a start is clamped so that the slice fits."""
    x, *starts = op.operands
    if x.shape == op.result.shape:
        return x
    values = [splat_value(producer(s)) for s in starts]
    sizes = op.result.shape
    if any(v is None and n != k for v, n, k in zip(values, x.shape, sizes, strict=True)):
        return None
    first = [min(max(int(v or 0), 0), n - k) for v, n, k in zip(values, x.shape, sizes, strict=True)]
    limits = [a + k for a, k in zip(first, sizes, strict=True)]
    return build.slice_(x, first, limits, [1] * len(first))


def _convert(op: Op, producer: Producer) -> Simpler:
    (x,), target = op.operands, op.result.tensor.dtype
    if x.tensor.dtype is target:
        return x
    inner = _from(op, producer, "stablehlo.convert")
    if inner is not None and _skips(inner.operands[0].tensor.dtype, x.tensor.dtype, target):
        return build.convert(inner.operands[0], target)
    return None


def _skips(source: DType, middle: DType, target: DType) -> bool:
    """source -> middle -> target is source -> target: nothing is lost on the way, nor saturated after it."""
    if not lossless(source, middle):
        return False
    saturates = middle.is_float and not source.is_float and target.is_integer
    return not saturates or lossless(source, target)


def lossless(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`."""
    if source is target:
        return True
    if source is DType.BOOL:
        return target in _DIGITS or target.is_float
    if source.is_float and target.is_float:
        return target in _WIDER.get(source, ())
    if source not in _DIGITS or target is DType.BOOL:
        return False
    if target.is_float:
        return _DIGITS[source] <= _MANTISSA.get(target, 0)
    if target not in _DIGITS or (source.is_signed and not target.is_signed):
        return False
    return _DIGITS[source] <= _DIGITS[target]


_DIGITS = {
    **{DType.S8: 7, DType.S16: 15, DType.S32: 31, DType.S64: 63},
    **{DType.U8: 8, DType.U16: 16, DType.U32: 32, DType.U64: 64},
}
_MANTISSA = {DType.BF16: 8, DType.F16: 11, DType.F32: 24, DType.F64: 53}
_WIDER = {
    DType.F8E4M3FN: (DType.BF16, DType.F16, DType.F32, DType.F64),
    DType.F8E5M2: (DType.BF16, DType.F16, DType.F32, DType.F64),
    DType.F16: (DType.F32, DType.F64),
    DType.BF16: (DType.F32, DType.F64),
    DType.F32: (DType.F64,),
}


def _select(op: Op, producer: Producer) -> Simpler:
    predicate, on_true, on_false = op.operands
    value = splat_value(producer(predicate))
    if value is not None:
        return on_true if bool(value) else on_false
    return on_true if on_true is on_false else None


def _compare(op: Op, producer: Producer) -> Simpler:
    """Decide what the range of an iota decides, as in the wrap of a negative index."""
    a, b = op.operands
    made, bound = producer(a), splat_value(producer(b))
    if made is None or made.name != "stablehlo.iota" or bound is None or not a.tensor.dtype.is_integer:
        return None
    high = a.shape[made.attrs["iota_dimension"]] - 1
    if high > largest(a.tensor.dtype):
        return None
    always, never = _ORDER[op.attrs["comparison_direction"]](0, high, int(bound))
    return build.splat(op.result.tensor, always) if always or never else None


_ORDER: dict[str, Callable[[int, int, int], tuple[bool, bool]]] = {
    "EQ": lambda lo, hi, k: (lo == hi == k, not lo <= k <= hi),
    "NE": lambda lo, hi, k: (not lo <= k <= hi, lo == hi == k),
    "LT": lambda lo, hi, k: (hi < k, lo >= k),
    "LE": lambda lo, hi, k: (hi <= k, lo > k),
    "GT": lambda lo, hi, k: (lo > k, hi <= k),
    "GE": lambda lo, hi, k: (lo >= k, hi < k),
}


def _neutral(left: bool, *neutral: tuple[str, float]) -> Rule:
    """x op neutral is x. Kinds: f (the sign of zero counts), i, b; left: neutral op x is x too."""
    values = dict(neutral)

    def rule(op: Op, producer: Producer) -> Simpler:
        a, b = op.operands
        if _is_neutral(values, b, producer):
            return a
        return b if left and _is_neutral(values, a, producer) else None

    return rule


def _is_neutral(values: dict[str, float], x: Value, producer: Producer) -> bool:
    value, dtype = splat_value(producer(x)), x.tensor.dtype
    kind = "f" if dtype.is_float else "i" if dtype.is_integer else "b" if dtype is DType.BOOL else ""
    if value is None or kind not in values:
        return False
    wanted = np.asarray(values[kind]).astype(dtype.numpy)
    return wanted.tobytes() == value.tobytes()


def _same(op: Op, producer: Producer) -> Simpler:
    """x op x is x."""
    a, b = op.operands
    return a if a is b else None


def _first(*rules: Rule) -> Rule:
    def rule(op: Op, producer: Producer) -> Simpler:
        for one in rules:
            found = one(op, producer)
            if found is not None:
                return found
        return None

    return rule


def _reduce(op: Op, producer: Producer) -> Simpler:
    """Over dimensions of size 1 it only combines each element with a neutral initial value.

    A float sum from +0 turns -0 into +0; XLA makes it a reshape all the same, and so do we.
    """
    monoid, x = op.attrs.get("monoid"), op.operands[0]
    if len(op.operands) != 2 or monoid is None or x.tensor.size != op.result.tensor.size or not x.tensor.size:
        return None
    value, dtype = splat_value(producer(op.operands[1])), x.tensor.dtype
    neutral = _NEUTRAL.get(monoid)
    if value is None or neutral is None or dtype.is_complex:
        return None
    if value != np.asarray(neutral(dtype)).astype(dtype.numpy):
        return None
    return x if x.shape == op.result.shape else build.reshape(x, op.result.shape)


def _dot(op: Op, _: Producer) -> Simpler:
    """The special case as the general one."""
    dimensions = {
        "lhs_batching_dimensions": (),
        "rhs_batching_dimensions": (),
        "lhs_contracting_dimensions": (op.operands[0].tensor.rank - 1,),
        "rhs_contracting_dimensions": (0,),
    }
    return build.op("stablehlo.dot_general", op.operands, op.result.tensor, {**op.attrs, **dimensions})


def _extreme(rule: Callable[[DType], float | int | bool]) -> Rule:
    """max(x, smallest) and min(x, largest) are x (NaN too)."""

    def neutral(op: Op, producer: Producer) -> Simpler:
        dtype = op.result.tensor.dtype
        if not (dtype.is_float or dtype.is_integer or dtype is DType.BOOL):
            return None
        wanted = np.asarray(rule(dtype)).astype(dtype.numpy)
        for x, other in (op.operands, op.operands[::-1]):
            value = splat_value(producer(other))
            if value is not None and value.tobytes() == wanted.tobytes():
                return x
        return None

    return neutral


def _twice(op: Op, producer: Producer) -> Simpler:
    """The op undoes itself."""
    inner = _from(op, producer, op.name)
    return None if inner is None else inner.operands[0]


_NEUTRAL: dict[str, Callable[[DType], float | int | bool]] = {
    "stablehlo.add": lambda dtype: 0,
    "stablehlo.multiply": lambda dtype: 1,
    "stablehlo.maximum": smallest,
    "stablehlo.minimum": largest,
    "stablehlo.and": lambda dtype: True if dtype is DType.BOOL else -1 if dtype.is_signed else largest(dtype),
    "stablehlo.or": lambda dtype: 0,
    "stablehlo.xor": lambda dtype: 0,
}
_RULES: dict[str, Rule] = {
    "stablehlo.reshape": _reshape,
    "stablehlo.transpose": _transpose,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.slice": _slice,
    "stablehlo.reverse": _reverse,
    "stablehlo.pad": _pad,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.convert": _convert,
    "stablehlo.select": _select,
    "stablehlo.compare": _compare,
    "stablehlo.not": _twice,
    "stablehlo.negate": _twice,
    "stablehlo.add": _neutral(True, ("f", -0.0), ("i", 0), ("b", False)),
    "stablehlo.subtract": _neutral(False, ("f", 0.0), ("i", 0)),
    "stablehlo.multiply": _neutral(True, ("f", 1.0), ("i", 1), ("b", True)),
    "stablehlo.divide": _neutral(False, ("f", 1.0), ("i", 1)),
    "stablehlo.and": _first(_same, _neutral(True, ("i", -1), ("b", True))),
    "stablehlo.or": _first(_same, _neutral(True, ("i", 0), ("b", False))),
    "stablehlo.xor": _neutral(True, ("i", 0), ("b", False)),
    "stablehlo.maximum": _first(_same, _extreme(smallest)),
    "stablehlo.minimum": _first(_same, _extreme(largest)),
    "stablehlo.reduce": _reduce,
    "stablehlo.dot": _dot,
}
