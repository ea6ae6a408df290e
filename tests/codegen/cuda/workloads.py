"""The benchmarks' workloads, lowered for CUDA without a device and without compiling PTX."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import pytest

import jstitch
from benchmarks.workload import Problem, Size
from benchmarks.workloads import FAMILIES
from tests.codegen.cuda.stitched import Recorded, record

WORKLOADS = {w.name: w for workloads in FAMILIES.values() for w in workloads}
OPTIONS = jstitch.CompileOptions(target="h200", tune="off", strict=True, verify=True)


@cache
def lowered(name: str, without: tuple[str, ...] = (), target: str = "h200") -> Recorded:
    """The workload's kernels at its smallest size, for a GPU; donated arguments are donated."""
    with pytest.MonkeyPatch.context() as patch:
        found = record(patch)
        _lower(WORKLOADS[name].problem(Size.L2), OPTIONS.replace(without=without, target=target))
    return found


def _lower(problem: Problem, options: jstitch.CompileOptions) -> None:
    jitted = jax.jit(
        jstitch.stitch(problem.function, options=options), donate_argnums=problem.donate, keep_unused=True
    )
    jitted.trace(*problem.args).lower(lowering_platforms=("cuda",))


def arguments(name: str) -> list[np.ndarray]:
    """The workload's own arguments, in the order of the program's inputs."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(WORKLOADS[name].problem(Size.L2).args)]
