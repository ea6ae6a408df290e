"""Run a graph with XLA: exported to StableHLO, put behind `jax.export`'s public face, and called."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax import export

from jstitch.frontend.exporter import export_module
from jstitch.frontend.mlir import ir, module_bytes
from jstitch.ir.graph import Graph
from jstitch.ir.types import TensorType


def run_with_xla(graph: Graph, args: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs that XLA computes for the graph (64-bit types included)."""
    return [np.asarray(x) for x in call_module(export_module(graph), graph, args)]


class _Bytecode(export.Exported):
    """An exported function whose module is plain MLIR bytecode (the portable format lacks CHLO)."""

    def mlir_module(self, serialized: bool = True) -> Any:
        return ir.Module.parse(self.mlir_module_serialized)


def call_module(module: ir.Module, graph: Graph, args: list[np.ndarray]) -> list[jax.Array]:
    """Call `main` of a module that has the graph's types."""
    with jax.enable_x64(True):
        return list(as_function(module, graph)(*args))


def as_function(module: ir.Module, graph: Graph) -> Any:
    """`main` of a module that has the graph's types, as a function that JAX can trace (with x64 enabled)."""
    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(v.shape, v.tensor.dtype.numpy) for v in graph.inputs]
        outputs = [v.tensor for v in graph.outputs]
        stand_in = export.export(jax.jit(lambda *xs: [_zeros(t) for t in outputs], keep_unused=True))(*shapes)
        fields = {f.name: getattr(stand_in, f.name) for f in dataclasses.fields(stand_in)}
        code = module_bytes(module)
        return _Bytecode(**{**fields, "mlir_module_serialized": code}).call


def _zeros(type_: TensorType) -> jax.Array:
    return jax.numpy.zeros(type_.shape, type_.dtype.numpy)
