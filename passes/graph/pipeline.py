"""The pass pipeline as data: a tuple of named passes, and one callback between them.

    run(graph, context, PIPELINE, after=dump)  ==  dump(fold(dump(canonicalize(graph)))) ...

A pass is a function (Graph, Context) -> Graph with a name; it leaves a valid graph behind and keeps inputs
and outputs in number, order and type. The callback prints, times, verifies, dumps, or stops (by raising
`StopPipeline`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jstitch.ir.graph import Graph
from jstitch.ir.printer import print_graph
from jstitch.ir.verify import check
from jstitch.passes.base.context import Context, on_any_target
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.chain_scatters import chain_scatters
from jstitch.passes.graph.clone_broadcasts import clone_broadcasts
from jstitch.passes.graph.clone_indices import clone_indices
from jstitch.passes.graph.cse import cse
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.fold_constants import fold_constants
from jstitch.passes.graph.join_sums import join_sums
from jstitch.passes.graph.lead_products import lead_products
from jstitch.passes.graph.leave_sums import leave_sums
from jstitch.passes.graph.leave_unset import leave_unset
from jstitch.passes.graph.merge_products import merge_products
from jstitch.passes.graph.reduce_products import reduce_products
from jstitch.passes.graph.rewrite_argmax import rewrite_argmax
from jstitch.passes.graph.rewrite_one_hot_scatter import rewrite_one_hot_scatter
from jstitch.passes.graph.turn_products import turn_products
from jstitch.passes.graph.unroll_loops import unroll_loops
from jstitch.passes.graph.unroll_turns import unroll_turns
from jstitch.passes.graph.unroll_windows import unroll_windows


@dataclass(frozen=True)
class Pass:
    """One step of the pipeline. `name` is what users type and what dump files are called."""

    name: str
    run: Callable[[Graph, Context], Graph]


@dataclass(frozen=True)
class Step:
    """What the callback sees: the pass that ran (its place in the pipeline, its time) and its result."""

    number: int
    name: str
    graph: Graph
    seconds: float


class StopPipeline(Exception):
    """Raised by a callback: `run` returns the graph as it is."""


# fold before cse, so that equal constants become one; dce sweeps what they left unused, before broadcasts are
# copied (cse would merge them again)
PIPELINE: tuple[Pass, ...] = (
    Pass("canonicalize", on_any_target(canonicalize)),
    Pass("unroll_loops", on_any_target(unroll_loops)),
    Pass("fold_constants", on_any_target(fold_constants)),
    Pass("unroll_windows", on_any_target(unroll_windows)),
    Pass("rewrite_argmax", on_any_target(rewrite_argmax)),
    Pass("rewrite_one_hot_scatter", on_any_target(rewrite_one_hot_scatter)),
    Pass("chain_scatters", chain_scatters),
    Pass("unroll_turns", unroll_turns),
    Pass("reduce_products", reduce_products),
    Pass("join_sums", join_sums),
    Pass("merge_products", merge_products),
    Pass("turn_products", turn_products),
    Pass("lead_products", lead_products),
    Pass("canonicalize_again", on_any_target(canonicalize)),
    Pass("cse", on_any_target(cse)),
    Pass("dce", on_any_target(dce)),
    Pass("clone_broadcasts", on_any_target(clone_broadcasts)),
    Pass("clone_indices", clone_indices),
    Pass("leave_sums", leave_sums),
    Pass("leave_unset", leave_unset),
)


def run(
    graph: Graph,
    context: Context,
    passes: Sequence[Pass] = PIPELINE,
    after: Callable[[Step], None] | None = None,
) -> Graph:
    """Run the passes in order, the callback after each one."""
    for number, step in enumerate(passes, 1):
        start = time.perf_counter()
        graph = step.run(graph, context)
        if after is None:
            continue
        try:
            after(Step(number, step.name, graph, time.perf_counter() - start))
        except StopPipeline:
            break
    return graph


def frames(graph: Graph) -> Iterator[Graph]:
    """The graph and the regions of its control ops, at any depth: what is planned one by one.

    Regions that are part of an op's meaning (a reduction's body) are not frames.
    """
    yield graph
    for op in graph.ops:
        if is_control(op):
            for region in op.regions:
                yield from frames(region)


def verify_after(step: Step) -> None:
    """A callback that raises InvalidGraph when a pass leaves an invalid graph."""
    check(step.graph, step.name)


def dump_after(folder: Path, first: int = 1) -> Callable[[Step], None]:
    """A callback that writes each graph to `folder`, numbered from `first`."""

    def write(step: Step) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{first + step.number - 1:02d}_{step.name}.txt"
        path.write_text(print_graph(step.graph) + "\n")

    return write


def stop_after(name: str) -> Callable[[Step], None]:
    """A callback that ends the pipeline after the named pass."""

    def stop(step: Step) -> None:
        if step.name == name:
            raise StopPipeline

    return stop
