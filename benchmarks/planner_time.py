"""Each planner's time on synthetic training programs of 1k, 10k and 100k ops, and the fitted exponent.

A layer is a normalisation, a contraction, bias, tanh and residual; the backward half walks the layers
again in reverse and reads what the forward half kept, so that edges are as long as in a real program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.types import DType, TensorType
from jstitch.options import CompileOptions
from jstitch.passes import pipeline
from jstitch.passes.base.context import Context
from jstitch.passes.base.profile import CPU
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.planners import AUTO, PLANNERS
from jstitch.runtime.collector import collector_paused

OPS = (1_000, 10_000, 100_000)
ROWS, WIDTH = 64, 128
MATRIX = TensorType((ROWS, WIDTH), DType.F32)
VECTOR = TensorType((WIDTH,), DType.F32)
COLUMN = TensorType((ROWS,), DType.F32)
SCALAR = TensorType((), DType.F32)
DOT: dict[str, Any] = {
    "lhs_batching_dimensions": (),
    "rhs_batching_dimensions": (),
    "lhs_contracting_dimensions": (1,),
    "rhs_contracting_dimensions": (0,),
}


def plan(graph: Graph, planner: str = AUTO) -> int:
    """Everything between the imported graph and the plan; returns the number of patterns."""
    context = Context(CompileOptions(planner=planner), CPU)
    with collector_paused():  # as when a program is lowered
        return len(plan_frame(pipeline.run(graph, context), context).patterns)


def report(counts: Sequence[int] = OPS, planners: Sequence[str] = tuple(PLANNERS)) -> dict[str, Any]:
    """Measure, print, and return seconds per graph size and the exponent, of each planner."""
    return {planner: _report(counts, planner) for planner in planners}


def _report(counts: Sequence[int], planner: str) -> dict[str, Any]:
    seconds = {}
    table = Table(title=f"planner '{planner}'")
    for name in ("ops", "patterns", "seconds", "us per op"):
        table.add_column(name, justify="right")
    for count in counts:
        graph = training_graph(count)
        start = time.perf_counter()
        patterns = plan(graph, planner)
        spent = seconds[len(graph.ops)] = time.perf_counter() - start
        table.add_row(
            f"{len(graph.ops):,}", f"{patterns:,}", f"{spent:.2f}", f"{spent / len(graph.ops) * 1e6:.0f}"
        )
    console = Console()
    console.print(table)
    console.print(f"fitted exponent: seconds ~ ops^{exponent(seconds):.2f}")
    return {"seconds": seconds, "exponent": exponent(seconds)}


def exponent(seconds: Mapping[int, float]) -> float:
    """The slope of log(seconds) over log(ops), by least squares."""
    slope, _ = np.polyfit([math.log(n) for n in seconds], [math.log(s) for s in seconds.values()], 1)
    return float(slope)


def training_graph(ops: int) -> Graph:
    """A forward and a backward half of about `ops` operations, over (64, 128) float32."""
    probe = _Builder()
    probe.layers(1)
    per_layer = len(probe.ops) - 2
    builder = _Builder()
    builder.layers(max(1, (ops - 2) // per_layer))
    return builder.graph()


class _Builder:
    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.ops: list[Op] = []
        self.outputs: list[Value] = []
        self.zero = self.constant(0.0)
        self.count = self.constant(float(WIDTH))

    def graph(self) -> Graph:
        return Graph(tuple(self.inputs), tuple(self.ops), tuple(self.outputs))

    def layers(self, number: int) -> None:
        x = self.input(MATRIX)
        kept = []
        for _ in range(number):
            x, saved = self.forward(x)
            kept.append(saved)
        upstream = x
        for saved in reversed(kept):
            upstream = self.backward(upstream, *saved)
        self.outputs.append(upstream)

    def forward(self, x: Value) -> tuple[Value, tuple[Value, Value, Value]]:
        centred = self.op("subtract", x, self.mean(x))
        scale = self.op("rsqrt", self.mean(self.op("multiply", centred, centred)))
        normed = self.op("multiply", centred, scale)
        weight = self.input(TensorType((WIDTH, WIDTH), DType.F32))
        product = self.op("dot_general", normed, weight, attrs=DOT)
        bias = self.spread(self.input(VECTOR), (1,))
        active = self.op("tanh", self.op("add", product, bias))
        return self.op("add", x, active), (active, normed, weight)

    def backward(self, upstream: Value, active: Value, normed: Value, weight: Value) -> Value:
        slope = self.op("subtract", upstream, self.op("multiply", active, active))
        local = self.op("multiply", upstream, slope)
        self.outputs.append(self.reduce(local, 0, VECTOR))
        pulled = self.op("dot_general", local, weight, attrs=DOT)
        along = self.op("multiply", normed, self.mean(self.op("multiply", pulled, normed)))
        return self.op("add", upstream, self.op("subtract", pulled, along))

    def mean(self, x: Value) -> Value:
        total = self.spread(self.reduce(x, 1, COLUMN), (0,))
        return self.op("divide", total, self.spread(self.count, ()))

    def reduce(self, x: Value, dimension: int, result: TensorType) -> Value:
        a, b, out = Value(SCALAR), Value(SCALAR), Value(SCALAR)
        combine = Graph((a, b), (Op("stablehlo.add", (a, b), (out,)),), (out,))
        attrs = {"dimensions": (dimension,), "monoid": "stablehlo.add"}
        return self.op("reduce", x, self.zero, type=result, attrs=attrs, regions=(combine,))

    def spread(self, x: Value, dims: tuple[int, ...]) -> Value:
        return self.op("broadcast_in_dim", x, attrs={"broadcast_dimensions": dims})

    def constant(self, value: float) -> Value:
        return self.op("constant", type=SCALAR, attrs={"value": np.array(value, np.float32)})

    def input(self, type: TensorType) -> Value:
        self.inputs.append(Value(type))
        return self.inputs[-1]

    def op(
        self,
        name: str,
        *operands: Value,
        type: TensorType = MATRIX,
        attrs: Mapping[str, Any] | None = None,
        regions: tuple[Graph, ...] = (),
    ) -> Value:
        result = Value(type)
        self.ops.append(Op(f"stablehlo.{name}", operands, (result,), attrs or {}, regions))
        return result
