"""Named passes one after the other, on a graph, the plans of its frames, and their kernels, watched."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import click

from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.print_kernel import print_kernel
from jstitch.errors import VerifyError
from jstitch.ir.graph import Graph
from jstitch.ir.printer import print_graph
from jstitch.ir.verify import check
from jstitch.passes.base.context import Context
from jstitch.passes.base.named_pass import Form, NamedPass, blaming
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.hold_together import Held, hold_together, nothing_held, release
from jstitch.passes.fuse.print_plan import print_plan
from jstitch.passes.lower.check_kernel import verify_kernel
from jstitch.passes.pipeline import frames
from jstitch.passes.plan_frame import RELEASED


@dataclass(frozen=True)
class State:
    """A graph; once a planner ran, its frames' plans, outermost first, and the passes that made them.

    finishing: passes on plans of whole frames, and what they left. scheduling: passes that wait for the
    kernels, which are made when something prints them.
    """

    graph: Graph
    unreleased: tuple[FusionPlan, ...] = ()
    planning: tuple[NamedPass, ...] = ()
    held: tuple[Held, ...] = ()
    finishing: tuple[NamedPass, ...] = ()
    finished: tuple[FusionPlan, ...] = ()
    scheduling: tuple[NamedPass, ...] = ()

    @property
    def plans(self) -> tuple[FusionPlan, ...]:
        return self.finished or tuple(map(release, self.unreleased, self.held))

    def after(self, p: NamedPass, context: Context) -> State:
        """What the pass makes of it. Raises what the pass raises."""
        if p.gives is Form.GRAPH:
            return State(p.run(self.graph, context))
        if p.gives is Form.KERNEL:
            return replace(self, scheduling=(*self.scheduling, p))
        if p.name in {q.name for q in RELEASED}:
            plans = tuple(p.run(plan, context) for plan in self.plans)
            return replace(self, finishing=(*self.finishing, p), finished=plans)
        held, subjects = self.held, cast(Sequence[Any], self.unreleased)
        if p.takes is Form.GRAPH:
            held = tuple(hold_together(nothing_held(frame), context) for frame in frames(self.graph))
            subjects = [h.frame for h in held]
        return State(self.graph, tuple(p.run(s, context) for s in subjects), (*self.planning, p), held)

    def plan(self, frame: Graph, context: Context) -> FusionPlan:
        """The plan of a frame by the passes that made these plans."""
        held = hold_together(nothing_held(frame), context)
        subject: Any = held.frame
        for p in self.planning:
            subject = p.run(subject, context)
        plan = release(subject, held)
        for p in self.finishing:
            plan = p.run(plan, context)
        return plan

    def check(self, name: str) -> None:
        """Raises VerifyError, with the pass's name, for what breaks its own rules."""
        check(self.graph, name)
        for plan in self.plans:
            if problems := check_plan(plan):
                found = "; ".join(problems)
                raise VerifyError(
                    "a disjoint, acyclic plan with all its reasons", found, where=f"after {name}"
                )

    def __str__(self) -> str:
        if not self.planning:
            return print_graph(self.graph)
        return "\n".join(f"frame {n}\n{print_plan(plan)}" for n, plan in enumerate(self.plans))

    @property
    def size(self) -> int:
        """Ops of the graph, or patterns of the plans."""
        if self.planning:
            return sum(len(plan.patterns) for plan in self.plans)
        return sum(1 for _ in self.graph.walk())


@dataclass(frozen=True)
class Timed:
    """A pass that ran, its seconds, and what it left: ops of a graph, or patterns of plans."""

    name: str
    seconds: float
    left: int
    kind: str


@dataclass
class Watch:
    """What happens around passes. before, after: names of those whose input or result goes to stderr."""

    before: Sequence[str] = ()
    after: Sequence[str] = ()
    verify: bool = False
    times: list[Timed] = field(default_factory=list)

    def run(self, p: NamedPass, state: State, context: Context) -> State:
        """What is left by a pass on graphs or plans; one on kernels is watched when there are any."""
        if p.gives is Form.KERNEL:
            return state.after(replace(p, run_on=partial(self._kernel, p)), context)
        if p.name in self.before:
            click.echo(f"// -- before {p.name}\n{state}", err=True)
        start = time.perf_counter()
        state = state.after(p, context)
        seconds = time.perf_counter() - start
        if self.verify:
            with blaming(p.name):
                state.check(p.name)
        if p.name in self.after:
            click.echo(f"// -- after {p.name}\n{state}", err=True)
        self.times.append(Timed(p.name, seconds, state.size, "patterns" if state.planning else "ops"))
        return state

    def _kernel(self, p: NamedPass, kernel: Kernel, context: Context, **settings: Any) -> Kernel:
        """What a pass on kernels leaves. Raises VerifyError, with the pass's name."""
        if p.name in self.before:
            click.echo(f"// -- before {p.name}\n{print_kernel(kernel)}", err=True)
        start = time.perf_counter()
        made: Kernel = p.run(kernel, context)
        seconds = time.perf_counter() - start
        if self.verify:
            with blaming(p.name):
                verify_kernel(made, f"{kernel.name}, after {p.name}")
        if p.name in self.after:
            click.echo(f"// -- after {p.name}\n{print_kernel(made)}", err=True)
        self.times.append(Timed(p.name, seconds, sum(1 for _ in made.instructions()), "instructions"))
        return made
