"""The benchmark suite's programs as frames to plan, at the smallest size, and the profiles to plan for."""

from __future__ import annotations

from collections.abc import Iterator

import jax

from benchmarks.workload import Size
from benchmarks.workloads import FAMILIES
from jstitch.device_spec import find_spec
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.target import cuda_profile
from jstitch.ir.graph import Graph
from jstitch.passes.base import profile
from jstitch.passes.graph.copy_carried import copy_carried
from jstitch.passes.graph.pipeline import frames, run

WORKLOADS = {workload.name: workload for family in FAMILIES.values() for workload in family}
PROFILES = {"cpu": profile.CPU, "h200": cuda_profile(find_spec("h200"))}


def workload_frames(name: str) -> Iterator[Graph]:
    """The frames of one workload, as they are planned."""
    problem = WORKLOADS[name].problem(Size.L2)
    text = jax.jit(problem.function).lower(*problem.args).as_text()
    for frame in frames(run(import_module(parse_module(text)))):
        yield copy_carried(frame)
