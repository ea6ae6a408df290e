"""Loops whose turns need nothing of other elements, with what is only theirs around them: one kernel each.

%d = subtract %r, %v;  %a = while(...) {... %d ...};  %s = add %a, %v    ->    {subtract, while, add}

A turn of XLA's loop is a few kernels, and what it goes on from is in memory in between. In one kernel a
program does all turns of its elements. What such a loop is, is asked of the kernel that it would be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.intrinsics import cpu_cpi
from jstitch.codegen.kernel_ir import Kernel
from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, Reason, is_free, make_pattern, with_constants
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.cost.recurrence_cost import xla_cost_of
from jstitch.passes.fuse.convexity import waits_for_itself
from jstitch.passes.fuse.gate import margin_of
from jstitch.passes.fuse.stand_ins import without
from jstitch.passes.fuse.turns_apart import turns_apart
from jstitch.passes.graph.find_recurrence import Recurrence, find_recurrence, may_recur, takes_loops
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.lower_recurrence import gathers
from jstitch.passes.schedule.latency import kernel_latency

RECURRENCE = "find_recurrences"
"""The origin of a loop's pattern."""
RULE = "recurrence"
MOST_AROUND = 64  # ops that are taken into a loop's kernel
MOST_TRIES = 12  # of them, one by one, where all together are none
TURN_SECONDS = 1.6e-7  # of a GPU's turn at least: a quarter of what a load from memory takes
TREE_LAUNCHES, TREE_PASSES = 4, 2.5  # of XLA's trees over a GPU's memory, as its compiler makes them
WINDOW = 16  # turns up to which XLA's compiler makes no tree of them
TOGETHER = "of {found} turns XLA makes a kernel with what is around them, as of all up to {bound}"
SLOW = "its turns are modelled to take {found} us, XLA's {bound} us"
APART = "all its turns in one kernel are modelled to take {found} us, kernels of single turns {bound} us"
LITTLE = "all its turns are {found} us of work, a call of a kernel takes {bound} us"
WAITS = "its turns are modelled to wait {found} us for memory, XLA's tree takes {bound} us"
DEAR, FEW = 38, 16  # cycles of a function, and numbers of which one after another it takes longer than XLA's


@dataclass(frozen=True)
class Recurrences:
    """patterns: of loops that are kernels. refused: other loops -> why they are none."""

    patterns: Sequence[FusionPattern] = ()
    refused: Mapping[Op, Reason] = field(default_factory=dict)


def find_recurrences(frame: Graph, context: Context) -> Recurrences:
    """Every loop of the frame that a kernel can be; none waits for itself by way of others."""
    if not takes_loops(context):
        return Recurrences()
    found: list[FusionPattern] = []
    refused: dict[Op, Reason] = {}
    for op in filter(may_recur, frame.ops):
        pattern = _Search(frame, context).around(op)
        if isinstance(pattern, Reason):
            refused[op] = pattern
        else:
            found.append(pattern)
            frame = without(frame, pattern)
    return Recurrences(tuple(found), refused)


