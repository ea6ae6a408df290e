"""What ptxas makes of the benchmarks' kernels, and whether memory is read and written 16 bytes at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from jstitch.codegen.cuda.registers import estimate_registers
from jstitch.codegen.cuda.resources import assemble, find_tool
from jstitch.codegen.cuda.source import CudaSource, Launch
from tests.codegen.cuda.stitched import WHY_NO_PTX, ptx_of
from tests.codegen.cuda.workloads import WORKLOADS, lowered
from tests.shares import one_in

TARGETS = {"sm_90": "h200"}
ARCHS = {"sm_80": (8, 0), "sm_90": (9, 0), "sm_100": (10, 0), "sm_120": (12, 0)}
THREADS_PER_SM = {"sm_120": 1536}
PTX_VERSION = "8.8"
WHY_NOT = WHY_NO_PTX or (None if find_tool("ptxas") else "ptxas is not installed")
# Kernels whose rows are multiples of 16 bytes, and which move little else.
WIDE = (
    *("layer_norm", "layer_norm_grad", "rms_norm", "softmax", "log_softmax", "gelu_bf16", "layer_norm_bf16"),
    *("adamw", "lion", "moving_average", "gelu_bias_residual_layer_norm", "swiglu_grad", "batch_norm"),
)
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


def launches(name: str, arch: str = "sm_90") -> list[tuple[CudaSource, Launch]]:
    """All launches of a workload."""
    sources = [e.source for e in lowered(name, target=TARGETS.get(arch, arch)).recorder.emitted.values()]
    found = [(source, launch) for source in sources for launch in source.launches]
    assert found, f"{name} has no kernel for {arch}"
    return found


def texts(name: str, arch: str = "sm_90") -> Iterator[tuple[Launch, str]]:
    for source, launch in launches(name, arch):
        yield launch, ptx_of(source, launch, (ARCHS[arch], PTX_VERSION))


@dataclass(frozen=True)
class Estimate:
    """Registers of one launch of a workload: as estimated, and as ptxas assigns them."""

    name: str
    estimated: int
    assigned: int

    @property
    def is_close(self) -> bool:
        return abs(self.estimated - self.assigned) <= max(8, 0.2 * self.assigned)


MANY = ("adamw", "lion")  # tensors: half a minute each
LONG = (*MANY, "lamb", "vae_step")  # ptxas takes up to two minutes: in the sweep below only


@pytest.mark.parametrize("name", one_in(2, [name for name in WORKLOADS if name not in LONG]))
def test_nothing_spills_and_shared_memory_is_the_planned_arena(name: str) -> None:
    for launch, text in texts(name):
        found = assemble(text, "sm_90")
        assert found.spills == 0
        assert found.shared_bytes == 0  # all of it is dynamic, of the size that the launch asks for
        assert (".extern .shared" in text) == (launch.shared_bytes > 0)
        assert found.registers * launch.block <= 65536


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_nothing_spills_on_any_architecture(name: str, arch: str) -> None:
    for launch, text in texts(name, arch):
        found = assemble(text, arch)
        assert found.spills == 0
        assert found.registers * launch.block <= 65536


@pytest.mark.parametrize("arch", ["sm_80", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", ["layer_norm_grad", "cross_entropy_grad", "rope_bf16", "lstm_scan"])
def test_other_architectures_assemble(name: str, arch: str) -> None:
    for _, text in texts(name, arch):
        assert assemble(text, arch).spills == 0


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in MANY else n for n in WIDE])
def test_memory_is_moved_16_bytes_at_a_time(name: str) -> None:
    text = "\n".join(text for _, text in texts(name))
    wide = {what: wide_accesses(text, what) for what in ("ld", "st")}
    assert wide["ld"] > 0
    assert wide["st"] > 0


def wide_accesses(text: str, what: str) -> int:
    """Global accesses of 16 bytes: four of 32 bits or two of 64."""
    return len(re.findall(rf"\b{what}\.global\S*\.(?:v4\.\w32|v2\.\w64)\b", text))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_registers_are_estimated_well(arch: str) -> None:
    """Within 20% or 8 registers of ptxas for nine kernels of ten."""
    threads = THREADS_PER_SM.get(arch, 2048)
    found = [
        Estimate(name, estimate_registers(text, threads), assemble(text, arch).registers)
        for name in WORKLOADS
        for _, text in texts(name, arch)
    ]
    close = sum(e.is_close for e in found)
    assert close >= 0.9 * len(found), [e for e in found if not e.is_close]
