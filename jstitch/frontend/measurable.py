"""Whether a whole function may be run on random arguments, just to time it.

sum(relu(x))                               yes
io_callback(...), an FFI call, a psum      no: somebody could see it, or it needs more than one device
while_loop(lambda s: s.error > 1e-6, ...)  no: on random arguments it might never end
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OPS, PURE, has_effects
from jstitch.ir.ops.collective import COLLECTIVE
from jstitch.ir.types import TensorType
from jstitch.passes.base.rewrite import is_control


def why_not_run(graph: Graph) -> str | None:
    """The reason why it may not be run, or None."""
    values = [*graph.inputs, *graph.outputs]
    if not all(isinstance(v.type, TensorType) for v in values):
        return "it takes or gives values that are not tensors"
    for op in graph.walk():
        if op.name in COLLECTIVE:
            return f"{op.name} takes several devices"
        if has_effects(op):
            return f"{op.name} has effects"
        if op.name not in OPS and op.name not in PURE:
            return f"{op.name} is not known to be harmless"
    return next(_open_loops(graph, {}), None)


def _open_loops(frame: Graph, outside: Mapping[Value, Op]) -> Iterator[str]:
    """Loops that run as often as data say. outside: who makes the values of the frames around."""
    makers = {**outside, **frame.producers()}
    for op in frame.ops:
        if not is_control(op):
            continue
        if op.regions[0].inputs and not _counts_itself(op, makers):
            yield f"how often {op.name} runs depends on data"
        for region in op.regions:
            yield from _open_loops(region, makers)


def _counts_itself(loop: Op, makers: Mapping[Value, Op]) -> bool:
    """Whether the condition follows from values that start as constants and depend on each other alone."""
    condition, body = loop.regions
    pairs = zip(condition.inputs, body.inputs, strict=True)
    place = {v: n for n, both in enumerate(pairs) for v in both}
    todo, seen = [(condition.producers(), condition.outputs[0])], set[int]()
    while todo:
        for root in _roots(*todo.pop()):
            number = place.get(root)
            if number is None and not _is_constant(makers, root):
                return False
            if number is not None and number not in seen:
                seen.add(number)
                todo.append((body.producers(), body.outputs[number]))
    return all(_is_constant(makers, loop.operands[number]) for number in seen)


def _is_constant(makers: Mapping[Value, Op], value: Value) -> bool:
    return not any(True for _ in _roots(makers, value))


def _roots(makers: Mapping[Value, Op], value: Value) -> Iterator[Value]:
    """Values that none of `makers` makes and that `value` depends on."""
    todo, seen = [value], {value}
    while todo:
        op = makers.get(v := todo.pop())
        if op is None:
            yield v
            continue
        new = [u for u in op.uses if u not in seen]
        seen.update(new)
        todo += new
