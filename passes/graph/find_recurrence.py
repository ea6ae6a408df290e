"""Read a loop as a recurrence: what a turn goes on from, what it reads, what it leaves where in a stack.

while i < 128:  x = xs[127 - i];  c = a * c + x;  ys[127 - i] = c;  i = i + 1
->
    turn in [0, 128):  carry c from c0;  stack ys, element `127 - turn` of dimension 0, from c

and a window that is everything up to each element, as `jnp.cumsum` is, as the same thing. Nothing is said of
what a turn computes: where a kernel cannot express it, lowering says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.index import Index, Var, bounds, const, var
from jstitch.ir.ops import TURN_END, has_effects, lookup
from jstitch.ir.ops.build import convert, dynamic_slice
from jstitch.ir.reason import Reason
from jstitch.ir.scope import together
from jstitch.ir.types import DType, TensorType
from jstitch.options import PRESETS
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, is_control
from jstitch.passes.graph.count_turns import Counter, count_turns
from jstitch.passes.graph.turn_numbers import turn_numbers

TURN = "turn"
RULE = "recurrence"
SUM = "stablehlo.add"


@dataclass(frozen=True, eq=False)
class Carry:
    """What a turn goes on from: `initial` in the first one, then `after` of the one before.

    before, after: values of a turn; initial may be a scalar for all elements. result: of the loop, if any.
    """

    initial: Value
    before: Value
    after: Value
    result: Value | None = None


@dataclass(frozen=True)
class Leaf:
    """Row `row` of a turn's value `part`, which is element `at` of a stack."""

    part: Value
    row: int
    at: Index


@dataclass(frozen=True, eq=False)
class Stack:
    """A result of the loop of which each turn leaves some elements, of its dimension `dim`.

    They are several where the loop's body has several turns of the user's.
    """

    result: Value
    dim: int
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True, eq=False)
class Recurrence:
    """A loop of `turns`; `ops` are those of one turn, in order.

    given: a turn's names of what no turn changes -> the values outside. numbers: integer scalars of a turn,
    by the variable `turn`.
    """

    turns: int
    ops: tuple[Op, ...]
    carries: tuple[Carry, ...]
    stacks: tuple[Stack, ...]
    given: Mapping[Value, Value]
    numbers: Mapping[Value, Index]

    @property
    def turn(self) -> Var:
        return Var(TURN, self.turns)


def takes_loops(context: Context) -> bool:
    """Whether loops may be kernels, and are made ready for it. FusionStitching as published has none."""
    options = context.options
    return "recurrences" not in options.without and options.planner not in PRESETS


def may_recur(op: Op) -> bool:
    """Whether the op is a loop, or one window for each element that is everything up to it."""
    return op.name == "stablehlo.while" or (op.name == "stablehlo.reduce_window" and _along(op) is not None)


def find_recurrence(op: Op, producer: Producer) -> Recurrence | Reason:
    """The op as one, or why it is none. producer: of the values around it."""
    return _loop(op, producer) if is_control(op) else _window(op)


# -- loops -----------------------------------------------------------------------------------------------


def _loop(op: Op, producer: Producer) -> Recurrence | Reason:
    body = op.regions[-1]
    counter = count_turns(op, producer)
    if counter is None:
        return Reason(RULE, "nothing says before it runs how many turns the loop has")
    if any(o.name == TURN_END for o in body.ops):
        return Reason(RULE, "two of its turns are written out, as kernels of their own")
    strange = next((o for o in body.ops if is_control(o) or has_effects(o) or not _of_tensors(o)), None)
    if strange is not None:
        return Reason(RULE, f"its turns have '{strange.name}', which no kernel has")
    groups = (together(o.scope) for o in body.ops)
    asked = next((group for group in groups if group not in (None, together(op.scope))), None)
    if asked is not None:
        return Reason(RULE, f"its turns have calls of {asked}, each of which is to be one kernel")
    if counter.trips < 1:
        return Reason(RULE, "it has no turns")
    reader = _Reader(op, counter, turn_numbers(op, counter, Var(TURN, counter.trips), producer))
    return reader.read()


