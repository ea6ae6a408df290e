"""Turn a reduction that carries a value and its index into a maximum and the first place that has it.

    %v, %k = reduce (%x, iota)                 %m = reduce maximum %x
      { the larger value, or NaN;       ->     %p = select (%x == %m), iota, largest
        of equals the smaller index }          %k = reduce minimum %p

`argmax` and `argmin` are such reductions. Their combiner is a chain of selects from element to element; the
two reductions in its place are vectorised. Of several maxima it is the first, and the first NaN before all:
places of maxima are counted from n, those of NaNs from 0, so that it does not matter what %m is beside a NaN
(XLA:CPU's own maximum forgets some).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jstitch.ir.expr import Expr, Ref, call
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, lookup
from jstitch.ir.ops.numerics import largest
from jstitch.ir.types import TensorType
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

_SMALLEST = "stablehlo.minimum"
_MONOIDS = {"gt": "stablehlo.maximum", "lt": _SMALLEST}


def rewrite_argmax(graph: Graph) -> Graph:
    """The graph with such reductions of which only the index is used in two."""
    used = {v for op in graph.walk() for v in op.uses}
    used.update(v for g in (graph, *(r for op in graph.walk() for r in op.regions)) for v in g.outputs)

    def rule(op: Op, producer: Producer) -> Replacement | None:
        monoid = _monoid(op, producer)
        return None if monoid is None or op.results[0] in used else _Builder(op).build(monoid)

    return rewrite(graph, rule, of=("stablehlo.reduce",))


def _monoid(op: Op, producer: Producer) -> str | None:
    """What the value is combined by, when the op is an argmax or argmin along one dimension."""
    if len(op.operands) != 4 or len(op.attrs["dimensions"]) != 1:
        return None
    positions, start = producer(op.operands[1]), build.splat_value(producer(op.operands[3]))
    if positions is None or positions.attrs.get("iota_dimension") != op.attrs["dimensions"][0]:
        return None
    monoid = _combiner(op.regions[0])
    if monoid is None or start is None or start != 0 or not op.operands[0].tensor.size:
        return None
    init, identity = build.splat_value(producer(op.operands[2])), lookup(monoid).identity
    assert identity is not None
    fits = init is not None and init == identity(op.operands[0].tensor.dtype)
    return monoid if fits and _counts(op) else None


def _counts(op: Op) -> bool:
    """Whether the index dtype holds every position, counted from 0 or from n."""
    dtype = op.operands[1].tensor.dtype
    return dtype.is_integer and 2 * op.operands[0].shape[op.attrs["dimensions"][0]] <= largest(dtype)


def _combiner(region: Graph) -> str | None:
    """The monoid of the values, by what the region computes from (a, i) and (b, j)."""
    made: dict[Value, Expr] = {v: Ref(name) for v, name in zip(region.inputs, "aibj", strict=True)}
    for op in region.ops:
        rule = lookup(op.name).scalar
        expression = rule(op) if rule is not None else None
        if expression is None:
            return None
        made[op.result] = expression(*(made.get(v, Ref("?")) for v in op.operands))
    found = [made.get(v) for v in region.outputs]
    return next((m for larger, m in _MONOIDS.items() if found == _expected(larger)), None)


def _expected(larger: str) -> list[Expr]:
    a, i, b, j = map(Ref, "aibj")
    first = call("or_", call(larger, a, b), call("ne", a, a))
    same = call("and_", call("eq", a, b), call("lt", i, j))
    return [call("select", first, a, b), call("select", call("or_", first, same), i, j)]


@dataclass
class _Builder:
    op: Op
    ops: list[Op] = field(default_factory=list)

    def _emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def build(self, monoid: str) -> Replacement:
        x, positions, init, _ = self.op.operands
        dims = tuple(self.op.attrs["dimensions"])
        best = self._emit(build.reduce(monoid, x, init, dims))
        place = self._places(x, positions, self._spread(best, x.shape, dims[0]))
        start = self._filled(TensorType((), positions.tensor.dtype), largest(positions.tensor.dtype))
        first = self._emit(build.reduce(_SMALLEST, place, start, dims))
        if x.tensor.dtype.is_float:
            first = self._uncounted(first, x.shape[dims[0]])
        return Replacement((best, first), tuple(self.ops))

    def _filled(self, type_: TensorType, value: float) -> Value:
        return self._emit(build.splat(type_, value))

    def _spread(self, v: Value, shape: tuple[int, ...], dim: int) -> Value:
        return self._emit(build.broadcast(v, shape, [d for d in range(len(shape)) if d != dim]))

    def _places(self, x: Value, positions: Value, best: Value) -> Value:
        """The position where it counts, the largest integer elsewhere."""
        t = positions.tensor
        equal = self._emit(build.compare("EQ", x, best))
        nowhere = self._filled(t, largest(t.dtype))
        if not x.tensor.dtype.is_float:
            return self._emit(build.select(equal, positions, nowhere))
        size = self._filled(t, x.shape[self.op.attrs["dimensions"][0]])
        later = self._emit(build.add(positions, size))
        nan = self._emit(build.compare("NE", x, x))
        return self._emit(build.select(nan, positions, self._emit(build.select(equal, later, nowhere))))

    def _uncounted(self, first: Value, n: int) -> Value:
        """Places of maxima, which were counted from n, from 0."""
        size = self._filled(first.tensor, n)
        earlier = self._emit(build.elementwise("stablehlo.subtract", first, size))
        return self._emit(build.select(self._emit(build.compare("GE", first, size)), earlier, first))
