"""Integer scalars of a loop's body that only depend on the number of the turn, by that number.

%i counts 0, 1, ...;  %a = subtract 128, %i;  %b = subtract %a, 1      ->      %b = 127 - turn
"""

from __future__ import annotations

from collections.abc import Mapping

from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index, Var, add, bounds, const, mul, var
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.rewrite import Producer
from jstitch.passes.graph.count_turns import Counter, number_of

UNKNOWN = 1 << 24  # how many numbers one may be that is not known yet


def turn_numbers(op: Op, counter: Counter, turn: Var, producer: Producer) -> Mapping[Value, Index]:
    """Those of a loop's body, and constants around it. producer: of values around the loop."""
    body = op.regions[-1]
    found = _Numbers(producer)
    found.indices[body.inputs[counter.place]] = add(const(counter.start), mul(var(turn), counter.step))
    found.indices |= _counted_too(op, counter, turn, producer)
    for o in body.ops:
        found.add(o)
    return found.indices


def _counted_too(op: Op, counter: Counter, turn: Var, producer: Producer) -> Mapping[Value, Index]:
    """Other carried integers that grow by the same number in each turn."""
    body = op.regions[-1]
    starts = {n: number_of(producer(v)) for n, v in enumerate(op.operands) if _is_scalar(v)}
    known = {n: k for n, k in starts.items() if k is not None and n != counter.place}
    if not known:
        return {}
    tried = _Numbers(producer)
    before = {n: add(var(Var(f"carried {n}", UNKNOWN)), const(-UNKNOWN // 2)) for n in known}  # or negative
    tried.indices |= {body.inputs[n]: index for n, index in before.items()}
    for o in body.ops:
        tried.add(o)
    found: dict[Value, Index] = {}
    for n, index in before.items():
        after = tried.indices.get(body.outputs[n])
        step = add(after, mul(index, -1)) if after is not None else index
        if step.is_const:
            index = add(const(known[n]), mul(var(turn), step.const))
            found |= {body.inputs[n]: index} if _fits(index, body.inputs[n].tensor.dtype) else {}
    return found


class _Numbers:
    """What is known so far. tests: comparisons of such scalars that always end the same way."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.indices: dict[Value, Index] = {}
        self.tests: dict[Value, bool] = {}

    def add(self, op: Op) -> None:
        if len(op.results) != 1 or not _is_scalar(op.results[0]):
            return
        value = op.result
        if value.tensor.dtype is DType.BOOL:
            decided = self.decided(op)
            self.tests |= {} if decided is None else {value: decided}
        elif value.tensor.dtype.is_integer:
            index = self.index(op)
            self.indices |= {value: index} if index is not None and _fits(index, value.tensor.dtype) else {}

    def known(self, v: Value) -> Index | None:
        if v not in self.indices:
            number = number_of(self.producer(v)) if _is_scalar(v) else None
            return None if number is None else const(number)
        return self.indices[v]

    def index(self, op: Op) -> Index | None:
        """What an op of integers makes."""
        number = number_of(op)
        if number is not None:
            return const(number)
        match op.name, [self.known(v) for v in op.operands]:
            case "stablehlo.convert", [Index() as a]:
                return a
            case "stablehlo.add", [Index() as a, Index() as b]:
                return add(a, b)
            case "stablehlo.subtract", [Index() as a, Index() as b]:
                return add(a, mul(b, -1))
            case "stablehlo.multiply", [Index() as a, Index() as b] if b.is_const or a.is_const:
                return mul(a, b.const) if b.is_const else mul(b, a.const)
            case "stablehlo.select", [_, a, b] if op.operands[0] in self.tests:
                return a if self.tests[op.operands[0]] else b
        return None

    def decided(self, op: Op) -> bool | None:
        """How a comparison with 0 ends, where it always ends the same way: is an index negative?"""
        match op.name, [self.known(v) for v in op.operands]:
            case "stablehlo.compare", [Index() as a, Index() as b]:
                low, high = bounds(add(a, mul(b, -1)))
                if op.attrs["comparison_direction"] == "LT" and (high < 0 or low >= 0):
                    return high < 0
        return None


def _is_scalar(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.shape == ()


def _fits(e: Index, dtype: DType) -> bool:
    """Whether the type can hold all that the index may be: others wrap round."""
    low, high = bounds(e)
    bits = 8 * dtype.itemsize
    least, most = (0, 2**bits - 1) if dtype.is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return least <= low and high <= most