class _Reader:
    """Reads one `while`. numbers: integer scalars of a turn."""

    def __init__(self, op: Op, counter: Counter, numbers: Mapping[Value, Index]) -> None:
        self.op, self.body, self.counter, self.numbers = op, op.regions[-1], counter, numbers
        self.producers, self.users = self.body.producers(), self.body.users()

    def read(self) -> Recurrence | Reason:
        op, body = self.op, self.body
        given: dict[Value, Value] = {}
        carries: list[Carry] = []
        stacks: list[Stack] = []
        updates: set[Op] = set()
        for place, (before, after) in enumerate(zip(body.inputs, body.outputs, strict=True)):
            chain = self.updates(before, after)
            stack = self.stack(chain, op.results[place])
            if before is after:
                given[before] = op.operands[place]
            elif stack is not None:
                stacks.append(stack)
                updates.update(chain)
            elif place != self.counter.place:
                carries.append(Carry(op.operands[place], before, after, op.results[place]))
        late = {v for update in updates for v in update.results}
        if not late.isdisjoint(v for o in body.ops if o not in updates for v in o.operands):
            return Reason(RULE, "its turns read the stack that they write")
        ops = tuple(o for o in body.ops if o not in updates)
        return Recurrence(self.counter.trips, ops, tuple(carries), tuple(stacks), given, self.numbers)

    def updates(self, before: Value, after: Value) -> list[Op]:
        """The updates by which one becomes the other, if nobody else reads what is updated."""
        found: list[Op] = []
        while after is not before:
            update = self.producers.get(after)
            if update is None or not lookup(update.name).in_place:
                return []
            after = update.operands[0]
            if self.users[after] != [update]:
                return []
            found.append(update)
        return found[::-1]

    def stack(self, updates: Sequence[Op], result: Value) -> Stack | None:
        """The result as a stack, if the turns' updates are all of it."""
        found: list[Leaf] = []
        dims = {self.dim(update) for update in updates}
        dim = next(iter(dims), None)
        if len(dims) != 1 or dim is None:
            return None
        for update in updates:
            part, start = update.operands[1], self.numbers.get(update.operands[2 + dim])
            if start is None:
                return None
            found += (Leaf(part, row, start + row) for row in range(part.shape[dim]))
        return Stack(result, dim, tuple(found)) if self.covers(found, result.shape[dim]) else None

    @staticmethod
    def dim(update: Op) -> int | None:
        """The one dimension in which it may move."""
        whole, part = update.operands[0].shape, update.operands[1].shape
        moving = [d for d, (n, m) in enumerate(zip(whole, part, strict=True)) if n != m]
        if not moving and 1 in whole:
            return whole.index(1)
        return moving[0] if len(moving) == 1 else None

    def covers(self, leaves: Sequence[Leaf], extent: int) -> bool:
        """Whether the turns' leaves are every element of a dimension, once."""
        if self.counter.trips * len(leaves) != extent:
            return False
        steps = {sum(k for _, k in leaf.at.terms) for leaf in leaves}
        first = sorted(bounds(leaf.at)[0] for leaf in leaves)
        apart = len(leaves) if self.counter.trips > 1 else 0
        return first == list(range(len(leaves))) and steps in ({apart}, {-apart})


def _of_tensors(op: Op) -> bool:
    return all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results))


# -- windows ---------------------------------------------------------------------------------------------


def _window(op: Op) -> Recurrence:
    """One window for each element, of all elements before it, or behind it, along a dimension, and itself."""
    along = _along(op)
    assert along is not None
    dim, backwards = along
    x, init = op.operands
    turns, kind = x.shape[dim], x.tensor.dtype
    # The sum of many floats in turn would lose what XLA's, in pairs, does not.
    wide = DType.F64 if op.attrs.get("monoid") == SUM and kind.is_float else kind
    where = var(Var(TURN, turns))
    start = const(turns - 1) - where if backwards else where
    zero, number = (Value(TensorType((), DType.S32)) for _ in range(2))
    sizes = tuple(1 if d == dim else n for d, n in enumerate(x.shape))
    part = dynamic_slice(x, [number if d == dim else zero for d in range(len(sizes))], sizes)
    taken = convert(part.result, wide)
    before = Value(taken.result.tensor)
    combined, after = _of_shape(op.regions[0], (before, taken.result))
    narrow = convert(after, kind)
    ops = tuple(o.located(op) for o in (part, taken, *combined, narrow))
    carry = Carry(init, before, after)
    stack = Stack(op.result, dim, (Leaf(narrow.result, 0, start),))
    return Recurrence(turns, ops, (carry,), (stack,), {}, {zero: const(0), number: start})


def _of_shape(region: Graph, arguments: Sequence[Value]) -> tuple[list[Op], Value]:
    """The ops of a region of scalars on tensors, whose elements may be wider; and its result."""
    like = arguments[0].tensor
    narrow = region.inputs[0].tensor.dtype
    known = dict(zip(region.inputs, arguments, strict=True))
    ops: list[Op] = []
    for op in region.ops:
        kinds = (v.tensor.dtype for v in op.results)
        results = tuple(Value(TensorType(like.shape, like.dtype if k is narrow else k)) for k in kinds)
        attrs = dict(op.attrs)
        if "value" in attrs:
            attrs["value"] = np.broadcast_to(attrs["value"].astype(results[0].tensor.dtype.numpy), like.shape)
        operands = tuple(known[v] for v in op.operands)
        ops.append(replace(op, operands=operands, results=results, attrs=attrs))
        known |= zip(op.results, results, strict=True)
    return ops, known[region.outputs[0]]


def _along(op: Op) -> tuple[int, bool] | None:
    """The dimension that windows run along, and whether from behind."""
    plain = all(len(o.results) == 1 and not o.regions for o in op.regions[0].ops)
    if len(op.results) != 1 or not _is_plain(op) or not plain or op.regions[0].captures:
        return None
    x, sizes = op.operands[0], op.attrs["window_dimensions"]
    edges = op.attrs.get("padding") or ((0, 0),) * x.tensor.rank
    long = [d for d, n in enumerate(sizes) if n > 1]
    others = (edges[d] for d in range(len(sizes)) if d not in long)
    if len(long) != 1 or any(map(any, others)) or op.result.shape != x.shape or not x.tensor.size:
        return None
    (dim,) = long
    n = x.shape[dim]
    if sizes[dim] != n or tuple(edges[dim]) not in ((n - 1, 0), (0, n - 1)):
        return None
    return dim, tuple(edges[dim]) == (0, n - 1)


def _is_plain(op: Op) -> bool:
    """Whether windows have no strides and no gaps."""
    kinds = ("window_strides", "window_dilations", "base_dilations")
    return all(k == 1 for kind in kinds for k in op.attrs.get(kind) or ())
