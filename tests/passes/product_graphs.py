"""Graphs of matrix products, before and after a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.base.context import Context
from jstitch.passes.graph.merge_products import PRODUCT
from tests.contexts import H200

Args = tuple[Any, ...]


def arrays(*shapes: tuple[int, ...]) -> Args:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def graph_of(f: Callable[..., Any], args: Args) -> Graph:
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


def products(graph: Graph) -> list[Op]:
    return [op for op in graph.walk() if op.name == PRODUCT]


def changed(change: Callable[[Graph, Context], Graph], f: Callable[..., Any], *args: Any) -> Graph:
    """The graph after the pass for an H200, which means the same."""
    before = graph_of(f, args)
    after = check(change(before, H200), change.__name__)
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    return after
