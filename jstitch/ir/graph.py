"""The Graph IR: SSA over whole tensors, one block, regions as nested Graphs.

    Graph ::= inputs: Value*  ops: Op*  outputs: Value*
    Op    ::= results: Value* = name operands: Value* {attrs} (regions: Graph*)
    Value ::= a type; identity is the name

Ops stand in topological order. A region may use values of the graphs around it (captures). Values, ops
and graphs compare by identity; passes return new graphs and never change one in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jstitch.ir.types import TensorType, Type


@dataclass(frozen=True, eq=False)
class Value:
    """One SSA value."""

    type: Type

    @property
    def tensor(self) -> TensorType:
        """The value's tensor type. Raises TypeError for tokens and other opaque types."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"Expected a tensor, found a value of type '{self.type}'.")
        return self.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape


@dataclass(frozen=True, eq=False)
class Op:
    """One operation. `name` is StableHLO's own (`stablehlo.add`), a key of the op table.

    `attrs` holds plain Python values: ints, strings, bools, tuples of ints, NumPy arrays (constants;
    a splat is a broadcast array whose strides are all 0). `source` is the frontend's handle on the
    original MLIR operation, which an opaque op is cloned from on export; nothing else looks at it.
    `loc` is the user's source line, `file:line (function)`, or ""; `scope` the names around it, outermost
    first (`jit(step)/transpose(jvp(norm))`, see jstitch.ir.scope). What is computed depends on neither.
    """

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    regions: tuple[Graph, ...] = ()
    loc: str = ""
    source: object = None
    scope: str = ""

    def located(self, origin: Op) -> Op:
        """This op, and those right in it, where `origin` stands in the user's code, unless it has a place."""
        if self.loc or self.scope:
            return self
        regions = (replace(r, ops=tuple(op._placed(origin) for op in r.ops)) for r in self.regions)
        return replace(self._placed(origin), regions=tuple(regions))

    def _placed(self, origin: Op) -> Op:
        return self if self.loc or self.scope else replace(self, loc=origin.loc, scope=origin.scope)

    @property
    def result(self) -> Value:
        """The only result. Raises ValueError when there is not exactly one."""
        (value,) = self.results
        return value

    @property
    def uses(self) -> tuple[Value, ...]:
        """Operands, then the values that the op's regions capture from outside."""
        if not self.regions:
            return self.operands
        captured = dict.fromkeys(v for region in self.regions for v in region.captures)
        return self.operands + tuple(v for v in captured if v not in self.operands)


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, ops in topological order, outputs."""

    inputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Value, ...]

    @property
    def captures(self) -> tuple[Value, ...]:
        """Values used here (regions included) and defined outside, in order of first use."""
        defined = set(self.inputs).union(*(op.results for op in self.ops))
        used = dict.fromkeys(v for op in self.ops for v in op.uses)
        used.update(dict.fromkeys(self.outputs))
        return tuple(v for v in used if v not in defined)

    def users(self) -> dict[Value, list[Op]]:
        """Ops of this graph that use each value (through a region too), in program order."""
        users: dict[Value, list[Op]] = {}
        for op in self.ops:
            for value in dict.fromkeys(op.uses):
                users.setdefault(value, []).append(op)
        return users

    def producers(self) -> dict[Value, Op]:
        """The op of this graph that makes each value; graph inputs and captures are absent."""
        return {value: op for op in self.ops for value in op.results}

    def walk(self) -> Iterator[Op]:
        """All ops, those of regions after the op that holds them."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()