class _Search:
    """What becomes a kernel with a loop."""

    def __init__(self, frame: Graph, context: Context) -> None:
        self.frame, self.context = frame, context
        self.producers, self.users = frame.producers(), frame.users()

    def around(self, loop: Op) -> FusionPattern | Reason:
        """The loop, with what may join it as long as a kernel holds it and its turns do not suffer."""
        best = self.pattern([loop])
        found = self.kernel_of(best)
        if isinstance(found, Reason):
            return found
        slow = self.waits(loop, found) or self.takes_longer(loop, best, found)
        if slow is not None:
            return slow
        whole = self.with_all(best, found) or self.one_by_one(best, found)
        return self.in_one(loop, whole) or whole

    def with_all(self, best: FusionPattern, before: Kernel) -> FusionPattern | None:
        """With everything that may join, if that is well."""
        joined: set[Op] = set()
        whole = best
        while (op := next(self.near(whole, joined), None)) is not None and len(joined) < MOST_AROUND:
            joined.add(op)
            whole = self.pattern([*self.with_repeats(op), *_made(whole)])
        kernel = self.kernel_of(whole) if joined else before
        dear = any(map(_is_dear, joined)) and not self.in_vectors(before)
        well = isinstance(kernel, Kernel) and not dear and self.waits_less(kernel, before)
        return whole if well else None

    def one_by_one(self, best: FusionPattern, before: Kernel) -> FusionPattern:
        """With one more op after the other."""
        tried: set[Op] = set()
        while (op := next(self.near(best, tried), None)) is not None and len(tried) < MOST_TRIES:
            tried.add(op)
            more = self.pattern([*self.with_repeats(op), *_made(best)])
            kernel = self.kernel_of(more)
            if isinstance(kernel, Kernel) and self.is_well(op, kernel, before):
                best, before = more, kernel
        return best

    def with_repeats(self, op: Op) -> list[Op]:
        """The op, after what only repeats elements for it: such values are not worth memory."""
        makers = dict.fromkeys(self.producers[v] for v in op.operands if v in self.producers)
        return [*(m for m in makers if build.grows(m)), op]

    def is_well(self, op: Op, kernel: Kernel, before: Kernel) -> bool:
        """Whether turns do not wait for what the op brings. A transpose of its own would take longer."""
        if "permutation" in op.attrs:
            return True
        return self.waits_less(kernel, before) and (self.in_vectors(before) or not _is_dear(op))

    def waits_less(self, kernel: Kernel, before: Kernel) -> bool:
        """Whether there are no more gathers in it; a GPU's threads wait for them together."""
        return self.context.machine.device is not None or gathers(kernel) <= gathers(before)

    def in_vectors(self, kernel: Kernel) -> bool:
        """Whether neighbours are computed together: where turns are the innermost loop they are not."""
        stages = (stage for phase in kernel.phases for lane in phase.lanes for stage in lane.stages)
        return self.context.machine.device is not None or any(stage.turn for stage in stages)

    def pattern(self, ops: Sequence[Op]) -> FusionPattern:
        return make_pattern(self.frame, with_constants(ops, self.producers), RECURRENCE)

    def kernel_of(self, pattern: FusionPattern) -> Kernel | Reason:
        """The kernel that is the pattern, or why none is."""
        between = waits_for_itself(self.frame, pattern)
        if between is not None:
            return Reason("cycle", f"{between.name} between its ops waits for the kernel, which waits for it")
        what = pattern.ops, pattern.inputs, pattern.outputs
        try:
            return lower_kernel("recurrence", *what, self.context.profile, self.context.options.arena_bytes)
        except CannotLowerError as error:
            return error.reason

    def waits(self, loop: Op, kernel: Kernel) -> Reason | None:
        """Why XLA is quicker: each turn waits for the one before."""
        found = find_recurrence(loop, self.producers.get)
        if isinstance(found, Reason) or self.context.options.tune == "off":
            return None
        device = self.context.machine.device
        if device is not None:
            return self.for_memory(loop, found)
        return self.for_functions(found) or (self.for_call(found, kernel) if is_control(loop) else None)

    def takes_longer(self, loop: Op, pattern: FusionPattern, kernel: Kernel) -> Reason | None:
        """Why others are quicker than a kernel of rows in tiles: its programs are few, or products large."""
        margin, machine = margin_of(self.context), self.context.machine
        if not kernel.arena or math.isinf(margin):
            return None
        try:
            ours = kernel_latency(kernel, self.context).seconds
        except (NoRoom, CannotBuildError) as error:
            return Reason(RULE, str(error))
        theirs = xla_cost_of(pattern, machine).seconds(machine)
        if ours >= margin * theirs:
            return Reason(RULE, SLOW, ours * 1e6, theirs * 1e6)
        return None if machine.device is not None else self.apart(loop, ours)

    def apart(self, loop: Op, ours: float) -> Reason | None:
        """On a CPU, why kernels of single turns are quicker: they are on all cores."""
        found = find_recurrence(loop, self.producers.get)
        turns = math.inf if isinstance(found, Reason) else turns_apart(found, self.context)
        return None if ours <= turns else Reason(RULE, APART, ours * 1e6, turns * 1e6)

    def for_call(self, found: Recurrence, kernel: Kernel) -> Reason | None:
        """On a CPU, of a few numbers in a few turns: XLA has them in the code around, without a call."""
        most = max((c.before.tensor.size for c in found.carries), default=0)
        machine = self.context.machine
        work = sum(lane.work for phase in kernel.phases for lane in phase.lanes)
        seconds = work * machine.lane_cycle * machine.lanes
        call = machine.call_seconds + machine.operand * (len(kernel.args) + len(kernel.results))
        if most > FEW or seconds > call:
            return None
        return Reason(RULE, LITTLE, seconds * 1e6, call * 1e6)

    @staticmethod
    def for_functions(found: Recurrence) -> Reason | None:
        """On a CPU, with a few numbers, for functions that take ours longer one after another."""
        most = max((c.before.tensor.size for c in found.carries), default=0)
        floats = (op for op in found.ops if op.results[0].tensor.dtype.is_float)
        slow = next((op for op in floats if cpu_cpi(lookup(op.name)) >= DEAR), None)
        if slow is None or most > FEW:
            return None
        text = f"turns wait for '{slow.name}' of {{found}} numbers, with which XLA is quicker up to {{bound}}"
        return Reason(RULE, text, most, FEW)

    def for_memory(self, loop: Op, found: Recurrence) -> Reason | None:
        """On a GPU, for memory, where XLA has no turns: it adds windows up as a tree."""
        if is_control(loop):
            return None
        machine = self.context.machine
        nbytes = sum(v.tensor.nbytes for v in (*loop.operands, *loop.results))
        ours = max(found.turns * TURN_SECONDS, nbytes / machine.bandwidth(nbytes))
        theirs = TREE_LAUNCHES * machine.launch + TREE_PASSES * nbytes / machine.bandwidth(nbytes)
        if ours < theirs:
            return None
        return Reason(RULE, WAITS, ours * 1e6, theirs * 1e6)

    def in_one(self, loop: Op, pattern: FusionPattern) -> Reason | None:
        """On a GPU, of few turns: XLA has windows in one kernel with all that is around, but for dear ops."""
        device, found = self.context.machine.device, find_recurrence(loop, self.producers.get)
        if device is None or is_control(loop) or isinstance(found, Reason):
            return None
        if found.turns > WINDOW or self.context.options.tune == "off" or any(map(_is_dear, pattern.ops)):
            return None
        return Reason(RULE, TOGETHER, found.turns, WINDOW)

    def near(self, pattern: FusionPattern, tried: set[Op]) -> Iterator[Op]:
        """Ops that make what only the pattern reads, a part a turn; then ops that read what it makes."""
        inside = {op for op in pattern.ops if not is_free(op)}
        most = max(v.tensor.size for op in pattern.ops if may_recur(op) for v in op.results)
        for v in pattern.inputs:
            maker = self.producers.get(v)
            once = v.tensor.size >= most and inside.issuperset(self.users[v]) and v not in self.frame.outputs
            if maker is not None and once and self.may_join(maker, tried):
                yield maker
        for v in pattern.outputs:
            behind = (user for user in self.users.get(v, ()) if user not in inside)
            yield from (user for user in behind if self.may_join(user, tried))

    def may_join(self, op: Op, tried: set[Op]) -> bool:
        if op in tried or is_free(op):
            return False
        if not all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
            return False
        return lookup(op.name).op_class in (OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.SHAPE)


def _is_dear(op: Op) -> bool:
    return lookup(op.name).op_class is OpClass.EXPENSIVE


def _made(pattern: FusionPattern) -> Iterator[Op]:
    return (op for op in pattern.ops if not is_free(op))
