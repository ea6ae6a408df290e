"""Let a kernel write its value into a larger tensor, in place, where a dynamic_update_slice would copy it.

    %y = kernel(...)                                        (the body of a scan)
    %s = dynamic_update_slice %stack, %y, %i      ->        %s = kernel(..., %stack, %i), in %stack's memory

Only a tensor that comes into the frame and has no other reader, or such a one after other updates; and slices
that are one block of memory: leading dimensions of size 1, then whole ones. XLA spends a launch on each such
update, in loops above all.
"""

from __future__ import annotations

from dataclasses import replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Var, linearize, var
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.types import TensorType
from jstitch.ir.unwind import Deep, unwind
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Update, is_free
from jstitch.passes.graph.keep_counters import LEFT


def absorb_updates(plan: FusionPlan, context: Context) -> FusionPlan:
    """The plan whose patterns take over the updates that their values go into."""
    if not context.profile.updates or not plan.patterns:
        return plan
    finder = _Finder(plan)
    return replace(plan, patterns=tuple(finder.absorb(n) for n in range(len(plan.patterns))))


class _Finder:
    def __init__(self, plan: FusionPlan) -> None:
        self.frame, self.patterns = plan.frame, plan.patterns
        self.users, self.producers = plan.frame.users(), plan.frame.producers()
        self.owner = {op: n for n, p in enumerate(plan.patterns) for op in p.ops if not is_free(op)}
        self.given = set(plan.frame.inputs)
        self.taken: dict[int, list[Value]] = {}

    def absorb(self, number: int) -> FusionPattern:
        pattern = self.patterns[number]
        found = [u for v in pattern.outputs for u in unwind(self._updates(number, v, v, ()))]
        if not found:
            return pattern
        self.taken[number] = [v for u in found for v in (u.op.operands[0], *u.starts)]
        places = dict.fromkeys(op for u in found for v in u.starts for op in self._arithmetic(v))
        ops = (*(op for op in places if op not in pattern.ops), *pattern.ops)
        made = {v for op in ops for v in op.results}
        inputs = dict.fromkeys((*pattern.inputs, *(v for op in places for v in op.operands if v not in made)))
        return replace(pattern, ops=ops, inputs=tuple(inputs), updates=tuple(found))

    def _arithmetic(self, start: Value) -> list[Op]:
        """The ops that compute where an update goes, and do nothing else, in order."""
        found: dict[Op, None] = {}
        todo = [start]
        while todo:
            op = self.producers.get(todo.pop())
            if op is not None and (LEFT in op.attrs or is_free(op)):
                found = {op: None, **{o: None for o in found if o is not op}}
                todo += op.operands
        return list(found)

    def _updates(self, number: int, value: Value, seen: Value, chain: tuple[Op, ...]) -> Deep[list[Update]]:
        """Updates that write `value`, which `seen` is after the reshapes of `chain`."""
        found: list[Update] = []
        for op in self.users.get(seen, ()):
            if op in self.owner:
                continue
            if lookup(op.name).in_place and op.operands[1] is seen:
                if self._is_safe(number, op):
                    found.append(Update(op, value, chain, self._only(seen, op) and self._lone(chain)))
            elif keeps_order(op):
                found += yield self._updates(number, value, op.result, (*chain, op))
        return found

    def _only(self, value: Value, op: Op) -> bool:
        return len(self.users[value]) == 1 and value not in self.frame.outputs

    def _lone(self, chain: tuple[Op, ...]) -> bool:
        return all(self._only(op.operands[0], op) for op in chain)

    def _is_safe(self, number: int, op: Op) -> bool:
        operand, _, *starts = op.operands
        if not self._comes_in(operand) or not self._only(operand, op) or not _is_block(op):
            return False
        if self._waits(operand, number, scalars=True):
            return False
        return not any(self._waits(v, number) for v in starts)

    def _comes_in(self, value: Value) -> bool:
        """Whether it is a tensor that comes into the frame, perhaps after other updates of it."""
        while value not in self.given:
            op = self.producers.get(value)
            if op is None or op in self.owner or not lookup(op.name).in_place:
                return False
            if not self._only(op.operands[0], op):
                return False
            value = op.operands[0]
        return True

    def _waits(self, value: Value, number: int, scalars: bool = False) -> bool:
        """Whether it depends on the pattern. scalars: also if only by those that a kernel computes again."""
        todo, seen = [value], set[Value]()
        while todo:
            v = todo.pop()
            op = self.producers.get(v)
            if op is None or v in seen:
                continue
            seen.add(v)
            other = self.owner.get(op)
            if other == number and (scalars or not _is_scalar(op)):
                return True
            if other is None or other == number:
                todo += op.uses
            else:
                todo += (*self.patterns[other].inputs, *self.taken.get(other, ()))
        return False


def keeps_order(op: Op) -> bool:
    """The same elements in the same order: a reshape, or a broadcast that only adds dimensions of size 1."""
    definition = lookup(op.name)
    if definition.op_class is not OpClass.SHAPE or definition.cases is None:
        return False
    index = tuple(var(Var(f"i{d}", n)) for d, n in enumerate(op.result.shape))
    cases = definition.cases(op, index)
    if len(cases) != 1 or op.operands[cases[0].operand].tensor.size != op.result.tensor.size:
        return False
    source = linearize(cases[0].index, op.operands[cases[0].operand].shape)
    return source == linearize(index, op.result.shape)


def _is_scalar(op: Op) -> bool:
    return lookup(op.name).op_class.is_elementwise and op.results[0].tensor.size == 1


def _is_block(op: Op) -> bool:
    """Whether the slice is one piece of the operand's memory."""
    if not isinstance(op.results[0].type, TensorType):
        return False
    whole, part = op.operands[0].shape, op.operands[1].shape
    first = next(
        (d for d, (n, m) in enumerate(zip(whole, part, strict=True)) if m != 1 or n == 1), len(whole)
    )
    return whole[first:] == part[first:] and 0 not in part


def contracted(pattern: FusionPattern) -> tuple[tuple[Value, ...], tuple[Op, ...], tuple[Value, ...]]:
    """Inputs, ops and outputs of the kernel with its updates."""
    made = {v for op in pattern.ops for v in op.results}
    inputs = dict.fromkeys(pattern.inputs)
    extra: dict[Op, None] = {}
    for u in pattern.updates:
        inputs.update(dict.fromkeys(v for v in (u.op.operands[0], *u.starts) if v not in made))
        extra.update(dict.fromkeys((*u.chain, u.op)))
    gone = {u.value for u in pattern.updates if u.alone}
    outputs = [v for v in pattern.outputs if v not in gone]
    outputs += [u.op.result for u in pattern.updates]
    return tuple(inputs), (*pattern.ops, *extra), tuple(outputs)
