"""Keep kernels in a loop only where the whole loop is modelled to be faster with them, as XLA compiles both.

    scan of 4 scalars: one kernel        with ours: 7 thunks at each turn        stays XLA's
    scan of an LSTM: 8 thunks            with ours: 7                            ours stay

XLA:CPU emits a loop of small kernels as one function, unless a call of ours stands in it; and what it does
with the ops around a call changes, too. So XLA is asked about both programs, but where what it makes of the
loop cannot matter; and about its own alone where our calls would already take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.ask_xla import ask_xla, planned_call
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import has_effects
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern, Reason
from jstitch.passes.base.rewrite import is_loop
from jstitch.passes.cost.after_slices import after_slices
from jstitch.passes.cost.call_seconds import call_seconds
from jstitch.passes.cost.program_seconds import ProgramSeconds
from jstitch.passes.cost.recurrence_cost import cost_of, xla_cost_of
from jstitch.passes.fuse.gate import margin_of
from jstitch.passes.fuse.hold_together import is_fixed
from jstitch.passes.fuse.plan_tree import Planned, contract_tree, leave, leave_all
from jstitch.xla.cpu_thunks import thunks_a_turn
from jstitch.xla.hlo import Module

RULE = "loop"
TURNS = (1, 1000)
"""Of loops whose number of turns nobody knows: kernels must be worth it for few and for many."""

Lower = Callable[[FusionPattern], Kernel | None]


@dataclass(frozen=True)
class Verdict:
    """Seconds of a loop with our kernels and without.

    thunks: what XLA starts at each turn without them; None where the loop is one kernel. least: `ours` are
    the calls' alone, and nobody asked for the rest.
    """

    ours: float
    xla: float
    thunks: int | None
    least: bool = False

    def is_within(self, margin: float) -> bool:
        return self.ours < margin * self.xla

    def reason(self, margin: float) -> Reason:
        """Why kernels of ours do not stay in the loop."""
        made = "one kernel" if self.thunks is None else f"{self.thunks} kernels and copies a turn"
        return Reason(
            RULE,
            f"the loop around it is modelled {'at least ' * self.least}{{found}} us with kernels, and must be"
            f" less than {{bound}} us,"
            f" {margin:g} of {self.xla * 1e6:.2f} us without: XLA makes it {made}",
            self.ours * 1e6,
            margin * self.xla * 1e6,
        )


def gate_loops(tree: Planned, context: Context, lower: Lower) -> Planned:
    """The plans without patterns that make loops slower. lower: a pattern's kernel, or None."""
    return _Gate(context, lower).frame(tree) if context.machine.device is None else tree


