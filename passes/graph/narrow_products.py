"""Products of numbers that were of 16 bits, before they were widened, are products of those, summed in f32.

    %a = convert %q;  %b = convert %k               %z = dot_general %q, %k      of bf16, its result f32
    %s = divide %a, 8                        ->     %s = divide %z, 8
    %z = dot_general %s, %b   of f32

A product of two numbers of 16 bits is exact in f32, so that nothing is lost: tensor cores multiply them at
the speed of 16 bits, and kernels can hold such products. Models that want a softmax in f32 often are so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import HALVES, DType, TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.base.tensor_cores import TENSOR_CORES

CONVERT, MULTIPLY, DIVIDE = "stablehlo.convert", "stablehlo.multiply", "stablehlo.divide"
LARGEST = 1 << 20  # of a factor, and its inverse: sums that are not scaled yet stay far from infinity


def narrow_products(graph: Graph, context: Context) -> Graph:
    """The graph with such products, for GPUs with tensor cores."""
    device = context.machine.device
    has_cores = device is not None and device.capability >= TENSOR_CORES
    return rewrite(graph, _rule, of=(PRODUCT,)) if has_cores else graph


@dataclass(frozen=True)
class _Widened:
    """value: of 16 bits. moves: ops that give it another shape, in order. scales: ops and their numbers."""

    value: Value
    moves: tuple[Op, ...]
    scales: tuple[tuple[str, float], ...]


def _rule(op: Op, producer: Producer) -> Replacement | None:
    types = {v.tensor.dtype for v in (*op.operands, *op.results)}
    if types != {DType.F32} or op.attrs.get("algorithm"):
        return None
    sides = [_widened(v, producer) for v in op.operands]
    if any(side is None for side in sides):
        return None
    known = [side for side in sides if side is not None]
    if len({side.value.tensor.dtype for side in known}) > 1:
        return None
    ops: list[Op] = []
    narrow = tuple(_moved(side, ops) for side in known)
    scales = [scale for side in known for scale in side.scales]
    made = Value(op.result.tensor) if scales else op.result
    ops.append(replace(op, operands=narrow, results=(made,)))
    for n, scale in enumerate(scales):
        last = n == len(scales) - 1
        ops += _scaled(ops[-1].result, *scale, op.result if last else None)
    return Replacement(op.results, tuple(ops))


def _widened(v: Value, producer: Producer) -> _Widened | None:
    """What it was before it was widened; None where it was not."""
    moves: list[Op] = []
    scales: list[tuple[str, float]] = []
    while (op := producer(v)) is not None:
        wide = 0
        if op.name == CONVERT:
            narrow = op.operands[0].tensor.dtype in HALVES
            return _Widened(op.operands[0], tuple(moves[::-1]), tuple(scales)) if narrow else None
        if lookup(op.name).op_class is OpClass.SHAPE and len(op.operands) == 1:
            moves.append(op)
        elif (scale := _scale(op, producer)) is not None:
            wide, number = scale
            scales.append((op.name, number))
        else:
            return None
        v = op.operands[wide]
    return None


def _scale(op: Op, producer: Producer) -> tuple[int, float] | None:
    """Which operand is scaled, and the number that all its elements are multiplied with, or divided by."""
    for wide in {MULTIPLY: (0, 1), DIVIDE: (0,)}.get(op.name, ()):
        found = build.splat_value(_maker(op.operands[1 - wide], producer))
        number = math.nan if found is None else float(found.item())
        if 1 / LARGEST <= abs(number) <= LARGEST:
            return wide, number
    return None


def _maker(v: Value, producer: Producer) -> Op | None:
    """The constant that it repeats."""
    op = producer(v)
    while op is not None and build.is_broadcast(op):
        op = producer(op.operands[0])
    return op


def _moved(side: _Widened, ops: list[Op]) -> Value:
    """The narrow value in the shape of the wide one."""
    v = side.value
    for move in side.moves:
        kind = TensorType(move.result.shape, v.tensor.dtype)
        ops.append(replace(move, operands=(v,), results=(Value(kind),)))
        v = ops[-1].result
    return v


def _scaled(v: Value, name: str, number: float, result: Value | None) -> Sequence[Op]:
    splat = build.splat(v.tensor, np.float32(number))
    made = build.elementwise(name, v, splat.result)
    return splat, made if result is None else replace(made, results=(result,))
