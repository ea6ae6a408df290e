"""The oracle: run a Graph in NumPy, one op at a time, with the op table's references.

    softmax, = interpret(graph, [x])

Narrow floats are computed in float32 and rounded after every op; sums are accumulated in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jstitch.ir.graph import Graph, Value
from jstitch.ir.ops.evaluate import evaluate


def interpret(
    graph: Graph, args: Sequence[np.ndarray], env: Mapping[Value, np.ndarray] | None = None
) -> tuple[np.ndarray, ...]:
    """The graph's outputs, with the shapes and dtypes that the graph declares.

    args: one array per graph input, of its shape and dtype. env: arrays of captured values.
    Raises ValueError for arguments that do not fit, NotImplementedError for an op without a reference.
    """
    arrays = [np.asarray(a) for a in args]
    _check_all("argument", graph.inputs, arrays)
    results = evaluate(graph, arrays, env)
    _check_all("result", graph.outputs, results)
    return results


def _check_all(what: str, values: Sequence[Value], arrays: Sequence[np.ndarray]) -> None:
    if len(values) != len(arrays):
        raise ValueError(f"Expected {len(values)} {what}s, found {len(arrays)}.")
    for number, (value, array) in enumerate(zip(values, arrays, strict=True)):
        type_ = value.tensor
        if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
            raise ValueError(
                f"Expected {what} {number} of type {type_}, found an array of shape {array.shape} and"
                f" dtype {array.dtype}."
            )
