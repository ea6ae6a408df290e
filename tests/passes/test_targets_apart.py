"""What is remembered of a pattern for one target is never told of another.

One pattern, for the CPU, an H200, the CPU again      ==      three new ones, of which nothing is remembered
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from jstitch.codegen.print_kernel import print_kernel
from jstitch.frontend.target import Target, find_target
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost import structure
from jstitch.passes.cost.call_seconds import call_seconds
from jstitch.passes.cost.cost_model import CostEstimate, kernel_cost, wide_sums, xla_cost
from jstitch.passes.fuse.gate import Verdict, judge
from jstitch.passes.fuse.print_plan import print_plan
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU_PROFILE, H200_PROFILE, on
from tests.passes.workload_frames import WORKLOADS, workload_frames

QUICK = ("layer_norm_vjp", "batch_norm_grad", "masked_softmax", "group_norm")
PLANNED = [on(CPU_PROFILE, tune="off"), on(H200_PROFILE, tune="off")]
ASKED = (CPU_PROFILE, H200_PROFILE, CPU_PROFILE)


@dataclass(frozen=True)
class Told:
    """All that is asked about a pattern."""

    ours: CostEstimate
    xla: CostEstimate
    verdict: Verdict
    wide: int
    seconds: float
    kernel: str


def tell(p: FusionPattern, target: Profile) -> Told:
    try:
        kernel = print_kernel(lower_kernel("k", p.ops, p.inputs, p.outputs, target))
    except CannotLowerError as error:
        kernel = str(error)
    costs = kernel_cost(p, target), xla_cost(p, target.machine), judge(p, target)
    return Told(*costs, wide_sums(p, target), call_seconds(p, target), kernel)


def patterns(name: str, context: Context) -> Iterator[FusionPattern]:
    """The patterns of a workload's frames, traced and planned anew."""
    for frame in workload_frames(name, context):
        yield from plan_frame(frame, context).patterns


def told_anew(name: str, context: Context, target: Profile) -> list[Told]:
    """Of new patterns, without the memory of patterns that look like them."""
    made = list(patterns(name, context))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "structure", lambda pattern: None)
        return [tell(p, target) for p in made]


def targets_are_apart(name: str, context: Context) -> None:
    anew = {target: told_anew(name, context, target) for target in ASKED}
    for n, pattern in enumerate(patterns(name, context)):
        for target in ASKED:
            assert tell(pattern, target) == anew[target][n], (n, target.machine.device)


@pytest.mark.parametrize("name", QUICK)
def test_one_frame_is_planned_for_one_target_and_another(name: str) -> None:
    cpu, h200 = PLANNED
    anew = {c.profile: [print_plan(plan_frame(f, c)) for f in workload_frames(name, cpu)] for c in PLANNED}
    for n, frame in enumerate(workload_frames(name, cpu)):
        for context in (cpu, h200, cpu):
            assert print_plan(plan_frame(frame, context)) == anew[context.profile][n]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("context", PLANNED, ids=["cpu", "h200"])
def test_targets_are_apart(name: str, context: Context) -> None:
    targets_are_apart(name, context)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in QUICK])
@pytest.mark.parametrize("context", PLANNED, ids=["cpu", "h200"])
def test_targets_are_apart_everywhere(name: str, context: Context) -> None:
    targets_are_apart(name, context)


@pytest.mark.parametrize(("platform", "target"), [("cpu", "cpu"), ("cuda", "h200")])
def test_the_same_target_has_the_same_profile(platform: str, target: str) -> None:
    """Or each program's costs would be worked out anew."""
    first, second = (find_target(platform, CompileOptions(target=target)) for _ in range(2))
    assert isinstance(first, Target)
    assert isinstance(second, Target)
    assert first.profile == second.profile
