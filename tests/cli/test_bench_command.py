"""`jstitch bench`: both sides are checked before they are timed, whatever the subject is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner, Result

from jstitch.__main__ import main
from jstitch.cli import side_by_side
from jstitch.cli.side_by_side import Step, Times

FUNCTIONS = """
import jax
import jax.numpy as jnp


def normalize(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def train():
    def step(p, m, g, *, flip):
        m = {k: 0.9 * m[k] + g if flip else m[k] for k in m}
        return {k: p[k] - 0.01 * jnp.tanh(m[k]) for k in p}, m

    p = {"a": jnp.ones((64, 128)), "b": jnp.full((64, 128), 2.0)}
    return jax.jit(step, donate_argnums=(0, 1), static_argnames="flip"), (p, dict(p), 3.0), {"flip": True}


def broken(x):
    raise KeyError("a message of the user's")
"""


@pytest.fixture
def functions(tmp_path: Path) -> str:
    path = tmp_path / "benched_functions.py"
    path.write_text(FUNCTIONS)
    return str(path)


def bench(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, ["bench", *arguments, "--seconds", "0.1", "--tune", "model"])
    assert result.exit_code == status, result.output
    return result


def check_times(found: dict[str, Any]) -> None:
    assert found["same"]
    for way in ("in_turn", "alone"):
        for side in ("jax", "jstitch"):
            times = found[way][side]
            assert 0 < times["low"] <= times["median"] <= times["high"]
    assert found["in_turn"]["verdict"] in ("faster", "slower", "not told apart")


def test_a_function_with_shapes(functions: str) -> None:
    found = json.loads(bench(f"{functions}:normalize", "--args", "f32[512,256]", "--json").stdout)
    check_times(found)
    assert found["kernels"] == 1
    assert found["bytes"] == 2 * 4 * 512 * 256


def test_donated_and_static_arguments(functions: str) -> None:
    check_times(json.loads(bench(f"{functions}:train", "--json").stdout))


def test_a_module(tmp_path: Path) -> None:
    lowered = jax.jit(lambda x, i: jnp.tanh(x)[i] + 1.0).lower(jnp.ones((64, 256)), jnp.arange(8))
    path = tmp_path / "module.mlir"
    path.write_text(lowered.as_text())
    check_times(json.loads(bench(str(path), "--json").stdout))


def test_the_table(functions: str) -> None:
    text = bench(f"{functions}:normalize", "--args", "f32[512,256]").stdout
    assert "1 kernels stitched" in text
    assert "each alone" in text
    assert "1,048,576 bytes" in text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda y: y * 1.001, "of its largest element apart"),
        (lambda y: y.at[3, 3].set(jnp.nan), "output 0"),
    ],
)
def test_wrong_results_are_not_timed(
    functions: str, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any], reason: str
) -> None:
    def wrong(f: Any, **_: Any) -> Any:
        return jax.jit(lambda x: change(f(x)))

    monkeypatch.setattr(side_by_side, "jit", wrong)
    arguments = (f"{functions}:normalize", "--args", "f32[512,256]")
    found = json.loads(bench(*arguments, "--json", status=1).stdout)
    assert not found["same"]
    assert "in_turn" not in found
    assert reason in bench(*arguments, status=1).stdout


def test_bad_subjects(functions: str) -> None:
    for arguments, reason in (
        ((f"{functions}:nope",), "nope"),
        ((f"{functions}:broken", "--args", "f32[2]"), "a message of the user's"),
        (("missing.mlir",), "No such file"),
    ):
        result = bench(*arguments, status=2)
        assert reason in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_a_step_carries_what_it_gives_away() -> None:
    """The user's arrays stay; the second call takes the results of the first."""
    x = jnp.zeros((4, 4))
    step = Step(jax.jit(lambda x, y: (y, x + 1.0), donate_argnums=0), ((x, 7), {}))
    for _ in range(3):
        _, found = step()
    assert float(found[0, 0]) == 3.0
    assert not x.is_deleted()


def test_quartiles() -> None:
    assert Times.of([1.0, 2.0, 3.0, 4.0, 5.0]) == Times(3.0, 2.0, 4.0, 5)
    assert Times.of([1.0]) == Times(1.0, 1.0, 1.0, 1)
