"""On a real GPU: the same programs and workloads through `jstitch.jit`, against jax.jit on that GPU.

pytest -m gpu      `-k sample` is the short part that compute-sanitizer is run on
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import jax
import numpy as np
import pytest

import jstitch
from benchmarks.check import require_equal
from benchmarks.gpu_times import tolerance_on_gpu
from benchmarks.grammar.compare import require_right
from benchmarks.grammar.draw import programs
from benchmarks.workload import Size
from benchmarks.workloads import FAMILIES
from jstitch.ir.graph import Graph
from jstitch.runtime.report import record_count, stitch_count
from tests.codegen.cuda.large_graphs import make_columns, make_large, make_many_lanes
from tests.codegen.cuda.references import Expected
from tests.fuzz.harness import OPTIONS, run_batch
from tests.fuzz.programs import as_jax
from tests.passes.random_graphs import Limits, arguments

pytestmark = pytest.mark.gpu
WORKLOADS = {w.name: w for workloads in FAMILIES.values() for w in workloads}
SAMPLE = ("layer_norm_grad", "softmax", "batch_norm", "quantize_rows")
BATCH = 10
DRAWN = 1  # the seed of the hunt's programs


@pytest.fixture(autouse=True)
def on_gpu() -> None:
    """Everything runs on the first GPU, or is skipped."""
    if jax.default_backend() != "gpu":
        pytest.skip("no NVIDIA GPU that JAX can use (it takes jax[cuda] and a driver)")


@pytest.mark.parametrize("first", range(0, 100, BATCH))
def test_programs(first: int) -> None:
    since = record_count()
    failures = run_batch(range(first, first + BATCH))
    assert not failures, "\n\n".join(map(str, failures))
    assert stitch_count(since) > 0


@pytest.mark.parametrize("first", range(100, 130, BATCH))
def test_medium_programs(first: int) -> None:
    failures = run_batch(range(first, first + BATCH), Limits(elements=4096))
    assert not failures, "\n\n".join(map(str, failures))


@pytest.mark.parametrize("make", [make_large, make_columns, make_many_lanes])
@pytest.mark.parametrize("seed", range(8))
def test_large_programs(make: Callable[[int], Graph], seed: int) -> None:
    graph = make(seed)
    args = arguments(graph, seed, specials=False)
    with jax.enable_x64(True):
        found = [np.asarray(x) for x in jstitch.jit(as_jax(graph), options=OPTIONS)(*args)]
    assert Expected(graph, args).wrong(found) is None


@pytest.mark.parametrize("first", range(0, 60, BATCH))
def test_drawn_programs(first: int) -> None:
    """Of the grammar in which the hunt draws programs that users might write."""
    for program in islice(programs(DRAWN), first, first + BATCH):
        args = program.args()
        require_right(program, jstitch.jit(program)(*args), jax.jit(program)(*args))


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads(name: str) -> None:
    run(name)


@pytest.mark.parametrize("name", SAMPLE)
def test_sample(name: str) -> None:
    run(name)


def run(name: str) -> None:
    """The workload at its smallest size, twice (the second call may run in a captured CUDA graph)."""
    problem = WORKLOADS[name].problem(Size.L2)
    expected = jax.jit(problem.function)(*problem.args)
    tolerance = tolerance_on_gpu(problem.function, problem.args, problem.tolerance)
    stitched = jstitch.jit(problem.function, donate_argnums=problem.donate, options=OPTIONS)
    since = record_count()
    for _ in range(3):
        require_equal(stitched(*problem.fresh_args()), expected, tolerance, "jstitch")
    assert stitch_count(since) > 0
