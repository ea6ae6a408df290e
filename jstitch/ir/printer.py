"""Graphs as text, in MLIR's manner, with names that depend only on the graph's structure.

graph(%arg0: tensor<4x8xf32>) -> (%2) {
  %0 = stablehlo.constant {value = dense<0.0>} : tensor<f32>
  %1 = stablehlo.reduce %arg0, %0 {dimensions = (1,), monoid = stablehlo.add} : tensor<4xf32>  // f.py:3
  ...
}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jstitch.ir.graph import Graph, Op, Value

_SHOWN_ELEMENTS = 8


def print_graph(graph: Graph, notes: Mapping[Op, Sequence[str]] | None = None) -> str:
    """The graph as text. `notes` are written under their op, each behind `^`."""
    printer = _Printer(notes or {})
    for value in graph.captures:
        printer.name(value, "outer")
    return "\n".join(printer.graph("graph", graph, ""))


def print_op(op: Op, names: Mapping[Value, str] | None = None) -> str:
    """One op on one line (regions are only counted)."""
    printer = _Printer({})
    printer.names.update(names or {})
    return printer.line(op)


def print_value(value: np.ndarray) -> str:
    """A constant, abbreviated: splats as one element, big ones as their type."""
    if value.size and (value.size == 1 or not any(value.strides)):
        return f"dense<{value[(0,) * value.ndim]}>"
    if value.size <= _SHOWN_ELEMENTS:
        return f"dense<{value.tolist()}>"
    return f"dense<...{value.size} elements>"


class _Printer:
    """Gives out names in order of appearance."""

    def __init__(self, notes: Mapping[Op, Sequence[str]]) -> None:
        self.names: dict[Value, str] = {}
        self.counts: dict[str, int] = {}
        self.notes = notes

    def name(self, value: Value, prefix: str = "") -> str:
        if value not in self.names:
            number = self.counts.get(prefix, 0)
            self.counts[prefix] = number + 1
            self.names[value] = f"%{prefix}{number}"
        return self.names[value]

    def operand(self, value: Value) -> str:
        """An undefined value (a broken graph) still prints."""
        return self.names.get(value) or self.name(value, "undefined")

    def graph(self, head: str, graph: Graph, indent: str) -> Iterator[str]:
        inputs = ", ".join(f"{self.name(v, 'arg')}: {v.type}" for v in graph.inputs)
        body = [line for op in graph.ops for line in self.op(op, indent + "  ")]
        outputs = ", ".join(self.operand(v) for v in graph.outputs)
        yield f"{indent}{head}({inputs}) -> ({outputs}) {{"
        yield from body
        yield f"{indent}}}"

    def op(self, op: Op, indent: str) -> Iterator[str]:
        yield indent + self.line(op)
        for note in self.notes.get(op, ()):
            yield f"{indent}^ {note}"
        for number, region in enumerate(op.regions):
            yield from self.graph(f"region {number}", region, indent + "  ")

    def line(self, op: Op) -> str:
        operands = ", ".join(map(self.operand, op.operands))
        results = ", ".join(self.name(v) for v in op.results)
        types = ", ".join(str(v.type) for v in op.results)
        attrs = ", ".join(f"{k} = {_attribute(v)}" for k, v in op.attrs.items())
        left = f"{results} = " if results else ""
        parts = [left + op.name, operands, f"{{{attrs}}}" if attrs else "", f": {types}" if types else ""]
        return " ".join(filter(None, parts)) + (f"  // {op.loc}" if op.loc else "")


def _attribute(value: Any) -> str:
    return print_value(value) if isinstance(value, np.ndarray) else str(value)
