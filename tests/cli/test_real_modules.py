"""Every command that takes a module, on three: what JAX exports of a transformer's training step, a module of
another producer (as text, bytecode and a portable artifact), and 20,000 ops.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner, Result

from benchmarks.planner_time import training_graph
from jstitch.__main__ import main
from jstitch.demo.model import ModelConfig
from jstitch.demo.training import TrainingConfig, initial_state, train_step
from jstitch.frontend.exporter import export_module
from jstitch.frontend.mlir import module_bytes, parse_module, stablehlo

pytestmark = pytest.mark.once  # commands begin at a module
LARGE, LARGEST = 5_000, 20_000  # ops
FOREIGN = Path(__file__).with_name("foreign.mlir")

COMMANDS: dict[str, list[str]] = {
    **{f"opt {emit}": ["opt", "--emit", emit] for emit in ("graph", "plan", "kernels", "source")},
    **{f"opt {emit}": ["opt", "--emit", emit] for emit in ("mlir", "stitched", "dot")},
    "opt verified": ["opt", "--verify-each", "--time-passes", "--print-after", "dce"],
    "plan": ["plan", "--json"],
    "plan ilp": ["plan", "--planner", "ilp"],
    "plan dp": ["plan", "--planner", "dp"],
    "plan h200": ["plan", "--target", "h200"],
    "explain": ["explain", "--json"],
    "run": ["run", "--random", "0", "--compare"],
    "bench": ["bench", "--seconds", "0.1", "--json"],
    "report": ["report", "-o", "report.html"],
}
QUICK = ("opt graph", "opt mlir", "opt verified", "plan", "explain")
"""What is tried of the other producer's module in its other forms."""

SLOW = (
    *("opt source", "opt stitched", "opt dot", "opt kernels", "opt plan"),
    *("plan ilp", "plan dp", "plan h200", "bench"),
)
"""What takes seconds for a training step, and is tried of the other producer's module all the same."""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the modules."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "step.mlir").write_text(_training_step())
    (folder / "foreign.mlir").write_text(FOREIGN.read_text())
    module = parse_module(FOREIGN.read_text())
    (folder / "foreign.bc").write_bytes(module_bytes(module))
    with module.context:
        artifact = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
    (folder / "foreign.stablehlo").write_bytes(artifact)
    (folder / "large.mlir").write_text(str(export_module(training_graph(LARGE))))
    return folder


def _training_step() -> str:
    """With the locations of the user's lines."""
    config = TrainingConfig(ModelConfig(vocabulary=256, length=16, width=32, heads=2, layers=1), batch=2)
    tokens = jax.eval_shape(lambda: jnp.zeros((2, 17), jnp.int32))
    step = jax.jit(partial(train_step, config), donate_argnums=0)
    state = jax.eval_shape(partial(initial_state, config))
    key = jax.eval_shape(lambda: jax.random.key(0))
    return step.lower(state, tokens, key).as_text(debug_info=True)


def run(command: str, path: Path, folder: Path) -> Result:
    name, *options = COMMANDS[command]
    options = [str(folder / word) if word == "report.html" else word for word in options]
    result = CliRunner().invoke(main, [name, str(path), *options])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in COMMANDS]
)
def test_a_training_step(command: str, modules: Path, tmp_path: Path) -> None:
    result = run(command, modules / "step.mlir", tmp_path)
    if command == "opt graph":
        assert "model.py:" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_another_producers_module(command: str, modules: Path, tmp_path: Path) -> None:
    result = run(command, modules / "foreign.mlir", tmp_path)
    if command == "opt graph":
        assert "torch/nn/functional.py:2104" in result.stdout
        assert "stablehlo.composite" in result.stdout
        assert "call" not in result.stdout
    if command == "opt stitched":
        assert "stablehlo.custom_call @jstitch" in result.stdout


@pytest.mark.parametrize("form", ["bc", "stablehlo"])
@pytest.mark.parametrize("command", QUICK)
def test_its_other_forms(command: str, form: str, modules: Path, tmp_path: Path) -> None:
    found = run(command, modules / f"foreign.{form}", tmp_path).stdout
    if command == "opt mlir":
        assert found == run(command, modules / "foreign.mlir", tmp_path).stdout


def test_the_plan_of_many_ops(modules: Path, tmp_path: Path) -> None:
    """`pytest -s` shows how long it takes."""
    start = time.perf_counter()
    result = run("plan", modules / "large.mlir", tmp_path)
    print(f"the plan of {LARGE:,} ops took {time.perf_counter() - start:.1f} s")
    assert json.loads(result.stdout)


@pytest.fixture(scope="module")
def largest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "largest.mlir"
    path.write_text(str(export_module(training_graph(LARGEST))))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_many_ops(command: str, largest: Path, tmp_path: Path) -> None:
    run(command, largest, tmp_path)
