"""The papers' workloads: complete, stitched to `jax.jit`'s results, counted for a GPU that is not here."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("optax")

from click.testing import CliRunner
from rich.console import Console

from benchmarks import papers
from benchmarks.__main__ import main
from benchmarks.check import require_equal
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.workload import tree_bytes
from benchmarks.workloads.papers import PAPERS
from benchmarks.workloads.papers.paper import Paper
from tests.shares import one_in, slow

needs_plugin = pytest.mark.skipif(
    util.find_spec("jax_cuda13_plugin") is None, reason="JAX's CUDA plugin is not installed: jstitch[analyze]"
)
LONG = (
    "dialog",
    "speech",
    "dien_train",
    "dien_infer",
    "crnn",
    "transformer_train",
    "bert_train",
)  # to compile, even when tiny
PARAMETERS = {"bert_infer": 109.5e6, "transformer_train": 60.5e6, "nmt": 60.5e6, "word2vec": 20.05e6}


def named(name: str) -> Paper:
    (paper,) = [paper for paper in PAPERS if paper.name == name]
    return paper


@pytest.mark.parametrize(
    "paper",
    [*one_in(2, (p for p in PAPERS if p.name not in LONG)), *(slow(named(name)) for name in LONG)],
    ids=lambda paper: paper.name,
)
def test_stitched_results_are_those_of_jax_jit(paper: Paper) -> None:
    problem = paper.small()
    expected = jax_jit(problem)(*problem.fresh_args())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(expected))
    found = subject_jit(problem, Side.JSTITCH)(*problem.fresh_args())
    require_equal(found, expected, problem.tolerance, paper.name)


def test_every_workload_of_the_papers_is_here() -> None:
    names = [paper.name for paper in PAPERS]
    assert len(set(names)) == len(names) == 17
    assert {paper.source for paper in PAPERS} == {"FS-2018", "FS-2019", "FS-2021"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_models_have_their_public_number_of_parameters(name: str) -> None:
    assert tree_bytes(named(name).shapes().args[0]) / 4 == pytest.approx(PARAMETERS[name], rel=0.02)


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_training_steps_donate_and_return_their_state(paper: Paper) -> None:
    problem = paper.shapes()
    outputs = jax.eval_shape(problem.function, *problem.args)
    for number in problem.donate:
        assert jax.tree.map(_type, outputs[number]) == jax.tree.map(_type, problem.args[number])


def _type(leaf: Any) -> tuple[tuple[int, ...], str]:
    return leaf.shape, str(leaf.dtype)


def row(name: str, launches: int, moved: int, **others: Any) -> papers.Row:
    """XLA: 100 launches of 200 bytes in all; the least is 100."""
    plain = {"launches": 100, "bytes": 200, "all_bytes": 300, "products": 4, "unknown_loops": 0}
    counts = {"launches": launches, "bytes": moved, "all_bytes": moved + 100, "products": 4}
    ours = counts | {"unknown_loops": 0, "reasons": []} | others
    return {"workload": name, "plain": plain, "least": 100, "planners": {"layers": ours}}


def test_the_verdict_names_every_bar_that_is_missed() -> None:
    assert list(papers.misses([row("a", 40, 110), row("b", 50, 120)], "layers")) == []
    assert [line.split()[0] for line in papers.misses([row("a", 50, 110)], "layers")] == ["launches"]
    assert [line.split()[0] for line in papers.misses([row("a", 40, 130)], "layers")] == ["bytes"]
    missed = list(papers.misses([row("a", 1, 1), row("b", 101, 201)], "layers"))
    assert [line.split(":")[0] for line in missed] == ["b", "b"]
    inside = (
        row("a", 1, 1),
        row("b", 40, 210, products=2, all_bytes=290),
    )  # its kernels move what products did
    assert not list(papers.misses(inside, "layers"))
    assert list(papers.misses((inside[0], row("b", 40, 210, products=2, all_bytes=301)), "layers"))
    (line,) = papers.misses([row("a", 40, 110, unknown_loops=1)], "layers")
    assert "turns" in line
    (line,) = papers.misses([row("a", 40, 110, reasons=["why"])], "layers")
    assert "why" in line
    assert not papers.verdict(Console(quiet=True), [row("a", 50, 110)], "layers")


def test_rows_are_kept_next_to_others(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    first, second = row("a", 40, 110), row("b", 40, 110)
    papers.keep(path, first)
    papers.keep(path, second)
    papers.keep(path, first | {"least": 7, "planners": {"ilp": {"launches": 3}}})
    b, a = json.loads(path.read_text())
    assert b == second
    assert a["least"] == 7
    assert a["planners"] == first["planners"] | {"ilp": {"launches": 3}}


def test_unknown_workloads_and_planners_are_refused() -> None:
    assert CliRunner().invoke(main, ["papers", "--filter", "nothing"]).exit_code == 2
    assert CliRunner().invoke(main, ["papers", "--planner", "magic"]).exit_code == 2


@needs_plugin
def test_the_command_counts_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    arguments = ["papers", "--filter", "^lr$", "--planner", "layers", "--json", str(path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == int("expected at most" in result.output), result.output  # the bars' verdict
    (found,) = json.loads(path.read_text())
    layers = found["planners"]["layers"]
    assert 5 <= found["plain"]["launches"] <= 12
    assert layers["launches"] <= 0.45 * found["plain"]["launches"]
    assert 8000 <= found["least"] <= layers["bytes"] < found["plain"]["bytes"]
