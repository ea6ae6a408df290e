"""Hand the part of a pattern that only reads another one over to that one, where they cannot be one kernel.

    {p = f x}, q = dot p, {s = sum (g p);  r = h q, s}      ->      {p = f x;  s = sum (g p)}, {r = h q, s}

The loss of a model and its gradient with respect to the logits are such a pair: what the loss reads was made
by the kernel of the gradient, and a planner put its sum into a kernel that waits for a product in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.build import grows
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free, make_patterns, with_constants
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost.cost_model import kernel_cost
from jstitch.passes.fuse.break_cycles import CYCLE, break_cycles
from jstitch.passes.fuse.keep_patterns import cut_edges

LEAST = 1 << 16  # bytes between two patterns that are worth a look
SEARCH = 2000  # ops looked at for a way from one pattern to another; then there is said to be one


def hand_over(plan: FusionPlan, context: Context) -> FusionPlan:
    """The plan with such parts where they move fewer bytes."""
    search = _Search(plan.frame, list(plan.patterns), context.profile)
    if not any([search.improve(number) for number in range(len(plan.patterns))]):
        return plan
    found = cut_edges(plan, search.patterns, lambda *_: CYCLE)
    return break_cycles(found, plan)


@dataclass(eq=False)
class _Search:
    frame: Graph
    patterns: list[FusionPattern]
    profile: Profile
    owner: dict[Op, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producers = self.frame.producers()
        self.place = {op: n for n, op in enumerate(self.frame.ops)}
        for number, pattern in enumerate(self.patterns):
            self._own(number, pattern)

    def _own(self, number: int, pattern: FusionPattern) -> None:
        self.patterns[number] = pattern
        self.owner.update((op, number) for op in pattern.ops if not is_free(op))

    def improve(self, number: int) -> bool:
        """Hand a part of one pattern over to one that it reads, if that pays."""
        for other in self._makers(number):
            parts = self._parts(number, other)
            if parts is not None and self._pays(number, other, parts):
                for n, part in zip((other, number), parts, strict=True):
                    self._own(n, part)
                return True
        return False

    def _makers(self, number: int) -> list[int]:
        """Patterns that make much of what this one reads."""
        made: dict[int, int] = {}
        for v in self.patterns[number].inputs:
            op = self.producers.get(v)
            if op in self.owner:
                made[self.owner[op]] = made.get(self.owner[op], 0) + v.tensor.nbytes
        return [n for n, nbytes in made.items() if nbytes >= LEAST]

    def _parts(self, number: int, other: int) -> tuple[FusionPattern, FusionPattern] | None:
        """The other pattern with what it can take over, and what is left of this one."""
        pattern, taker = self.patterns[number], self.patterns[other]
        taken = self._early(pattern, other)
        left = [op for op in pattern.ops if op not in taken and not is_free(op)]
        if not taken or not left:
            return None
        groups = [with_constants(ops, self.producers) for ops in ((*taker.ops, *taken), left)]
        made = make_patterns(self.frame, groups, "hand_over")
        return replace(made[0], origin=taker.origin), replace(made[1], origin=pattern.origin)

    def _early(self, pattern: FusionPattern, other: int) -> set[Op]:
        """Ops that wait for nothing behind the other pattern; not those that repeat elements for the rest."""
        late = {v for v in pattern.inputs if self._comes_after(v, other)}
        found: dict[Op, None] = {}
        for op in pattern.ops:
            if not is_free(op) and late.isdisjoint(op.operands):
                found[op] = None
            elif not is_free(op):
                late.update(op.results)
        wanted = {*pattern.outputs}
        for op in reversed(list(found)):
            if grows(op) and wanted.isdisjoint(op.results):
                del found[op]
            else:
                wanted.update(op.operands)
        return set(found)

    def _comes_after(self, value: Value, other: int) -> bool:
        """Whether a value from outside waits for a pattern that did not make it."""
        op = self.producers.get(value)
        if op is None or is_free(op) or self.owner.get(op) == other:
            return False
        first = self.place[next(op for op in self.patterns[other].ops if not is_free(op))]
        seen: set[Op] = {op}
        todo = [op]
        while todo:
            found = todo.pop()
            if self.owner.get(found) == other or len(seen) > SEARCH:
                return True
            new = {m for v in self._waits(found) if (m := self.producers.get(v)) is not None} - seen
            new = {m for m in new if self.place[m] >= first and not is_free(m)}
            seen |= new
            todo += new
        return False

    def _waits(self, op: Op) -> Sequence[Value]:
        """What must be there before an op's kernel can begin."""
        number = self.owner.get(op)
        return op.uses if number is None else self.patterns[number].inputs

    def _pays(self, number: int, other: int, parts: tuple[FusionPattern, FusionPattern]) -> bool:
        new, old = parts, (self.patterns[number], self.patterns[other])
        if sum(map(_moved, new)) >= sum(map(_moved, old)):
            return False
        return sum(map(self._seconds, new)) < sum(map(self._seconds, old))

    def _seconds(self, pattern: FusionPattern) -> float:
        return kernel_cost(pattern, self.profile).seconds(self.profile.machine)


def _moved(pattern: FusionPattern) -> int:
    return sum(v.tensor.nbytes for v in (*pattern.inputs, *pattern.outputs))
