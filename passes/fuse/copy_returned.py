"""Make the copies that XLA would make of what a frame returns twice, or returns as it came in.

    return %dx, %dx, %p          ->    %c = convert %dx; %d = convert %p;  return %dx, %c, %d

Every result of a program, and every value that a loop hands to its next turn, needs memory of its own. XLA
launches a copy for each; as an op, it is one more store of the kernel that makes or reads the value, and
copies of many parameters share a kernel. An argument in whose memory the result stands needs no copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.build import convert
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.fuse.absorb_updates import keeps_order


def copy_returned(graph: Graph, context: Context) -> Graph:
    """The graph with such copies in its loops and, where it is the whole program, at its end."""
    if not context.profile.copies:
        return graph
    graph, returned = _in_loops(graph), context.returned
    if returned is None:
        return graph
    inputs = {v: n for n, v in enumerate(graph.inputs)}
    free = {n for n in inputs.values() if n not in returned.owned or returned.homes.get(n, 0) is None}
    taken = {(n, out) for n, out in returned.homes.items() if out is not None}
    return _copied(graph, taken | {(n, out) for n in free for out in range(len(graph.outputs))})


def _in_loops(graph: Graph) -> Graph:
    return replace(graph, ops=tuple(map(_in_regions, graph.ops)))


def _in_regions(op: Op) -> Op:
    if not is_control(op) or not op.regions:
        return op
    regions = [_in_loops(region) for region in op.regions]
    if body := regions[-1].inputs:  # of a loop: branches have none
        regions[-1] = _copied(regions[-1], {(n, n) for n in range(len(body))})
    return replace(op, regions=tuple(regions))


def _copied(frame: Graph, free: Collection[tuple[int, int]]) -> Graph:
    """free: inputs that may be returned as they are, each with the number of the output."""
    producers = frame.producers()
    inputs = {v: n for n, v in enumerate(frame.inputs)}
    seen: set[Value] = set()
    copies: list[Op] = []
    outputs: list[Value] = []
    for number, v in enumerate(frame.outputs):
        source = _source(v, producers)
        given = source in inputs and (inputs[source], number) not in free
        if isinstance(v.type, TensorType) and (source in seen or given or _is_constant(source, producers)):
            copy = convert(v, v.tensor.dtype)
            copies.append(copy.located(producers[v]) if v in producers else copy)
            v = copies[-1].result
        seen.add(source)
        outputs.append(v)
    return Graph(frame.inputs, (*frame.ops, *copies), tuple(outputs)) if copies else frame


def _source(v: Value, producers: Mapping[Value, Op]) -> Value:
    """The value whose memory `v` is."""
    while v in producers and keeps_order(producers[v]):
        v = producers[v].operands[0]
    return v


def _is_constant(v: Value, producers: Mapping[Value, Op]) -> bool:
    return v in producers and is_free(producers[v]) and not producers[v].operands
