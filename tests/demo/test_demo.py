"""The demo, tiny: five steps agree; a training that goes wrong is noticed; the command line."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import jax
import pytest

pytest.importorskip("optax")

from click.testing import CliRunner
from rich.console import Console

from jstitch.__main__ import main
from jstitch.api import jit
from jstitch.demo.corpus import Corpus, load_corpus
from jstitch.demo.hlo import Kernel
from jstitch.demo.model import ModelConfig
from jstitch.demo.report import _largest, largest_difference, show, sparkline
from jstitch.demo.training import Side, TrainingConfig, initial_state, prepare, train

TINY = ModelConfig(vocabulary=300, length=8, width=16, heads=2, layers=1)
STEPS = 5


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus(TINY.vocabulary, 20_000)


@pytest.fixture(scope="module")
def reference(corpus: Corpus) -> Side:
    side = prepare("jax.jit", jax.jit, TrainingConfig(TINY, STEPS, batch=2))
    train((side,), TrainingConfig(TINY, STEPS, batch=2), corpus, lambda: None)
    return side


def test_five_steps_agree_with_jax_jit(corpus: Corpus, reference: Side) -> None:
    config = TrainingConfig(TINY, STEPS, batch=2)
    stitched = prepare("jstitch.jit", jit, config)
    train((stitched,), config, corpus, lambda: None)
    assert len(stitched.losses) == STEPS
    assert largest_difference(stitched.losses, reference.losses) < 1e-4
    text = StringIO()
    assert show(Console(file=text, width=120), reference, stitched, ())
    assert "agree" in text.getvalue()


def test_another_start_disagrees(corpus: Corpus, reference: Side) -> None:
    config = TrainingConfig(TINY, STEPS, batch=2, seed=7)
    other = replace(reference, state=initial_state(config), losses=[], seconds=[])
    train((other,), config, corpus, lambda: None)
    text = StringIO()
    assert not show(Console(file=text, width=120), reference, other, ())
    assert "DISAGREE" in text.getvalue()


def test_largest_difference_notices_nan() -> None:
    assert largest_difference([1.0, 2.0], [1.0, 4.0]) == 0.5
    assert largest_difference([float("nan")], [1.0]) == float("inf")


def test_sparkline() -> None:
    assert sparkline([0, 7, 3.5]) in ("▁█▄", "▁█▅")
    assert sparkline([1.0] * 3) == "▁▁▁"
    assert len(sparkline(list(range(1000)))) == 50


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_largest_kernels_have_all_columns(width: int) -> None:
    results = ", ".join(["f32[64,128]{1,0}"] * 450)
    kernel = Kernel(
        "train_step_layer_norm_multiply_add_row_1234", "custom-call", f"({results})", "jstitch", 12_000_000
    )
    console = Console(width=width, record=True)
    console.print(_largest([kernel]))
    found = console.export_text()
    assert all(text in found for text in ("train_step", "12.00", "f32[64,128]", "..."))
    assert len(found.splitlines()) < 12


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"]])
def test_help(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert "demo" in result.output


def test_bad_number_of_steps() -> None:
    assert CliRunner().invoke(main, ["demo", "--steps", "0"]).exit_code == 2


def test_a_demo_without_kernels_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing is stitched must not pass for one on which stitching is worth nothing."""
    monkeypatch.setattr("jstitch.demo.command.jit", jax.jit)
    monkeypatch.setattr("jstitch.demo.command.SMALL", TINY)
    result = CliRunner().invoke(main, ["demo", "--small", "--steps", "1"])
    assert result.exit_code == 1
    assert "expected stitched kernels in the training step, found none" in result.output
