"""What is lost by choosing plans with the quick evaluator instead of the full one.

For each frame of the suite: the plans of all planners; the delta-evaluator's favourite, by its sums of
scores; and the time of that plan and of the best one by the latency-evaluator, XLA's kernels for the rest
included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import jax
from rich.console import Console
from rich.table import Table

from benchmarks.workload import Size
from benchmarks.zoo import Case, workload_cases
from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPlan, make_pattern
from jstitch.passes.base.profile import CPU
from jstitch.passes.cost.cost_model import CostEstimate, xla_cost
from jstitch.passes.explore.score_pattern import Scorer
from jstitch.passes.explore.tabulate_frame import tabulate_frame
from jstitch.passes.fuse.finish_plan import finish_plan
from jstitch.passes.fuse.plan_layers import partition_reason, plan_layers
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import frames, run
from jstitch.passes.planners import LAYERS, PLANNERS
from jstitch.passes.schedule.latency import kernel_latency

MOST_LOSS = 0.05

CONTEXT = Context(CompileOptions(tune="off", calibrated=False), CPU)


@dataclass(frozen=True)
class Choice:
    """One frame. full, quick: plan -> seconds, and seconds saved as the delta-evaluator sees it."""

    name: str
    full: dict[str, float]
    quick: dict[str, float]

    @property
    def chosen(self) -> float:
        return self.full[max(self.quick, key=self.quick.__getitem__)]

    @property
    def best(self) -> float:
        return min(self.full.values())

    @property
    def differs(self) -> bool:
        """Whether there is anything to choose."""
        return max(self.full.values()) > self.best


def report(console: Console, sizes: tuple[Size, ...] = (Size.L2, Size.L3)) -> bool:
    """Print what the choices lose; whether it is more than is allowed."""
    found = [c for case in workload_cases(sizes) for c in judge(case.name, _graph(case))]
    open_ones = [c for c in found if c.differs]
    table = Table(title="the delta-evaluator's choices among plans, by the latency-evaluator")
    for name in ("frame", "chosen us", "best us", "loss %"):
        table.add_column(name, justify="right" if name != "frame" else "left")
    for c in sorted(open_ones, key=lambda c: c.best / c.chosen)[:12]:
        table.add_row(c.name, *_cells(c.chosen, c.best))
    chosen, best = sum(c.chosen for c in open_ones), sum(c.best for c in open_ones)
    loss = sum(c.chosen / c.best - 1 for c in open_ones) / max(1, len(open_ones))
    table.add_row(f"sum of {len(open_ones)} frames with a choice", *_cells(chosen, best))
    console.print(table)
    console.print(f"mean loss of a choice: {100 * loss:.1f} %")
    return chosen > (1 + MOST_LOSS) * best


def _cells(chosen: float, best: float) -> tuple[str, ...]:
    return f"{chosen * 1e6:.1f}", f"{best * 1e6:.1f}", f"{100 * (chosen / best - 1):.1f}"


def _graph(case: Case) -> Graph:
    module = jax.jit(case.function).lower(*case.args).compiler_ir("stablehlo")
    return run(import_module(module), CONTEXT)


def judge(name: str, graph: Graph) -> Iterator[Choice]:
    """Each frame that has something to fuse."""
    for number, frame in enumerate(frames(graph)):
        plans = dict(_plans(frame))
        if any(plan.patterns for plan in plans.values()):
            scorer = Scorer(tabulate_frame(frame, CONTEXT.profile))
            full = {label: full_seconds(plan) for label, plan in plans.items()}
            quick = {label: quick_savings(plan, scorer) for label, plan in plans.items()}
            yield Choice(f"{name}, frame {number}" if number else name, full, quick)


def _plans(frame: Graph) -> Iterator[tuple[str, FusionPlan]]:
    """Of all planners, and of the layers as they are before merging."""
    yield "layers alone", finish_plan(plan_layers(frame, LAYERS), CONTEXT)
    for label, planner in PLANNERS.items():
        yield label, finish_plan(planner(frame, CONTEXT), CONTEXT)


def full_seconds(plan: FusionPlan) -> float:
    """Latencies of the plan's kernels, and XLA's kernels for what they leave."""
    taken = {op for pattern in plan.patterns for op in pattern.ops}
    rest = [op for op in plan.frame.ops if op not in taken and partition_reason(op) is None]
    profile, machine = CONTEXT.profile, CONTEXT.machine
    left = xla_cost(make_pattern(plan.frame, rest, "rest"), machine) if rest else CostEstimate()
    kernels = (lower_kernel("k", p.ops, p.inputs, p.outputs, profile) for p in plan.patterns)
    return sum((kernel_latency(kernel, CONTEXT).seconds for kernel in kernels), left.seconds(machine))


def quick_savings(plan: FusionPlan, scorer: Scorer) -> float:
    return sum(scorer.score(pattern.ops).seconds for pattern in plan.patterns)
