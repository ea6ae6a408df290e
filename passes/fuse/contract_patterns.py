"""Replace every pattern of a plan by one `jstitch.kernel` op whose region is the pattern.

%1 = exp %0; %2 = reduce %1; %3 = divide %1, %2     ->     %3 = jstitch.kernel(%0) {exp; reduce; divide}
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from jstitch.ir.graph import Graph, Op
from jstitch.ir.node_graph import topological_order
from jstitch.ir.ops import KERNEL
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free
from jstitch.passes.fuse.absorb_updates import contracted

Build = Callable[[FusionPattern], Mapping[str, Any] | None]


def contract_patterns(plan: FusionPlan, build: Build) -> Graph:
    """The frame with one op per pattern; a pattern for which `build` gives no attributes stays as it was."""
    frame = plan.frame
    owner: dict[Op, Op] = {}
    for pattern in plan.patterns:
        attrs = build(pattern)
        if attrs is not None:
            inputs, ops, outputs = contracted(pattern)
            last = next((op for op in reversed(pattern.ops) if op.loc), pattern.ops[-1])
            kernel = Op(KERNEL, inputs, outputs, attrs, (Graph(inputs, ops, outputs),)).located(last)
            owner.update((op, kernel) for op in pattern.ops if not is_free(op))
            for u in pattern.updates:
                owner.update(dict.fromkeys((u.op, *(u.chain if u.alone else ())), kernel))
    if not owner:
        return frame
    new = {op: owner.get(op, op) for op in frame.ops}
    updates = {u.op for pattern in plan.patterns for u in pattern.updates if u.op in owner}
    return Graph(frame.inputs, _sorted(frame, new, updates), frame.outputs)


def _sorted(frame: Graph, new: Mapping[Op, Op], updates: Container[Op]) -> tuple[Op, ...]:
    """The contracted ops in topological order, otherwise in program order; tokens order effects.

    updates: ops that a kernel makes of a value of its own, whatever reshapes of it others read.
    """
    place = {new[op]: n for n, op in enumerate(frame.ops)}
    edges: dict[tuple[Op, Op], None] = {}
    producers = frame.producers()
    for op in frame.ops:
        for v in (op.operands[0], *op.operands[2:]) if op in updates else op.uses:
            maker = producers.get(v)
            if maker is not None and new[maker] is not new[op]:
                edges[new[maker], new[op]] = None
    order = topological_order(place, edges, place.__getitem__)
    assert order is not None, "patterns that wait for each other"
    return tuple(order)
