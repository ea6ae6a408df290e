"""The pass pipeline as data: a tuple of named passes, and one callback between them.

    run(graph, context, PIPELINE, after=dump)  ==  dump(fold(dump(canonicalize(graph)))) ...

A pass on graphs leaves a valid graph behind and keeps inputs and outputs in number, order and type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from jstitch.ir.graph import Graph
from jstitch.ir.printer import print_graph
from jstitch.ir.verify import check
from jstitch.passes.base.context import Context, on_any_target
from jstitch.passes.base.named_pass import NamedPass, graph_pass
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.base.run_passes import Step, StopPipeline, run_passes
from jstitch.passes.chunk.chunk_rows import chunk_rows
from jstitch.passes.fuse.roll_loops import roll_loops
from jstitch.passes.fuse.unroll_loops import unroll_loops
from jstitch.passes.fuse.unroll_turns import unroll_turns
from jstitch.passes.graph.align_rows import align_rows
from jstitch.passes.graph.batch_gathers import batch_gathers
from jstitch.passes.graph.cancel_transposes import cancel_transposes
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.chain_scatters import chain_scatters
from jstitch.passes.graph.clone_broadcasts import clone_broadcasts
from jstitch.passes.graph.clone_indices import clone_indices
from jstitch.passes.graph.cse import cse
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.divide_windows import divide_windows
from jstitch.passes.graph.fold_constants import fold_constants
from jstitch.passes.graph.fold_transposes import fold_transposes
from jstitch.passes.graph.group_collectives import group_collectives
from jstitch.passes.graph.hoist_invariants import hoist_invariants
from jstitch.passes.graph.hoist_products import hoist_products
from jstitch.passes.graph.hoist_slices import hoist_slices
from jstitch.passes.graph.join_collectives import join_collectives
from jstitch.passes.graph.join_sums import join_sums
from jstitch.passes.graph.keep_rounded import keep_rounded
from jstitch.passes.graph.lead_products import lead_products
from jstitch.passes.graph.leave_sums import leave_sums
from jstitch.passes.graph.leave_unset import leave_unset
from jstitch.passes.graph.linearize_iotas import linearize_iotas
from jstitch.passes.graph.merge_products import merge_products
from jstitch.passes.graph.multiply_products import multiply_products
from jstitch.passes.graph.narrow_collectives import narrow_collectives
from jstitch.passes.graph.narrow_products import narrow_products
from jstitch.passes.graph.recompute_stacks import recompute_stacks
from jstitch.passes.graph.reduce_products import reduce_products
from jstitch.passes.graph.rewrite_argmax import rewrite_argmax
from jstitch.passes.graph.rewrite_one_hot_scatter import rewrite_one_hot_scatter
from jstitch.passes.graph.sink_collectives import sink_collectives
from jstitch.passes.graph.sink_products import sink_products
from jstitch.passes.graph.sink_sums import sink_sums
from jstitch.passes.graph.split_complex import split_complex
from jstitch.passes.graph.swap_products import swap_products
from jstitch.passes.graph.turn_gradients import turn_gradients
from jstitch.passes.graph.turn_products import turn_products
from jstitch.passes.graph.turn_weights import turn_weights
from jstitch.passes.graph.unroll_windows import unroll_windows
from jstitch.passes.graph.unstack_reductions import unstack_reductions
from jstitch.passes.graph.write_scatters import write_scatters
from jstitch.passes.graph.write_selections import write_selections
from jstitch.passes.graph.write_sorts import write_sorts
from jstitch.passes.graph.write_taps import write_taps
from jstitch.passes.graph.write_top_k import write_top_k


def _any_target(change: Callable[[Graph], Graph]) -> NamedPass:
    return graph_pass(change.__name__, run_on=on_any_target(change), about=change)


_CANONICALIZE = _any_target(canonicalize)

# fold before cse, so that equal constants become one; dce sweeps what they left unused, before broadcasts are
# copied (cse would merge them again)
PIPELINE: tuple[NamedPass, ...] = (
    _CANONICALIZE,
    _any_target(narrow_collectives),
    _any_target(sink_collectives),
    _any_target(join_collectives),
    _any_target(split_complex),
    _any_target(linearize_iotas),
    graph_pass("roll_loops", run_on=roll_loops, about=roll_loops),
    graph_pass("unroll_loops", run_on=unroll_loops, about=unroll_loops),
    _any_target(fold_constants),
    _any_target(hoist_invariants),
    graph_pass("write_selections", run_on=write_selections, about=write_selections),
    graph_pass("write_sorts", run_on=write_sorts, about=write_sorts),
    graph_pass("write_top_k", run_on=write_top_k, about=write_top_k),
    graph_pass("write_taps", run_on=write_taps, about=write_taps),
    _any_target(unstack_reductions),
    graph_pass("divide_windows", run_on=divide_windows, about=divide_windows),
    _any_target(unroll_windows),
    _any_target(rewrite_argmax),
    _any_target(rewrite_one_hot_scatter),
    _any_target(write_scatters),
    _any_target(batch_gathers),
    graph_pass("chain_scatters", run_on=chain_scatters, about=chain_scatters),
    graph_pass("recompute_stacks", run_on=recompute_stacks, about=recompute_stacks),
    _any_target(fold_transposes),
    graph_pass("hoist_products", run_on=hoist_products, about=hoist_products),
    graph_pass("sink_products", run_on=sink_products, about=sink_products),
    graph_pass("sink_sums", run_on=sink_sums, about=sink_sums),
    graph_pass("unroll_turns", run_on=unroll_turns, about=unroll_turns),
    _any_target(multiply_products),
    graph_pass("reduce_products", run_on=reduce_products, about=reduce_products),
    graph_pass("narrow_products", run_on=narrow_products, about=narrow_products),
    graph_pass("join_sums", run_on=join_sums, about=join_sums),
    graph_pass("merge_products", run_on=merge_products, about=merge_products),
    _any_target(swap_products),
    _any_target(align_rows),
    _any_target(cancel_transposes),
    graph_pass("turn_products", run_on=turn_products, about=turn_products),
    graph_pass("lead_products", run_on=lead_products, about=lead_products),
    graph_pass("turn_gradients", run_on=turn_gradients, about=turn_gradients),
    graph_pass("turn_weights", run_on=turn_weights, about=turn_weights),
    replace(_CANONICALIZE, name="canonicalize_again"),
    _any_target(cse),
    graph_pass("hoist_slices", run_on=hoist_slices, about=hoist_slices),
    _any_target(group_collectives),
    _any_target(dce),
    _any_target(keep_rounded),
    graph_pass("chunk_rows", run_on=chunk_rows, about=chunk_rows),
    _any_target(clone_broadcasts),
    graph_pass("clone_indices", run_on=clone_indices, about=clone_indices),
    graph_pass("leave_sums", run_on=leave_sums, about=leave_sums),
    graph_pass("leave_unset", run_on=leave_unset, about=leave_unset),
)


def run(
    graph: Graph,
    context: Context,
    passes: Sequence[NamedPass] = PIPELINE,
    after: Callable[[Step[Graph]], None] | None = None,
) -> Graph:
    """The graph after the passes; the callback runs after each one."""
    return run_passes(graph, passes, context, after)


def frames(graph: Graph) -> Iterator[Graph]:
    """The graph and the regions of its control ops, at any depth: what is planned one by one.

    Regions that are part of an op's meaning (a reduction's body) are not frames.
    """
    yield graph
    for op in graph.ops:
        if is_control(op):
            for region in op.regions:
                yield from frames(region)


def verify_after(step: Step[Graph]) -> None:
    """A callback that raises InvalidGraph when a pass leaves an invalid graph."""
    check(step.value, step.name)


def dump_after(folder: Path, first: int = 1) -> Callable[[Step[Graph]], None]:
    """A callback that writes each graph to `folder`, numbered from `first`."""

    def write(step: Step[Graph]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{first + step.number - 1:02d}_{step.name}.txt"
        path.write_text(print_graph(step.value) + "\n")

    return write


def stop_after(name: str) -> Callable[[Step[Graph]], None]:
    """A callback that ends the pipeline after the named pass."""

    def stop(step: Step[Graph]) -> None:
        if step.name == name:
            raise StopPipeline

    return stop
