"""What the machines' results are held to: `tests.fuzz.compare`'s references, and sums in XLA:CPU's order.

NumPy sums in blocks, more accurately than jax.jit does; a sum in order, as jax.jit makes it, is one more
program "rounded in other places", whose error counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.types import DType
from tests.fuzz.compare import difference, references

Arrays = Sequence[np.ndarray]
_UFUNCS = {"stablehlo.add": np.add, "stablehlo.multiply": np.multiply}


class Expected:
    """References of one graph for one set of arguments, made once for all machines."""

    def __init__(self, graph: Graph, args: Arrays) -> None:
        self.plain = interpret(graph, args)
        self.others = list(zip(*zip(*references(graph, args), strict=True), in_order(graph, args), strict=True))

    def wrong(self, found: Arrays) -> str | None:
        """What is wrong with the outputs of a machine, None when they keep the numerics rule."""
        for n, arrays in enumerate(zip(found, self.plain, self.others, strict=True)):
            ours, plain, (exact, *rest) = arrays
            message = difference(ours, plain, exact, rest[-1], *rest[:-1])
            if message is not None:
                return f"output {n}: {message}"
        return None


def in_order(graph: Graph, args: Arrays) -> Arrays:
    """The graph's outputs with sums and products one element after the other."""
    env = dict(zip(graph.inputs, args, strict=True))
    for op in graph.ops:
        given = [env[v] for v in op.uses]
        ufunc = _UFUNCS.get(op.attrs.get("monoid", "")) if op.name == "stablehlo.reduce" else None
        if ufunc is not None and op.result.tensor.dtype.is_float and op.attrs["dimensions"]:
            found: Arrays = [_accumulate(ufunc, op, *given)]
        else:
            found = interpret(Graph(op.uses, (op,), op.results), given)
        env.update(zip(op.results, found, strict=True))
    return [env[v] for v in graph.outputs]


def _accumulate(ufunc: np.ufunc, op: Op, x: np.ndarray, init: np.ndarray) -> np.ndarray:
    dtype = op.result.tensor.dtype
    dims: tuple[int, ...] = op.attrs["dimensions"]
    wide = np.float64 if dtype is DType.F64 else np.float32
    kept = [n for d, n in enumerate(x.shape) if d not in dims]
    rows = np.moveaxis(x, dims, range(len(dims))).reshape(-1, *kept).astype(wide)
    both = np.concatenate([np.broadcast_to(init.astype(wide), (1, *kept)), rows])
    with np.errstate(all="ignore"):
        return np.asarray(ufunc.accumulate(both, axis=0)[-1]).astype(dtype.numpy)