class _Gate:
    def __init__(self, context: Context, lower: Lower) -> None:
        self.context, self.lower = context, lower
        self.margin = margin_of(context)

    def frame(self, tree: Planned) -> Planned:
        """With every loop of the frame judged, those in branches too."""
        inner = dict(tree.inner)
        for op, below in tree.controls:
            judged = self.loop(tree.plan.frame, op, below) if is_loop(op) else map(self.frame, below)
            inner.update(zip(op.regions, judged, strict=True))
        return replace(tree, inner=inner)

    def loop(self, frame: Graph, op: Op, below: tuple[Planned, ...]) -> tuple[Planned, ...]:
        """What stays planned for a loop's regions."""
        patterns = [p for planned in below for p in planned.patterns() if not is_fixed(p)]
        starts = sum(1 for region in op.regions for _ in region.walk()) * self.context.machine.queued
        if all(self.is_certain(p, starts) for p in patterns):
            return below
        verdict = self.judge(frame, op, below)
        if isinstance(verdict, Verdict) and verdict.is_within(self.margin):
            return below
        why = verdict if isinstance(verdict, Reason) else verdict.reason(self.margin)
        if isinstance(verdict, Reason) or verdict.thunks is None:
            return tuple(leave_all(planned, why, is_fixed) for planned in below)
        return tuple(self.frame(leave(planned, why, is_fixed)) for planned in below)

    def is_certain(self, pattern: FusionPattern, starts: float) -> bool:
        """Whether what XLA makes of the loop cannot matter: `starts` seconds a turn, of all its ops one by
        one, are lost in the kernel's work, and XLA could copy all that the kernel touches for what it gains.
        """
        profile, machine, parts = self.context.profile, self.context.machine, after_slices(pattern)
        touched = sum(v.tensor.nbytes for v in (*pattern.inputs, *pattern.outputs))
        ours = cost_of(parts, profile).without_launches.seconds(machine)
        xla = xla_cost_of(parts, machine).without_launches.seconds(machine)
        copied = ours + machine.bandwidths.seconds(2 * touched)
        return starts < (1 - self.margin) * ours and copied < self.margin * xla

    def judge(self, frame: Graph, op: Op, below: tuple[Planned, ...]) -> Verdict | Reason:
        """The worse of few and many turns, as XLA compiles both programs; or why it cannot be asked."""
        calls: list[float] = []

        def build(pattern: FusionPattern) -> Mapping[str, Any] | None:
            kernel = self.lower(pattern)
            if kernel is None:
                return None
            calls.append(call_seconds(pattern, self.context.profile))
            return planned_call(kernel, len(calls) - 1)

        folder = self.context.options.cache_dir
        try:
            xla = ask_xla(_alone(frame, op), folder)  # which answers while we lower kernels
            regions = tuple(contract_tree(part, self.context, lambda plan: None, build) for part in below)
            nested = any(planned.inner for planned in below)
            if not nested and (least := self.least(xla(), below)) is not None:
                return least
            ours = ask_xla(_alone(frame, replace(op, regions=regions)), folder)
            answers = xla(), ours()
        except Exception as error:  # whatever XLA raises: a loop that nobody can ask about is left to it
            what = f"{type(error).__name__}: {error}".partition("\n")[0]
            return Reason(RULE, f"XLA cannot be asked about the loop around it: {what}")
        verdicts = _verdicts(*answers, calls, self.context.machine)
        return max(verdicts, key=lambda v: v.ours - self.margin * v.xla)

    def least(self, xla: Module, below: tuple[Planned, ...]) -> Verdict | None:
        """The calls of the loop's body alone, where XLA's one kernel takes no longer; else None.

        It must be plain how often the body runs: no loops or branches are inside.
        """
        loops = [i for c in xla.computations.values() for i in c.instructions.values() if i.opcode == "while"]
        if len(loops) != 1 or thunks_a_turn(xla) is not None:
            return None
        machine, body = self.context.machine, below[-1].plan.patterns
        turn = sum(call_seconds(p, self.context.profile) for p in body if self.lower(p) is not None)
        for turns in TURNS:
            trips = turns if loops[0].trips is None else loops[0].trips
            plain = ProgramSeconds(xla, machine, turns=turns, spread=machine.cores).whole
            verdict = Verdict(trips * turn, plain, None, least=True)
            if not verdict.is_within(self.margin):
                return verdict
        return None


def _verdicts(xla: Module, ours: Module, calls: list[float], machine: Machine) -> Iterator[Verdict]:
    """XLA's queues are taken to keep all cores busy, in its own program."""
    for turns in TURNS:
        plain = ProgramSeconds(xla, machine, turns=turns, spread=machine.cores)
        stitched = ProgramSeconds(ours, machine, calls, turns)
        yield Verdict(stitched.whole, plain.whole, thunks_a_turn(xla))


# -- a loop as a program of its own ----------------------------------------------------------------------


def _alone(frame: Graph, op: Op) -> Graph:
    """Nothing but one loop, and the constants that it starts from.

    It returns what the frame reads and a turn can change. Raises TypeError where that is more than tensors.
    """
    constants = _constants(frame, op)
    made = {v for c in constants for v in c.results}
    wanted = (v for o in (*constants, op) for v in o.uses)
    inputs = tuple(dict.fromkeys(v for v in wanted if v not in made))
    read, body = {*frame.users(), *frame.outputs}, op.regions[-1]
    turned = zip(op.results, body.inputs, body.outputs, strict=True)
    outputs = tuple(v for v, before, after in turned if v in read and before is not after)
    strange = next((v.type for v in (*inputs, *outputs) if not isinstance(v.type, TensorType)), None)
    if strange is not None:
        raise TypeError(f"Expected tensors in and out of the loop, found a value of type '{strange}'.")
    return Graph(inputs, (*constants, op), outputs)


def _constants(frame: Graph, op: Op) -> tuple[Op, ...]:
    """Ops of the frame that the op depends on and that depend on nothing themselves, in order."""
    makers: dict[Value, Op] = {}
    for other in frame.ops:
        simple = not other.regions and not has_effects(other)
        if simple and all(v in makers for v in other.operands):
            makers.update(dict.fromkeys(other.results, other))
    found: set[Op] = set()
    todo = list(op.uses)
    while todo:
        maker = makers.get(todo.pop())
        if maker is not None and maker not in found:
            found.add(maker)
            todo += maker.operands
    return tuple(other for other in frame.ops if other in found)
