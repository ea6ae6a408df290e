"""Evaluate a graph with the table's references. `jstitch.ir.interpret` is the checked public face.

The reference of an op with regions takes its operands, then the values that its regions capture (the
order of `Op.uses`), and evaluates the regions itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.definition import OPS, Arrays

Environment = Mapping[Value, np.ndarray]


def evaluate(graph: Graph, args: Sequence[np.ndarray], outer: Environment | None = None) -> Arrays:
    """The graph's outputs for `args`; `outer` holds the values it captures.

    Raises NotImplementedError, naming the op and its source line, for an op without a reference.
    """
    env = {**(outer or {}), **dict(zip(graph.inputs, args, strict=True))}
    last_use = _last_uses(graph)
    for op in graph.ops:
        env.update(zip(op.results, run_op(op, [env[v] for v in op.uses]), strict=True))
        for value in last_use.get(op, ()):
            env.pop(value, None)
    return tuple(env[v] for v in graph.outputs)


def _last_uses(graph: Graph) -> dict[Op, list[Value]]:
    """Values that are dead after each op, so that the interpreter's memory stays small."""
    outputs = set(graph.outputs)
    last = {v: op for op in graph.ops for v in (*op.results, *op.uses)}
    dead: dict[Op, list[Value]] = {}
    for value, op in last.items():
        if value not in outputs:
            dead.setdefault(op, []).append(value)
    return dead


def run_op(op: Op, arrays: Sequence[np.ndarray]) -> Arrays:
    """The results of one op; `arrays` follow `op.uses`."""
    definition = OPS.get(op.name)
    where = f" at {op.loc}" if op.loc else ""
    if definition is None or definition.reference is None:
        raise NotImplementedError(
            f"Expected an op with a NumPy reference, found '{op.name}'{where}. Give it one in jstitch/ir/ops,"
            " or run the program through XLA."
        )
    try:
        return definition.reference(op, *arrays)
    except TypeError as error:  # NumPy lacks some functions of complex numbers
        if not any(map(np.iscomplexobj, arrays)):
            raise
        found = ", ".join(str(a.dtype) for a in arrays)
        raise NotImplementedError(
            f"Expected dtypes that the NumPy reference of '{op.name}' knows, found {found}{where}. Run the"
            f" program through XLA. NumPy says: {error}"
        ) from error


def captured(op: Op, arrays: Sequence[np.ndarray]) -> dict[Value, np.ndarray]:
    """The environment of an op's regions: everything the op uses, by value."""
    return dict(zip(op.uses, arrays, strict=True))
