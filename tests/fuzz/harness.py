"""Run random programs under `jax.jit` and `jstitch.jit` and compare them by the numerics rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

import jstitch
from jstitch.inspection.numerics import difference
from jstitch.inspection.reference import references
from jstitch.ir.graph import Graph
from jstitch.ir.printer import print_graph
from tests.fuzz.programs import as_jax, batched, make_program
from tests.passes.random_graphs import Limits, arguments

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Failure:
    """A program whose stitched result is wrong for every set of arguments tried."""

    seed: int
    graph: Graph
    message: str

    def __str__(self) -> str:
        return f"program {self.seed}: {self.message}\n{print_graph(self.graph)}"


def run_batch(seeds: Sequence[int], limits: Limits = Limits()) -> list[Failure]:  # noqa: B008
    """Programs of these seeds, together in one function; those that differ are tried alone."""
    graphs = [make_program(seed, limits) for seed in seeds]
    args = [arguments(g, seed) for g, seed in zip(graphs, seeds, strict=True)]
    with jax.enable_x64(True):
        f, flat = batched(graphs), [a for part in args for a in part]
        found, expected = _run(jstitch.jit(f, options=OPTIONS), flat), _run(jax.jit(f), flat)
    failures, at = [], 0
    for seed, graph, arrays in zip(seeds, graphs, args, strict=True):
        part = slice(at, at + len(graph.outputs))
        at = part.stop
        if _compare(graph, arrays, found[part], expected[part]) is not None:
            message = run_alone(seed, graph)
            failures += [] if message is None else [Failure(seed, graph, message)]
    return failures


def run_alone(seed: int, graph: Graph) -> str | None:
    """What differs, if it does for three sets of arguments.

    One set is not enough: next to a jump (floor, a comparison, a conversion) two right programs may differ.
    """
    message = None
    with jax.enable_x64(True):
        f = as_jax(graph)
        ours, theirs = jstitch.jit(f, options=OPTIONS), jax.jit(f)
        for round_ in range(3):
            args = arguments(graph, seed + 1000 * round_)
            message = _compare(graph, args, _run(ours, args), _run(theirs, args))
            if message is None:
                break
    return message


def _run(f: object, args: Arrays) -> Arrays:
    assert callable(f)
    return [np.asarray(x) for x in f(*args)]


def _compare(graph: Graph, args: Arrays, found: Arrays, expected: Arrays) -> str | None:
    if all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True)):
        return None
    for n, arrays in enumerate(zip(found, expected, references(graph, args), strict=True)):
        ours, theirs, others = arrays
        message = difference(ours, theirs, *others)
        if message is not None:
            return f"output {n}: {message}"
    return None
