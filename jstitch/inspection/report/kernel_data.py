"""Kernels as the page shows them: numbers before and after, reasons, memory, source; ops' schedules.

{"name": "layer_norm_row_0", "xla": {"launches": 9, ...}, "ours": {"launches": 1, ...}, "source": [...], ...}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.launch_kernel import launch_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.memory_map import LaneMap, arena_map, memory_fields
from jstitch.device_spec import DeviceSpec
from jstitch.frontend.observe import Built
from jstitch.inspection.call_plan import PatternPlan
from jstitch.inspection.explanation import PatternStory
from jstitch.inspection.json_fields import json_fields
from jstitch.inspection.report.texts import coloured, shorten
from jstitch.ir.graph import Op
from jstitch.passes.base.plan import FusionPattern, is_free
from jstitch.passes.base.profile import Profile
from jstitch.passes.fuse.absorb_updates import contracted
from jstitch.passes.lower.form_pattern import form_pattern

IN_PLACE = "none of its own: computed inside the loops of the ops that use it"


def kernel_data(
    pattern: FusionPattern, plan: PatternPlan, story: PatternStory, built: Built | None, profile: Profile
) -> dict[str, Any]:
    """Of one pattern. built: None where it stays XLA's. profile: of the target."""
    facts = plan.kernel
    return {
        "name": built.name if built else plan.name,
        "ops": dict(plan.ops),
        "where": shorten(plan.where),
        "origin": plan.origin,
        "xla": json_fields(plan.xla),
        "ours": json_fields(plan.ours),
        "inputs": len(pattern.inputs),
        "outputs": len(pattern.outputs),
        "schemes": list(facts.schemes) if facts else [],
        "phases": facts.phases if facts else 0,
        "programs": facts.programs if facts else 0,
        "arena": facts.arena_bytes if facts else 0,
        "scratch": facts.scratch_bytes if facts else 0,
        "shared": facts.shared_bytes if facts else 0,
        "occupancy": facts.occupancy if facts else None,
        "why": [story.verdict, *story.schemes, *story.schedule],
        "refused": json_fields(story.refused) if story.refused else None,
        "remedy": story.remedy,
        "template": shorten(story.template),
        "memory": memory_fields(memory_maps(built.kernel, profile.machine.device)) if built else [],
        "source": coloured(built.text) if built else [],
    }


def memory_maps(kernel: Kernel, device: DeviceSpec | None) -> tuple[LaneMap, ...]:
    """What its programs keep close, as the target's emitter places it. device: the GPU, where it is one."""
    if device is None:
        return arena_map(kernel)
    try:
        return launch_kernel(kernel, device.shared_optin).memory
    except NoRoom:
        return ()


def schedules_of(pattern: FusionPattern, template: str, profile: Profile) -> Iterator[tuple[Op, str]]:
    """Each op's line of the kernel's template; ops that have no loops of their own, IN_PLACE."""
    _, ops, outputs = contracted(pattern)
    labels = form_pattern(pattern.ops, outputs, profile, pattern.updates).labels
    lines = {line.partition("[")[0]: line for line in template.splitlines()}
    for op in ops:
        if not is_free(op):
            found = (lines.get(labels.get(v, "")) for v in op.results)
            yield op, next((line for line in found if line), IN_PLACE)


def kernels_by_ops(built: list[Built]) -> Mapping[tuple[Op, ...], Built]:
    """Patterns are made anew wherever updates are absorbed; their ops are the same."""
    return {b.pattern.ops: b for b in built}
