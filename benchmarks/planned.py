"""A program as it would be stitched, in numbers: planned and lowered, nothing compiled, nothing run.

plan(problem, CompileOptions(target="h200", without=("columns",)))   ->   Planned(kernels=4, launches=9, ...)

Two plans of a program with one `digest` run the same kernels.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import jax

from benchmarks.workload import Problem
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.print_kernel import print_kernel
from jstitch.frontend.observe import Observed
from jstitch.inspection.inspected import inspect_function
from jstitch.inspection.kernel_facts import KernelFacts, KernelMaker
from jstitch.options import CompileOptions
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason
from jstitch.passes.explore.savings import rest_costs
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.gate import judge


@dataclass(frozen=True)
class Part:
    """A kernel of ours, or all of XLA's of one frame. on_chip, text: of ours."""

    launches: float
    nbytes: float
    seconds: float
    on_chip: int = 0
    text: str = ""


@dataclass(frozen=True)
class Planned:
    """One program. A loop's body counts once; products and whatever else no kernel could hold count nothing.

    kernels: ours. launches: of ours (calls on a CPU) and of XLA's. nbytes: that they move. seconds: ours by
    the latency-evaluator, XLA's by the cost model. on_chip: bytes that a program of each kernel asks for, of
    shared memory or of its arena. planning: seconds of this process, to plan and to lower. digest: of all
    kernels.
    """

    kernels: int
    launches: float
    nbytes: float
    seconds: float
    on_chip: int
    planning: float
    digest: str


def plan(problem: Problem, options: CompileOptions) -> Planned:
    """Nobody is asked what it costs, neither XLA nor a clock."""
    start = time.process_time()
    jitted = jax.jit(problem.function, donate_argnums=problem.donate)
    shapes = jax.tree.map(_shape, problem.args)
    calls = inspect_function(jitted, shapes, {}, options).calls
    parts = [part for seen in calls for part in _parts(seen)]
    texts = Counter(part.text for part in parts if part.text)
    return Planned(
        texts.total(),
        sum(part.launches for part in parts),
        sum(part.nbytes for part in parts),
        sum(part.seconds for part in parts),
        sum(part.on_chip for part in parts),
        time.process_time() - start,
        hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest(),
    )


def _shape(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _parts(seen: Observed) -> Iterator[Part]:
    maker = KernelMaker(seen.context)
    for found in seen.plans:
        for pattern in absorb_updates(found, seen.context).patterns:
            yield _pattern(pattern, maker)
        yield _rest(found, seen)


def _pattern(pattern: FusionPattern, maker: KernelMaker) -> Part:
    """As a kernel, where there is one."""
    verdict, kernel, facts = judge(pattern, maker.context.profile), maker.lower(pattern), maker.make(pattern)
    if isinstance(kernel, Reason) or not isinstance(facts, KernelFacts):
        return Part(verdict.xla.launches, verdict.xla.nbytes, verdict.xla_seconds)
    launches, on_chip = max(1, len(facts.launches)), facts.shared_bytes or facts.arena_bytes
    text = f"{print_kernel(_unmarked(kernel))}\n{on_chip}"
    return Part(launches, verdict.ours.nbytes, facts.seconds, on_chip, text)


def _unmarked(kernel: Kernel) -> Kernel:
    """Without the permission to share bytes: what comes of it counts."""
    phases = tuple(
        replace(phase, lanes=tuple(replace(lane, shares=True) for lane in phase.lanes))
        for phase in kernel.phases
    )
    return replace(kernel, phases=phases)


def _rest(found: FusionPlan, seen: Observed) -> Part:
    costs, machine = rest_costs(found, seen.context), seen.profile.machine
    return Part(
        sum(cost.launches for cost in costs),
        sum(cost.nbytes for cost in costs),
        sum(cost.seconds(machine) for cost in costs),
    )
