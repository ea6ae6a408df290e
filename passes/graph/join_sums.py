"""Make one matrix product of two that are added, where their weights are the same in every turn of a loop.

    while:  %s = add (dot_general %x, %a), (dot_general %h, %b)
->
    %w = concatenate %a, %b
    while:  %s = dot_general (concatenate %x, %h), %w

The gates of a recurrent cell. Neither product is written and read again, and the kernel of one turn writes
what the product of the next one takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import has, map_frames
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.passes.graph.hoist import carrying, fixed_inputs, hoist

SUM, PRODUCT = "stablehlo.add", "stablehlo.dot_general"
MOST_WEIGHTS = 32 << 20  # bytes of weights that are joined: they are in memory twice then
_SIDES = ("lhs", "rhs")


def join_sums(graph: Graph, context: Context) -> Graph:
    """The graph with such sums joined in the loops of all frames, where products are on a GPU."""
    if not (context.profile.products and has(graph, PRODUCT)):
        return graph
    return map_frames(graph, _joined)


def _joined(frame: Graph) -> Graph:
    ops = [new for op in frame.ops for new in (_in_loop(op) if op.name == "stablehlo.while" else [op])]
    return Graph(frame.inputs, tuple(ops), frame.outputs)


def _in_loop(loop: Op) -> list[Op]:
    joiner = _Joiner(loop.regions[1])
    ops = [new for op in joiner.body.ops for new in joiner.replaced(op)]
    weights = list(joiner.weights.values())
    if not weights:
        return [loop]
    made = [op.result for op in weights]
    left = sort_ops([op for op in ops if op not in joiner.joined])
    return hoist(loop, carrying(joiner.body, left, made), weights, made)


@dataclass
class _Joiner:
    """weights: ops that join two of them, by what they join, along which dimension. joined: products."""

    body: Graph
    weights: dict[tuple[Value, Value, int], Op] = field(default_factory=dict)
    joined: set[Op] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.fixed = fixed_inputs(self.body)
        self.producers: Mapping[Value, Op] = self.body.producers()
        self.users: Mapping[Value, Sequence[Op]] = self.body.users()

    def replaced(self, op: Op) -> list[Op]:
        """What stands in the place of an op."""
        found = [self._product(v) for v in op.operands] if op.name == SUM else []
        match found:
            case [Op() as first, Op() as second] if first is not second and first.attrs == second.attrs:
                for side in (0, 1):
                    if self._is_worth(first, second, side):
                        return [*self._join(op, first, second, side)]
        return [op]

    def _product(self, value: Value) -> Op | None:
        """The product that makes a value for one op only."""
        op = self.producers.get(value)
        alone = len(self.users.get(value, ())) == 1 and value not in self.body.outputs
        return op if op is not None and op.name == PRODUCT and alone and _is_plain(op) else None

    def _is_worth(self, first: Op, second: Op, side: int) -> bool:
        """Whether the weights, operands `side`, are fixed and few, and a turn joins less than both make."""
        weights, others = ([op.operands[n] for op in (first, second)] for n in (side, 1 - side))
        pays = _nbytes(weights) <= MOST_WEIGHTS and _nbytes(others) <= 2 * first.result.tensor.nbytes
        return self.fixed.issuperset(weights) and pays and _fit(first, second)

    def _join(self, total: Op, first: Op, second: Op, side: int) -> Iterator[Op]:
        """One product for the sum `total`."""
        self.joined |= {first, second}
        key = first.operands[side], second.operands[side], _contracted(first, side)
        weight = self.weights.setdefault(key, build.concatenate(key[:2], key[2]).located(first))
        taken = [op.operands[1 - side] for op in (first, second)]
        other = build.concatenate(taken, _contracted(first, 1 - side)).located(total)
        yield other
        operands = (other.result, weight.result) if side else (weight.result, other.result)
        yield replace(first, operands=operands, results=total.results)


def _nbytes(values: Sequence[Value]) -> int:
    return sum(v.tensor.nbytes for v in values)


def _contracted(op: Op, side: int) -> int:
    (found,) = op.attrs[f"{_SIDES[side]}_contracting_dimensions"]
    return int(found)


def _is_plain(op: Op) -> bool:
    """A product of matrices: no batch, one dimension contracted."""
    return not op.attrs["lhs_batching_dimensions"] and len(op.attrs["lhs_contracting_dimensions"]) == 1


def _fit(first: Op, second: Op) -> bool:
    """Whether operands differ in the dimension that is contracted only."""
    return all(
        a.tensor.dtype == b.tensor.dtype and _others(a, first, side) == _others(b, second, side)
        for side, (a, b) in enumerate(zip(first.operands, second.operands, strict=True))
    )


def _others(value: Value, op: Op, side: int) -> list[int]:
    return [n for d, n in enumerate(value.shape) if d != _contracted(op, side)]
