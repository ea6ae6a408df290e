"""Every workload of the benchmarks on the machines without a GPU, against the Graph interpreter."""

from __future__ import annotations

import pytest

from benchmarks.check import require_equal
from benchmarks.workload import Size
from jstitch.ir.interpret import interpret
from tests.codegen.cuda import stitched
from tests.codegen.cuda.stitched import Recorded, interpreted, simulated
from tests.codegen.cuda.workloads import WORKLOADS, arguments, lowered
from tests.shares import one_in, slow

AS_PTX = ("layer_norm_grad", "batch_norm", "softmax", "rope_bf16", "quantize_rows", "adamw", "lstm_scan")


MULTIPLIES = ("transformer_block_step", "vae_step", "lstm_scan", "gru_scan")  # f32, as tf32
TF32 = 2.0**-11  # of an operand, at most


LONG = ("lamb",)  # 50 seconds of simulation: in the sweep only
NAMES = [*one_in(2, (n for n in WORKLOADS if n not in LONG)), *map(slow, LONG)]


@pytest.mark.parametrize("name", NAMES)
def test_simulated(name: str) -> None:
    found = lowered(name)
    assert found.recorder.emitted
    assert not found.recorder.refused
    assert any(kernel.products for kernel in found.recorder.emitted) == (name in MULTIPLIES)
    require_right(name, found, simulated, TF32 if name in MULTIPLIES else 0.0)


@pytest.mark.parametrize("name", MULTIPLIES)
def test_simulated_without_tf32(name: str) -> None:
    require_right(name, lowered(name, ("tf32",)), simulated)


@pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
@pytest.mark.parametrize("name", AS_PTX)
def test_interpreted(name: str) -> None:
    require_right(name, lowered(name), interpreted, TF32 if name in MULTIPLIES else 0.0)


def require_right(name: str, found: Recorded, machine: stitched.MakeMachine, rounding: float = 0.0) -> None:
    """Raises WrongResultError for results outside the workload's own tolerance, or such a rounding."""
    ((graph, _),) = found.programs
    args = arguments(name)
    assert [v.tensor.shape for v in graph.inputs] == [a.shape for a in args]
    tolerance = max(WORKLOADS[name].problem(Size.L2).tolerance, rounding)
    require_equal(tuple(found.run(0, args, machine)), interpret(graph, args), tolerance, name)
