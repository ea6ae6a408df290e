"""Every workload of the benchmarks on the machines without a GPU, against the Graph interpreter."""

from __future__ import annotations

import pytest

from benchmarks.check import require_equal
from benchmarks.workload import Size
from jstitch.ir.interpret import interpret
from tests.codegen.cuda import stitched
from tests.codegen.cuda.stitched import Recorded, interpreted, simulated
from tests.codegen.cuda.workloads import WORKLOADS, arguments, lowered

AS_PTX = ("layer_norm_grad", "batch_norm", "softmax", "rope_bf16", "quantize_rows", "adamw", "lstm_scan")


@pytest.mark.parametrize("name", WORKLOADS)
def test_simulated(name: str) -> None:
    found = lowered(name)
    assert found.recorder.emitted
    assert not found.recorder.refused
    require_right(name, found, simulated)


@pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
@pytest.mark.parametrize("name", AS_PTX)
def test_interpreted(name: str) -> None:
    require_right(name, lowered(name), interpreted)


def require_right(name: str, found: Recorded, machine: stitched.MakeMachine) -> None:
    """Raises WrongResultError for results outside the workload's own tolerance."""
    ((graph, _),) = found.programs
    args = arguments(name)
    assert [v.tensor.shape for v in graph.inputs] == [a.shape for a in args]
    tolerance = WORKLOADS[name].problem(Size.L2).tolerance
    require_equal(tuple(found.run(0, args, machine)), interpret(graph, args), tolerance, name)
