"""Defects put into really emitted kernels: the simulator and the PTX interpreter find each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from jstitch.codegen.cuda.ptx import PtxError
from jstitch.codegen.cuda.simulate_error import SimulationError
from jstitch.ir.graph import Graph
from tests.codegen.cuda import stitched
from tests.codegen.cuda.defects import broken, column_sums, replacing, softmax, without_barrier
from tests.codegen.cuda.references import Expected
from tests.codegen.cuda.stitched import PROFILES, Stitched, interpreted, simulated, stitch
from tests.passes.random_graphs import arguments

SHORT = softmax(3, 1001)  # a row in the registers of two warps
LONG = softmax(2, 50_000)  # a row in the arena
COLUMNS = column_sums(300, 96)  # partial results of eight teams


@dataclass(frozen=True)
class Defect:
    """A change of a kernel's text. simulator, ptx: what the machines' messages say."""

    graph: Graph
    change: Callable[[str], str]
    simulator: str
    ptx: str


RACE = r"barrier", r"race|barrier|other thread|another thread"
DEFECTS = {
    "the first barrier of a short row": Defect(SHORT, without_barrier(0), *RACE),
    "the second barrier of a short row": Defect(SHORT, without_barrier(1), *RACE),
    "the first barrier of a long row": Defect(LONG, without_barrier(0), *RACE),
    "the second barrier of a long row": Defect(LONG, without_barrier(1), *RACE),
    "the barrier before partial sums are read": Defect(COLUMNS, without_barrier(-1), *RACE),
    "a barrier of too few threads": Defect(SHORT, replacing(r"(barrier_team.*) 64\)", r"\1 32)"), *RACE),
    "a tile over an exchange": Defect(LONG, replacing(r"(shared_\w+)\(512,", r"\1(0,"), *RACE),
    "an exchange over another": Defect(LONG, replacing(r"(shared_\w+)\(256,", r"\1(0,"), *RACE),
    "rows one element too long": Defect(
        SHORT, replacing("e < 1001", "e < 1002"), "o0|a0", "past its end|other thread"
    ),
    "one row too many": Defect(SHORT, replacing("r < 3", "r < 4"), "a0", "past its end"),
    "one column too many": Defect(
        COLUMNS,
        replacing(r"range\(t, 96, 32\)", "range(t, 97, 32)"),
        "overlap",
        "past its end|nobody wrote",
    ),
    "vectors at odd places": Defect(
        LONG, replacing(r"(read_f32x4\(a0, .*)\)", r"\1 + 1)"), "multiple|align", "align"
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_simulator_finds(name: str) -> None:
    defect = DEFECTS[name]
    with pytest.raises(SimulationError, match=defect.simulator):
        broken(defect.graph, defect.change).run(some(defect.graph), simulated)


@pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
@pytest.mark.parametrize("name", DEFECTS)
def test_the_ptx_interpreter_finds(name: str) -> None:
    defect = DEFECTS[name]
    with pytest.raises(PtxError, match=defect.ptx):
        broken(defect.graph, defect.change).run(some(defect.graph), interpreted)


def test_loads_of_too_few_elements_are_found() -> None:
    made = broken(LONG, replacing("read_f32x4", "read_f32x2"))
    with pytest.raises(SimulationError, match="v0_v"):
        made.run(some(LONG), simulated)


def test_stores_of_too_few_elements_leave_results_unwritten() -> None:
    made = broken(LONG, replacing("store_f32x4", "store_f32x2"))
    assert_wrong(made, LONG, "simulator")
    if stitched.WHY_NO_PTX is None:
        assert_wrong(made, LONG, "PTX interpreter")


@pytest.mark.parametrize("graph", [SHORT, LONG, COLUMNS], ids=["short", "long", "columns"])
def test_the_kernels_are_right_without_a_defect(graph: Graph) -> None:
    args = some(graph)
    assert Expected(graph, args).wrong(stitch(graph, PROFILES["h200"]).run(args, simulated)) is None


def assert_wrong(made: Stitched, graph: Graph, machine: str) -> None:
    args = some(graph)
    found = made.run(args, simulated if machine == "simulator" else interpreted)
    message = Expected(graph, args).wrong(found)
    assert message is not None
    assert "NaN" in message


def some(graph: Graph) -> list[np.ndarray]:
    return arguments(graph, 0, specials=False)
