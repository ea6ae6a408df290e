"""The benchmarks' workloads, lowered for CUDA without a device and without compiling PTX."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jstitch
from benchmarks.workload import Size, Workload
from benchmarks.workloads import FAMILIES
from tests.codegen.cuda.stitched import Recorded, record

WORKLOADS = {w.name: w for workloads in FAMILIES.values() for w in workloads}
OPTIONS = jstitch.CompileOptions(target="h200", gate="off", strict=True, verify=True)


def lower(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The workload's kernels at its smallest size; donated arguments are donated."""
    found = record(monkeypatch)
    problem = workload.problem(Size.L2)
    jitted = jax.jit(
        jstitch.stitch(problem.function, options=OPTIONS), donate_argnums=problem.donate, keep_unused=True
    )
    jitted.trace(*problem.args).lower(lowering_platforms=("cuda",))
    return found


def arguments(workload: Workload) -> list[np.ndarray]:
    """The workload's own arguments, in the order of the program's inputs."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(workload.problem(Size.L2).args)]
