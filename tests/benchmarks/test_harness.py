"""The benchmark harness: the suite is complete, checks catch wrong results, statistics are right."""

from __future__ import annotations

import json
from itertools import groupby

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("optax")

from click.testing import CliRunner
from rich.console import Console

from benchmarks import timing
from benchmarks.__main__ import main
from benchmarks.check import WrongResultError, require_equal
from benchmarks.runner import Malloc, jobs, merge, select
from benchmarks.suite import verdict
from benchmarks.table import geometric_mean
from benchmarks.workload import Problem, Size, Workload
from benchmarks.workloads import FAMILIES

WORKLOADS = [w for workloads in FAMILIES.values() for w in workloads]
TRAINING = ("adamw", "lion", "lamb", "moving_average", "clip_global_norm")


def test_names_are_unique() -> None:
    assert len({w.name for w in WORKLOADS}) == len(WORKLOADS) >= 25


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_every_workload_has_three_growing_sizes(workload: Workload) -> None:
    volumes = [np.prod(workload.shapes[size]) for size in (Size.L2, Size.L3, Size.DRAM)]
    assert volumes == sorted(volumes)
    small, middle = (workload.problem(size).io_bytes for size in (Size.L2, Size.L3))
    assert 0.25 * 2**20 < small < 1.3 * 2**20
    assert 4 * 2**20 < middle < 33 * 2**20


@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.name in TRAINING], ids=lambda w: w.name)
def test_optimizers_have_a_hundred_tensors(workload: Workload) -> None:
    (tree, *_) = workload.problem(Size.L2).args
    assert len(tree) > 100


def test_donated_arguments_are_carried() -> None:
    (workload,) = select("^moving_average$")["optimizers"]
    problem = workload.problem(Size.L2)
    args = problem.fresh_args()
    output = problem.function(*args)
    assert problem.next_args(args, output)[0] is output


def test_wrong_results_are_caught() -> None:
    good = (jnp.ones(3), jnp.arange(3))
    assert require_equal(good, good, 1e-6, "subject") == 0.0
    with pytest.raises(WrongResultError, match="subject, output 0"):
        require_equal((jnp.ones(3) * 1.01, jnp.arange(3)), good, 1e-3, "subject")
    with pytest.raises(WrongResultError, match="output 1"):
        require_equal((jnp.ones(3), jnp.arange(3) + 1), good, 1e-3, "subject")
    with pytest.raises(WrongResultError, match="float32"):
        require_equal((jnp.ones(3, jnp.float16), jnp.arange(3)), good, 1e-3, "subject")
    with pytest.raises(WrongResultError, match="NaN"):
        require_equal(
            (jnp.array([1, jnp.nan, 1]), jnp.arange(3)), (jnp.array([1, 1, jnp.nan]), jnp.arange(3)), 1, "s"
        )
    with pytest.raises(WrongResultError, match="output 0"):
        require_equal(jnp.array([1, jnp.nan, 1]), jnp.ones(3), 1e-3, "s")


def test_timing_statistics() -> None:
    assert timing.Timing.of([4.0, 1.0, 2.0, 3.0]) == timing.Timing(2.5, 1.0, 1.5, 4)
    calls = ""

    def count(name: str) -> None:
        nonlocal calls
        calls += name
        sum(range(20_000))

    pair = timing.interleaved(lambda: count("a"), lambda: count("b"), 0.05)
    sides = pair.first, pair.second
    assert all(t.samples >= timing.FEWEST_SAMPLES and 0 < t.smallest <= t.median for t in sides)
    assert calls.count("a") == calls.count("b")
    turns = ["".join(run) for _, run in groupby(calls)]
    assert min(map(len, turns)) > 1, "a sample follows a call of its own side"
    out_of_time = timing.interleaved(list, list, 0.0).first, *timing.alone([list], 0.0)
    assert [t.samples for t in out_of_time] == [timing.FEWEST_SAMPLES] * 2
    drifting = [(1.0, 1.0), (1.0, 1.0), (1.5, 3.0), (9.0, 9.0), (9.0, 9.0)]
    assert timing.Interleaved.of(drifting).ratio == 1.0


def test_jobs_select_and_merge() -> None:
    families = select("^softmax$|rope$")
    assert sorted(families) == ["fused", "softmax"]
    listed = jobs(families, tuple(Malloc), twins=True)
    assert [(job.family, job.malloc.value, job.twins) for job in listed] == [
        ("softmax", "default", False),
        ("fused", "default", False),
        ("softmax", "tuned", False),
        ("fused", "tuned", False),
        ("softmax", "default", True),
        ("softmax", "tuned", True),
    ]
    row = {"workload": "softmax", "size": "l2", "malloc": "tuned"}
    assert merge([row], [row | {"torch": {"median": 1.0}}]) == [row | {"torch": {"median": 1.0}}]
    assert merge([row], [row | {"error": "why"}]) == [row | {"torch_error": "why"}]


def test_verdict() -> None:
    console = Console(quiet=True)
    row = {
        "workload": "w",
        "size": "l2",
        "malloc": "tuned",
        "alone": {"ratio": 0.96},
        "interleaved": {"ratio": 2},
    }
    assert verdict(console, [row], 0.9) == 0
    assert verdict(console, [row], 0.97) == 1
    assert verdict(console, [{"workload": "w", "size": "l2", "malloc": "tuned", "error": "x"}], 0.0) == 1
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_measuring_xla_against_itself_by_accident_fails(capsys: pytest.CaptureFixture[str]) -> None:
    plain = {"workload": "w", "size": "l2", "malloc": "tuned", "alone": {"ratio": 1.0}, "stitched_kernels": 0}
    assert verdict(Console(), [plain, plain], 0.0) == 1
    assert "no kernel was stitched in any of 2 measurements" in capsys.readouterr().out
    assert verdict(Console(), [plain, plain | {"stitched_kernels": 1}], 0.0) == 0
    assert verdict(Console(), [plain], 0.0, compares=False) == 0


def test_a_child_prints_rows() -> None:
    arguments = [
        "child",
        "quantize",
        "--workload=quantize_rows",
        "--sizes=l2",
        "--seconds=0.02",
        "--side=jax",
    ]
    result = CliRunner().invoke(main, arguments)
    row = json.loads(result.output.splitlines()[-1])
    assert row["workload"] == "quantize_rows"
    assert row["max_difference"] == 0
    assert row["io_bytes"] == 128 * 768 * 5 + 128 * 4
    assert {"ratio", "jax", "jstitch"} == set(row["interleaved"]) == set(row["alone"])


@pytest.mark.parametrize(
    "arguments", [["run", "--help"], ["run", "--list"], ["compile", "--help"], ["overhead", "--help"]]
)
def test_help_and_list(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert "layer_norm_grad" in result.output or "--help" in result.output


def test_unknown_filter_and_size() -> None:
    assert CliRunner().invoke(main, ["run", "--filter", "nothing"]).exit_code == 2
    assert CliRunner().invoke(main, ["run", "--sizes", "l9"]).exit_code == 2


def test_problem_counts_bytes() -> None:
    assert Problem(lambda x: (x, x[0]), (jnp.ones((4, 2)),)).io_bytes == 32 + 32 + 8
