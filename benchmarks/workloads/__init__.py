"""The suite: one file per family, each with its `WORKLOADS`."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads import (
    fused,
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
