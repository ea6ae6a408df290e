"""The plans of a graph's frames as a tree: what becomes of a loop is decided before its kernels are made.

plan_tree(graph, plan)  ==  Planned(plan of the graph, {a while's body: Planned(plan of the body, {})})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.passes.base.thin_products import THIN, products_back
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.contract_patterns import Build, contract_patterns
from jstitch.passes.fuse.keep_patterns import keep_patterns
from jstitch.passes.graph.dce import dce

Plan = Callable[[Graph], FusionPlan]
See = Callable[[FusionPlan], None]


@dataclass(frozen=True, eq=False)
class Planned:
    """A frame's plan, and those of the regions of its control ops."""

    plan: FusionPlan
    inner: Mapping[Graph, Planned]

    def below(self, op: Op) -> tuple[Planned, ...]:
        """Of a control op's regions."""
        return tuple(self.inner[region] for region in op.regions)

    @property
    def controls(self) -> Iterator[tuple[Op, tuple[Planned, ...]]]:
        """Control ops of the frame that are in no kernel, and what is planned for their regions."""
        held = {op for p in self.plan.patterns for op in p.ops}
        yield from ((op, self.below(op)) for op in self.plan.frame.ops if is_control(op) and op not in held)

    def walk(self) -> Iterator[Planned]:
        """Itself, and all inside it that is in no kernel."""
        yield self
        for _, below in self.controls:
            for planned in below:
                yield from planned.walk()

    def patterns(self) -> Iterator[FusionPattern]:
        """Of the frame, then of those inside it."""
        for planned in self.walk():
            yield from planned.plan.patterns


def plan_tree(graph: Graph, plan: Plan) -> Planned:
    """Every frame's plan, inner frames first."""
    inner: dict[Graph, Planned] = {}

    def planned(region: Graph) -> Graph:
        found = plan_tree(region, plan)
        inner[found.plan.frame] = found
        return found.plan.frame

    ops = (replace(op, regions=tuple(map(planned, op.regions))) if is_control(op) else op for op in graph.ops)
    return Planned(plan(Graph(graph.inputs, tuple(ops), graph.outputs)), inner)


def leave(planned: Planned, why: Reason, kept: Callable[[FusionPattern], bool]) -> Planned:
    """Without the frame's own patterns, but those that are `kept`."""
    staying = [p for p in planned.plan.patterns if kept(p)]
    if len(staying) == len(planned.plan.patterns):
        return planned
    dropped = {op: why for p in planned.plan.patterns if p not in staying for op in p.ops}
    return replace(planned, plan=keep_patterns(planned.plan, staying, dropped))


def leave_all(planned: Planned, why: Reason, kept: Callable[[FusionPattern], bool]) -> Planned:
    """`leave` the frame's patterns and those of the frames inside it."""
    inner = {region: leave_all(below, why, kept) for region, below in planned.inner.items()}
    return leave(replace(planned, inner=inner), why, kept)


def contract_tree(planned: Planned, context: Context, see: See, build: Build) -> Graph:
    """The graph with a `jstitch.kernel` op for every pattern, inner frames first.

    see: is shown each plan before its kernels are made.
    """
    frame = planned.plan.frame
    new = {op: op for op in frame.ops}
    new |= {op: _contracted(op, below, context, see, build) for op, below in planned.controls}
    plan = planned.plan
    if any(old is not op for old, op in new.items()):
        refusals = (
            replace(r, producer=new.get(r.producer, r.producer), consumer=new.get(r.consumer, r.consumer))
            for r in plan.refusals
        )
        changed = Graph(frame.inputs, tuple(new.values()), frame.outputs)
        plan = FusionPlan(changed, plan.patterns, tuple(refusals))
    see(plan)
    made = contract_patterns(absorb_updates(plan, context), build)
    if not any(THIN in op.attrs for op in made.ops):
        return made
    return dce(replace(made, ops=sort_ops(products_back(made.ops))))


def _contracted(op: Op, below: tuple[Planned, ...], context: Context, see: See, build: Build) -> Op:
    return replace(op, regions=tuple(contract_tree(planned, context, see, build) for planned in below))
