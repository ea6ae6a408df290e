"""The benchmark suite's programs as frames to plan, at the smallest size, and the profiles to plan for."""

from __future__ import annotations

from collections.abc import Iterator

import jax

from benchmarks.workload import Size
from benchmarks.workloads import FAMILIES
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.passes.base.context import Context
from jstitch.passes.graph.copy_carried import copy_carried
from jstitch.passes.pipeline import frames, run
from tests.contexts import CPU_PROFILE, H200_PROFILE

WORKLOADS = {workload.name: workload for family in FAMILIES.values() for workload in family}
PROFILES = {"cpu": CPU_PROFILE, "h200": H200_PROFILE}


def workload_frames(name: str, context: Context) -> Iterator[Graph]:
    """The frames of one workload, as they are planned on a target."""
    problem = WORKLOADS[name].problem(Size.L2)
    text = jax.jit(problem.function).lower(*problem.args).as_text()
    for frame in frames(run(import_module(parse_module(text)), context)):
        yield copy_carried(frame, context)
