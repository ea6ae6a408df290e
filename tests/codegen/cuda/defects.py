"""Really emitted kernels for tests that break them: softmax of rows, sums of columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from tests.codegen.cuda.stitched import PROFILES, Stitched, stitch


class _Program:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.x = Value(TensorType(shape, DType.F32))
        self.ops: list[Op] = []

    def add(self, op: Op) -> Value:
        self.ops.append(op)
        return op.results[0]

    def reduced(self, name: str, x: Value, dims: tuple[int, ...]) -> Value:
        init = self.add(build.splat(TensorType((), DType.F32), -math.inf if name == "maximum" else 0.0))
        return self.add(build.reduce(f"stablehlo.{name}", x, init, dims))

    def binary(self, name: str, x: Value, y: Value) -> Value:
        return self.add(build.elementwise(f"stablehlo.{name}", x, y))

    def graph(self, *outputs: Value) -> Graph:
        return Graph((self.x,), tuple(self.ops), outputs)


def softmax(rows: int, columns: int) -> Graph:
    p = _Program((rows, columns))
    largest = p.reduced("maximum", p.x, (1,))
    shifted = p.binary("subtract", p.x, p.add(build.broadcast(largest, p.x.tensor.shape, (0,))))
    powers = p.add(build.elementwise("stablehlo.exponential", shifted))
    total = p.add(build.broadcast(p.reduced("add", powers, (1,)), p.x.tensor.shape, (0,)))
    return p.graph(p.binary("divide", powers, total))


def column_sums(rows: int, columns: int) -> Graph:
    p = _Program((rows, columns))
    row = p.add(build.broadcast(p.reduced("add", p.x, (1,)), p.x.tensor.shape, (0,)))
    return p.graph(p.reduced("add", p.binary("multiply", p.x, row), (0,)))


def broken(graph: Graph, change: Callable[[str], str]) -> Stitched:
    """The graph's one kernel for the H200 with its text changed."""
    made = stitch(graph, PROFILES["h200"])
    ((kernel, emitted),) = made.kernels.items()
    text = change(emitted.source.text)
    if text == emitted.source.text:
        raise ValueError(f"the defect changes nothing in this text:\n{text}")
    made.recorder.emitted[kernel] = replace(emitted, source=replace(emitted.source, text=text))
    return made


def without_barrier(number: int) -> Callable[[str], str]:
    """Drops one of the barriers, counted in the order of the text (from the end if negative)."""

    def change(text: str) -> str:
        found = list(re.finditer(r"\bbarrier\w*\([^#\n]*\)", text))[number]
        return f"{text[: found.start()]}pass{text[found.end() :]}"

    return change


def replacing(old: str, new: str) -> Callable[[str], str]:
    return lambda text: re.sub(old, new, text)
