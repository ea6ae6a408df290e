"""Work/span layers of one frame (FS-2018 section 3.1).

span(op without users) = 0        span(op) = 1 + max over its users

a = exp x        layer 2: exp
b = add a, a     layer 1: add       ops of one layer do not depend on each other;
c = mul b, a     layer 0: mul       every edge goes to a smaller span
"""

from __future__ import annotations

from jstitch.ir.graph import Graph, Op


def layer_work_span(frame: Graph) -> dict[Op, int]:
    """The span of every op of the frame (its regions are frames of their own), in program order."""
    producers = frame.producers()
    spans = dict.fromkeys(frame.ops, 0)
    for op in reversed(frame.ops):
        above = spans[op] + 1
        for value in op.uses:
            producer = producers.get(value)
            if producer is not None and spans[producer] < above:
                spans[producer] = above
    return spans


def layers(spans: dict[Op, int]) -> list[list[Op]]:
    """The ops of each span, in program order."""
    found: list[list[Op]] = [[] for _ in range(max(spans.values(), default=-1) + 1)]
    for op, span in spans.items():
        found[span].append(op)
    return found
