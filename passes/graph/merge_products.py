"""Make one matrix product of several that share an operand, as XLA does with small ones.

    %q = dot_general %x, %a     %k = dot_general %x, %b
->
    %w = concatenate %a, %b;  %p = dot_general %x, %w;  %q = slice %p;  %k = slice %p

XLA merges them behind the kernels' backs otherwise, and then cuts its result up for each kernel, or joins
what kernels wrote, in kernels of its own. As ops, the slices and concatenations are the kernels' like any
others; what is joined of the same weights in every turn of a loop is joined before the loop. Products of one
depth (of products on the way to them) do not need each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.passes.graph.hoist import carrying, fixed_inputs, hoist

PRODUCT = "stablehlo.dot_general"
THRESHOLD = 32 << 20  # bytes of operands and result up to which XLA merges (xla_gpu_dot_merger_threshold_mb)
_SIDES = ("lhs", "rhs")
Key = tuple[object, ...]


def merge_products(graph: Graph, context: Context) -> Graph:
    """The graph, and the regions of its control ops, with products merged that XLA would merge."""
    return _Merger(graph).merged() if context.profile.products else graph


@dataclass
class _Merger:
    """fixed: inputs that are the same in every turn of the loop whose body the graph is.

    before: what is done to those before the loop. joined: the results of that, which come in as well.
    """

    graph: Graph
    fixed: frozenset[Value] = frozenset()
    depth: dict[Value, int] = field(default_factory=dict)
    groups: dict[Key, list[_Member]] = field(default_factory=dict)
    before: list[Op] = field(default_factory=list)
    joined: list[Value] = field(default_factory=list)

    def merged(self) -> Graph:
        ops = [new for op in self.graph.ops for new in _inside(op)]
        for op in ops:
            self._sort_in(op)
        places = self._places()
        if not places and ops == list(self.graph.ops):
            return self.graph
        new = [made for op in ops for made in places.get(op, [op])]
        return carrying(self.graph, sort_ops(new), self.joined)

    def _sort_in(self, op: Op) -> None:
        """Learn the op's depth, and which products it could be one with."""
        depth = max((self.depth.get(v, 0) for v in op.uses), default=0) + (op.name == PRODUCT)
        self.depth.update(dict.fromkeys(op.results, depth))
        for side in (0, 1) if _is_small(op) else ():
            if _free(op, 1 - side):
                member = _member(op, 1 - side)
                key = (side, op.operands[side], depth, *_form(member.flat, side))
                self.groups.setdefault(key, []).append(member)

    def _places(self) -> dict[Op, list[Op]]:
        """What stands in the place of each merged product."""
        found: dict[Op, list[Op]] = {}
        for (side, *_), members in sorted(self.groups.items(), key=lambda item: -len(item[1])):
            run = [member for member in members if member.op not in found]
            if len(run) > 1:
                number = 1 if side == 0 else 0
                joined, *rest = _merge(run, number)
                before = [*(view for member in run for view in member.views), joined]
                found |= {member.op: [] for member in run[1:]}
                if self.fixed.issuperset(member.op.operands[number] for member in run):
                    self.before += before
                    self.joined.append(joined.result)
                    before = []
                found[run[0].op] = [*before, *rest]
        return found


def _inside(op: Op) -> list[Op]:
    """The op with its regions merged, after what is joined for them."""
    if not is_control(op):
        return [op]
    if op.name == "stablehlo.while":
        return _inside_loop(op)
    regions = tuple(_Merger(region).merged() for region in op.regions)
    same = all(a is b for a, b in zip(regions, op.regions, strict=True))
    return [op] if same else [replace(op, regions=regions)]


def _inside_loop(op: Op) -> list[Op]:
    body = op.regions[1]
    merger = _Merger(body, fixed_inputs(body))
    merged = merger.merged()
    return [op] if merged is body else hoist(op, merged, merger.before, merger.joined)


def _is_small(op: Op) -> bool:
    if op.name != PRODUCT or op.attrs["lhs_batching_dimensions"]:
        return False
    return sum(v.tensor.nbytes for v in (*op.operands, *op.results)) <= THRESHOLD


@dataclass(frozen=True)
class _Member:
    """A product, and as one of matrices: with the views that make the operand to be joined one."""

    op: Op
    flat: Op
    views: tuple[Op, ...]


def _free(op: Op, number: int) -> range:
    """The dimensions of an operand that are not contracted, if they stand side by side."""
    contracted = op.attrs[f"{_SIDES[number]}_contracting_dimensions"]
    left = [d for d in range(op.operands[number].tensor.rank) if d not in contracted]
    together = left and left[-1] - left[0] + 1 == len(left)
    return range(left[0], left[-1] + 1) if together else range(0)


def _member(op: Op, number: int) -> _Member:
    free, operand = _free(op, number), op.operands[number]
    if len(free) == 1:
        return _Member(op, op, ())
    size = math.prod(operand.shape[free.start : free.stop])
    view = build.reshape(operand, (*operand.shape[: free.start], size, *operand.shape[free.stop :])).located(
        op
    )
    name = f"{_SIDES[number]}_contracting_dimensions"
    contracted = tuple(d if d < free.start else d - len(free) + 1 for d in op.attrs[name])
    rest = op.result.shape[: -len(free)] if number else op.result.shape[len(free) :]
    shape = (*rest, size) if number else (size, *rest)
    operands = tuple(view.result if n == number else v for n, v in enumerate(op.operands))
    result = Value(replace(op.result.tensor, shape=shape))
    flat = replace(op, operands=operands, results=(result,), attrs={**op.attrs, name: contracted})
    return _Member(op, flat, (view,))


def _form(op: Op, side: int) -> Key:
    """What products must have in common besides an operand."""
    other, (free,) = op.operands[1 - side].tensor, _free(op, 1 - side)
    shape = tuple(n for d, n in enumerate(other.shape) if d != free)
    attrs = tuple(sorted((name, value) for name, value in op.attrs.items()))
    return shape, free, other.dtype, op.result.tensor.dtype, attrs


def _merge(run: Sequence[_Member], number: int) -> Iterator[Op]:
    """One product of operands `number` put together, and its pieces."""
    first = run[0].flat
    (free,) = _free(first, number)
    joined = build.concatenate([member.flat.operands[number] for member in run], free)
    operands = (first.operands[0], joined.result) if number else (joined.result, first.operands[1])
    along = first.result.tensor.rank - 1 if number else 0
    shape = list(first.result.shape)
    shape[along] = joined.result.shape[free]
    result = Value(replace(first.result.tensor, shape=tuple(shape)))
    yield joined.located(first)
    yield replace(first, operands=operands, results=(result,))
    start = 0
    for member in run:
        low, high = [0] * len(shape), list(shape)
        low[along], high[along] = start, start + member.flat.result.shape[along]
        piece = build.slice_(result, low, high, [1] * len(shape)).located(member.op)
        if member.views:
            yield piece
            piece = build.reshape(piece.result, member.op.result.shape).located(member.op)
        yield replace(piece, results=member.op.results)
        start = high[along]
