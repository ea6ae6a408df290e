"""Random graphs for planner tests: big, never run, with the shapes that fusion decisions depend on.

Rows and matrices of one size, elementwise ops, row and column reductions with their broadcasts, transposes,
and opaque ops in between.
"""

from __future__ import annotations

from random import Random

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType

MATRIX = TensorType((64, 64), DType.F32)


def random_dag(random: Random, ops: int, reach: int = 12, opaque: float = 0.05) -> Graph:
    """A graph of about `ops` ops on 64 x 64 matrices. reach: how far back operands are taken from."""
    values = [Value(MATRIX) for _ in range(3)]
    inputs, made = tuple(values), list[Op]()
    zero = build.splat(TensorType((), DType.F32), 0.0)
    made.append(zero)
    while len(made) < ops:
        x, y = (values[-random.randint(1, min(reach, len(values)))] for _ in range(2))
        new = _step(random, x, y, zero.result, opaque)
        made += new
        values += new[-1].results
    outputs = dict.fromkeys([values[-1], *random.sample(values[3:], min(3, len(values) - 3))])
    return Graph(inputs, tuple(made), tuple(outputs))


def _step(random: Random, x: Value, y: Value, zero: Value, opaque: float) -> list[Op]:
    kind = random.random()
    if kind < opaque:
        return [Op("stablehlo.custom_call", (x, y), (Value(MATRIX),))]
    if kind < 0.2:
        dim = random.randrange(2)
        total = build.reduce("stablehlo.add", x, zero, (dim,))
        return [total, build.broadcast(total.result, MATRIX.shape, (1 - dim,))]
    if kind < 0.25:
        return [build.transpose(x, (1, 0))]
    if kind < 0.4:
        return [build.elementwise("stablehlo.exponential", x)]
    return [build.add(x, y)]
