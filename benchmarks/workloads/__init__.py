"""The suite: one file per family, each with its `WORKLOADS`."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads import (
    fused,
    loops,
    losses,
    norms,
    optimizers,
    quantize,
    recurrent,
    reduced_precision,
    softmax,
    transformer,
    vae,
)

FAMILIES: dict[str, tuple[Workload, ...]] = {
    module.__name__.rpartition(".")[2]: module.WORKLOADS
    for module in (
        norms,
        softmax,
        losses,
        fused,
        quantize,
        reduced_precision,
        optimizers,
        recurrent,
        vae,
        transformer,
    )
}
"""By working set."""

SUITE = {**FAMILIES, "loops": loops.WORKLOADS, "loops_f64": loops.WIDE_WORKLOADS}
"""These, and loops, whose three sizes are numbers of turns."""

ENVIRONMENT = {"loops_f64": {"JAX_ENABLE_X64": "1"}}
"""What the process of a family needs."""
