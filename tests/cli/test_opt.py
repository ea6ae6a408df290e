"""`jstitch opt`, `passes` and `ops`: what they print, and what they say of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pydot
import pytest
from click.testing import CliRunner, Result

from jstitch.__main__ import main
from jstitch.frontend.mlir import module_bytes, parse_module
from jstitch.ir.ops import OPS
from jstitch.passes.pipeline import PIPELINE

MODULE = """
func.func private @twice(%x: tensor<64x300xf32>) -> tensor<64x300xf32> {
  %y = stablehlo.add %x, %x : tensor<64x300xf32>
  return %y : tensor<64x300xf32>
}
func.func public @entry(%x: tensor<64x300xf32>) -> tensor<64x300xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %unused = stablehlo.exponential %x : tensor<64x300xf32>
  %a = call @twice(%x) : (tensor<64x300xf32>) -> tensor<64x300xf32>
  %t = stablehlo.tanh %a : tensor<64x300xf32>
  %s = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x300xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> tensor<64x300xf32>
  %d = stablehlo.divide %t, %b : tensor<64x300xf32>
  return %d : tensor<64x300xf32>
}
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.mlir"
    path.write_text(MODULE)
    return path


def run(*arguments: str | Path, given: str | bytes | None = None, status: int = 0) -> Result:
    result = CliRunner().invoke(main, list(map(str, arguments)), input=given)
    assert result.exit_code == status, result.output
    return result


def test_passes_run_in_the_order_given(module: Path) -> None:
    result = run(
        "opt", module, "--passes", "dce,cse", "--time-passes", "--print-after", "dce", "--verify-each"
    )
    assert "stablehlo.exponential" not in result.stdout
    assert "stablehlo.tanh" in result.stdout
    assert result.stderr.index("after dce") < result.stderr.index("passes")
    assert [name for name in ("dce", "cse", "canonicalize") if name in result.stderr] == ["dce", "cse"]


def test_stop_after_and_print_before(module: Path) -> None:
    result = run("opt", module, "--stop-after", "canonicalize", "--print-before", "canonicalize")
    assert "stablehlo.exponential" in result.stdout  # dce did not run
    assert result.stderr.count("// -- before") == 1


def test_after_all_prints_every_pass(module: Path) -> None:
    result = run("opt", module, "--print-after-all")
    assert result.stderr.count("// -- after") == len(PIPELINE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pydot")
def test_what_can_be_emitted(module: Path) -> None:
    texts = {
        emit: run("opt", module, "--emit", emit, "--tune", "off").stdout
        for emit in ("graph", "plan", "kernels", "source", "mlir", "stitched", "dot")
    }
    assert "pattern 0" in texts["plan"]
    assert "reduce_0[" in texts["kernels"]
    assert "def phase0(" in texts["source"]
    assert parse_module(texts["mlir"]).operation.verify()
    assert "stablehlo.custom_call" in texts["stitched"]
    (picture,) = pydot.graph_from_dot_data(texts["dot"])
    assert [cluster.get_label() for cluster in picture.get_subgraphs()]
    assert len({text for text in texts.values()}) == len(texts)


def test_kernels_for_a_gpu_that_is_not_here(module: Path) -> None:
    assert "CTA]S;" in run("opt", module, "--emit", "kernels", "--target", "h200", "--tune", "off").stdout


def test_stdin_bytecode_and_output(module: Path, tmp_path: Path) -> None:
    code = module_bytes(parse_module(MODULE))
    out = tmp_path / "out.mlir"
    run("opt", "-", "--emit", "mlir", "-o", out, given=code)
    assert out.read_text() == run("opt", module, "--emit", "mlir").stdout


def test_jaxs_own_modules_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "step.mlir"
    lowered = jax.jit(jax.grad(lambda x: jnp.sum(jax.nn.softmax(x) ** 2))).lower(jnp.ones((32, 64)))
    path.write_text(lowered.as_text())
    assert parse_module(run("opt", path, "--emit", "mlir").stdout).operation.verify()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (b"", "found nothing"),
        (b"junk", "Unable to parse"),
        (b"\xff\xfe\x00\x01", "starting"),
        (b"module {", "Unable to parse"),
        (b"func.func @a() { return }\nfunc.func @b() { return }", "found 2 public functions"),
    ],
)
def test_bad_modules_are_one_line_and_status_2(given: bytes, reason: str) -> None:
    result = run("opt", "-", given=given, status=2)
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout


def test_bad_options(module: Path) -> None:
    assert "no pass is called weave" in run("opt", module, "--passes", "cse,weave", status=2).stderr
    assert "h9000" in run("opt", module, "--target", "h9000", status=2).stderr
    assert "No such file" in run("opt", "missing.mlir", status=2).stderr


def test_listings() -> None:
    names = [row["name"] for row in json.loads(run("passes", "--json").stdout)]
    assert names == [p.name for p in PIPELINE]
    rows = json.loads(run("ops", "--json").stdout)
    assert {row["name"] for row in rows} <= set(OPS)
    assert {"left to XLA", "in kernels"} <= {row["where"] for row in rows}
    assert "clone_broadcasts" in run("passes").stdout
