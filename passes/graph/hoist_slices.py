"""Take the part that is read of what a value is made of, not of the value, where others read that, too.

    %y = tanh %x : [257, 4096]                              %y = tanh %x                   others read this
    %p = gather %y, %i : [8, 4096]         ->               %q = gather %x, %i
                                                            %p = tanh %q

Else the kernel that makes %y for later readers, behind a product or scatter, writes all of it for the eight
rows. Parts of a value that nobody reads as a whole are taken early, too: none of the rest is made. Only where
all behind the value is elementwise, of what is in memory. What one kernel makes and takes a part of stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.rewrite import map_frames
from jstitch.passes.graph.cse import cse
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.is_moved import IN_KERNELS

LARGE = 1 << 16  # bytes of a value; others stay in a core's cache
NARROW = 4  # a value has so many times the elements of all parts that are read of it
MOST = 32  # ops that are computed again for a part
SHARE = 0.5  # of the time that the value's bytes take, for computing them


def hoist_slices(graph: Graph, context: Context) -> Graph:
    """The graph with small parts taken early."""
    return map_frames(graph, lambda frame: _Search(frame, context.machine).hoisted())


@dataclass(eq=False)
class _Search:
    frame: Graph
    machine: Machine

    def __post_init__(self) -> None:
        self.producers, self.users = self.frame.producers(), self.frame.users()
        self.returned = set(self.frame.outputs)

    def hoisted(self) -> Graph:
        parts = filter(build.takes_part, self.frame.ops)
        found = {op: made for op in parts if (made := self._early(op))}
        if not found:
            return self.frame
        ops = [new for op in self.frame.ops for new in found.get(op, (op,))]
        return dce(cse(Graph(self.frame.inputs, tuple(ops), self.frame.outputs)))

    def _early(self, part: Op) -> tuple[Op, ...]:
        """The part of what its value is made of, and what that is made of it; (): it stays where it is."""
        value = part.operands[0]
        if value.tensor.nbytes < LARGE or _is_by_row(part) or not self._is_narrow(value):
            return ()
        cone = self._cone(value)
        if not cone:
            return ()
        made = [new.located(part) for new in _made_early(part, cone, self.producers)]
        others = list(self._others(cone))
        if others and not (self._pays(made, value) and self._wait(others, part)):
            return ()
        return tuple(made)

    def _pays(self, made: list[Op], value: Value) -> bool:
        """Whether computing the part again takes less time than the value's bytes."""
        cycles = sum(lookup(op.name).cpi * op.result.tensor.size for op in made)
        nbytes = value.tensor.nbytes
        return cycles * self.machine.lane_cycle <= SHARE * nbytes / self.machine.bandwidth(nbytes)

    def _wait(self, others: list[Op], part: Op) -> bool:
        """Whether kernels that have these ops wait for ops of no kernel that the part does not wait for."""
        return any(self.latest[op] > self.depth[part] for op in others)

    def _is_narrow(self, value: Value) -> bool:
        """Whether all parts that are read of the value are small."""
        parts = (op for op in self.users[value] if build.takes_part(op) and op.operands[0] is value)
        return sum(op.result.tensor.size for op in parts) * NARROW <= value.tensor.size

    def _cone(self, value: Value) -> list[Op]:
        """The elementwise ops behind the value, in order; none, where they read what no kernel writes."""
        found: dict[Op, None] = {}
        todo = [value]
        while todo:
            v = todo.pop()
            op = self.producers.get(v)
            if op is None or op in found or _is_small(op, v) or (found and self._is_in_memory(v)):
                continue
            if not lookup(op.name).op_class.is_elementwise or len(op.results) > 1 or len(found) == MOST:
                return []
            found[op] = None
            todo += op.operands
        return [op for op in self.frame.ops if op in found]

    def _is_in_memory(self, v: Value) -> bool:
        """Whether it has to be, whoever reads the part."""
        op = self.producers.get(v)
        around = [*self.users.get(v, ()), *([] if op is None else [op])]
        return op is None or v in self.returned or not all(map(_is_of_kernels, around))

    def _others(self, cone: list[Op]) -> Iterator[Op]:
        """Ops that read what the cone makes, but for parts of its last result; and those of returned ones."""
        inside = set(cone)
        for op in cone:
            users = self.users.get(op.result, ())
            is_last = op is cone[-1]
            yield from (u for u in users if u not in inside and not (is_last and build.takes_part(u)))
            if op.result in self.returned:
                yield op

    @cached_property
    def depth(self) -> dict[Op, int]:
        """How many ops of no kernel each waits for, one after the other."""
        found: dict[Op, int] = {}
        for op in self.frame.ops:
            before = (self.producers[v] for v in op.uses if v in self.producers)
            found[op] = max((found[b] + (not _is_of_kernels(b)) for b in before), default=0)
        return found

    @cached_property
    def latest(self) -> dict[Op, int]:
        """The greatest depth of an op that may be in the same kernel, as it reads what each makes."""
        found: dict[Op, int] = {}
        for op in reversed(self.frame.ops):
            users = (user for v in op.results for user in self.users.get(v, ()) if _is_of_kernels(user))
            found[op] = max((found[user] for user in users), default=self.depth[op])
        return found


def _is_of_kernels(op: Op) -> bool:
    return is_free(op) or lookup(op.name).op_class in IN_KERNELS


def _is_small(op: Op, v: Value) -> bool:
    """Whether it is a constant, or a scalar, also for every element."""
    return is_free(op) or v.tensor.shape == () or _is_scalar_for_all(op)


def _is_scalar_for_all(op: Op) -> bool:
    return build.is_broadcast(op) and op.operands[0].tensor.shape == ()


def _is_by_row(op: Op) -> bool:
    """Whether it looks up an element of each row: a row's kernel has the row at hand."""
    return bool(op.attrs.get("operand_batching_dims"))


def _made_early(part: Op, cone: list[Op], producers: Mapping[Value, Op]) -> Iterator[Op]:
    """The part taken of all that the cone reads, and the cone's ops on these."""
    whole, taken = part.operands[0], part.result.tensor.shape
    new: dict[Value, Value] = {}
    for op in cone:
        for v in op.operands:
            if v not in new and v.tensor.shape == whole.tensor.shape:
                early = _taken(part, v, producers.get(v))
                new[v] = early.result
                yield early
        kind = TensorType(taken, op.result.tensor.dtype)
        new[op.result] = part.result if op.result is whole else Value(kind)
        yield replace(op, operands=tuple(new.get(v, v) for v in op.operands), results=(new[op.result],))


def _taken(part: Op, v: Value, maker: Op | None) -> Op:
    """The part of another value."""
    kind = TensorType(part.result.tensor.shape, v.tensor.dtype)
    constant = build.splat_value(maker)
    if constant is not None:
        return build.splat(kind, constant)
    if maker is not None and _is_scalar_for_all(maker):
        return build.broadcast(maker.operands[0], kind.shape, ())
    return replace(part, operands=(v, *part.operands[1:]), results=(Value(kind),))
