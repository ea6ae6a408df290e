"""Write several turns of a counted loop out in its body, so that it counts less often.

    while i < 28:  %y = f(%x, i);  i = i + 1
->
    while i < 28:  %a = f(%x, i);  %b = f(%a, i + 1);  %c = f(%b, i + 2);  %y = f(%c, i + 3);  i = i + 4

On a GPU a turn of a scan is a handful of launches, of which one only counts; and what ends one turn can share
a kernel with what begins the next. What every turn makes anew from what it carries, such as the caches of
beams that a search goes on with, goes back and forth between two places in two turns; after one it is copied
back. On a CPU only loops are taken that carry such values, and large ones, a stencil's: two turns, after one
ahead of the loop where their number is odd; a kernel with ops of both would leave no way back. Loops are
taken whose trip count follows from constants and has a divisor, but no kernel can be as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cache, partial

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, build
from jstitch.ir.ops.effects import has_effects
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, has, is_control, map_frames, rewrite
from jstitch.passes.fuse.find_recurrences import find_recurrences
from jstitch.passes.fuse.unroll_loops import write_out
from jstitch.passes.graph.count_turns import Counter, count_turns
from jstitch.passes.graph.cse import cse
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.is_moved import is_large, is_moved

MAX_OPS = 1000  # of a body with all its turns
PAIR_OPS = 3000  # of a body with two
Rule = Callable[..., Replacement | None]


def unroll_turns(graph: Graph, context: Context) -> Graph:
    """The graph with turns written out in the bodies of its innermost loops, where the target wants it."""
    turns = context.profile.turns
    if turns <= 1 or not has(graph, WHILE):
        return graph
    whole = cache(partial(_kernels, graph, context))  # kernels are lowered for it: only where it matters
    rule = partial(_rule, wanted=turns, whole=whole)
    if context.machine.device is None:
        return rewrite(graph, partial(_pairs, rule=rule), of=(WHILE,))
    return rewrite(graph, rule, of=(WHILE,))


def _pairs(op: Op, producer: Producer, rule: Rule) -> Replacement | None:
    """On a CPU: of a loop that copies."""
    copied = tuple(_copied(op.regions[1]))
    return rule(op, producer, apart=copied) if copied else None


def _kernels(graph: Graph, context: Context) -> Set[Value]:
    """Results of loops that are kernels as they are."""
    found: set[Value] = set()

    def look(frame: Graph) -> Graph:
        patterns = find_recurrences(frame, context).patterns
        found.update(v for p in patterns for op in p.ops if is_control(op) for v in op.results)
        return frame

    map_frames(dce(cse(graph)), look)
    return found


def _rule(
    op: Op, producer: Producer, wanted: int, whole: Callable[[], Set[Value]], apart: Sequence[int] = ()
) -> Replacement | None:
    """apart: places of carried values that go from turn to turn through memory."""
    if not all(map(_is_simple, op.regions[1].ops)):
        return None
    counter = count_turns(op, producer)
    if counter is None or counter.trips < 2 or not whole().isdisjoint(op.results):
        return None
    size = len(op.regions[1].ops)
    most = min(wanted, max(MAX_OPS // max(1, size), 2 if 2 * size <= PAIR_OPS else 1))
    ahead: list[Op] = []
    if most == wanted == 2 and counter.trips % 2:  # every turn is copied back then, and one more is not
        op, counter = _one_ahead(op, counter, ahead)
    turns = next((k for k in range(most, 1, -1) if counter.trips % k == 0 and counter.trips > k), 1)
    if turns == 1:
        return None
    body = _several(op.regions[1], counter, turns, op.scope, apart)
    new = replace(op, regions=(op.regions[0], body))
    return Replacement(op.results, (*ahead, new))


def _one_ahead(loop: Op, counter: Counter, ops: list[Op]) -> tuple[Op, Counter]:
    """The loop without its first turn, which is appended to the ops."""
    start = counter.start + counter.step
    first = build.splat(loop.operands[counter.place].tensor, start)
    carried = write_out(loop.regions[1], loop.operands, ops, loop.scope, 0)
    ops.append(first.located(loop))
    left = replace(loop, operands=_put(carried, counter.place, first.result))
    return left, replace(counter, start=start, trips=counter.trips - 1)


def _copied(body: Graph) -> Iterator[int]:
    """Places of large carried values that a kernel of a turn would make of their elements at other places."""
    for place, (old, new) in enumerate(zip(body.inputs, body.outputs, strict=True)):
        if is_large(old) and is_moved(body.ops, old, new):
            yield place


def _is_simple(op: Op) -> bool:
    tensors = all(isinstance(v.type, TensorType) for v in (*op.uses, *op.results))
    return tensors and not is_control(op) and not has_effects(op)


def _several(body: Graph, counter: Counter, turns: int, scope: str, apart: Sequence[int]) -> Graph:
    ops: list[Op] = []
    first = body.inputs[counter.place]
    carried: tuple[Value, ...] = body.inputs
    for turn in range(turns):
        at = _later(body, first, turn * counter.step, ops) if turn else first
        for place in apart if turn else ():
            ops.append(build.turn_end(carried[place]).located(ops[-1]))
            carried = _put(carried, place, ops[-1].result)
        carried = write_out(body, _put(carried, counter.place, at), ops, scope, turn)
    last = _later(body, first, turns * counter.step, ops)
    return Graph(body.inputs, tuple(ops), _put(carried, counter.place, last))


def _later(body: Graph, first: Value, distance: int, ops: list[Op]) -> Value:
    """The counter further on."""
    step = next(op for op in body.ops if first in op.operands)
    constant = build.splat(first.tensor, distance)
    moved = build.add(first, constant.result)
    ops += (constant.located(step), moved.located(step))
    return moved.result


def _put(values: tuple[Value, ...], place: int, value: Value) -> tuple[Value, ...]:
    return (*values[:place], value, *values[place + 1 :])
