"""`jstitch opt`, `passes` and `ops`: what they print, and what they say of bad input."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pydot
import pytest
from click.testing import CliRunner, Result

from jstitch.__main__ import main
from jstitch.cli.files import target_of
from jstitch.cli.progress import progress
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import module_bytes, parse_module
from jstitch.ir.ops import OPS
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.named_pass import graph_pass
from jstitch.passes.fuse.print_plan import print_plan
from jstitch.passes.graph.copy_carried import copy_carried
from jstitch.passes.pipeline import PIPELINE, frames
from jstitch.passes.pipeline import run as run_pipeline
from jstitch.passes.plan_frame import plan_frame

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


def test_kernels_by_a_template(module: Path, tmp_path: Path) -> None:
    """Built as it says; a kernel that cannot be is not there, and text that is no template is an error."""
    template = tmp_path / "template.txt"
    how = ("opt", module, "--emit", "kernels", "--tune", "off", "--template", template)
    template.write_text("# few programs\nreduce_0[GRID_4-THREAD_2, THREAD]S;\n")
    assert "64 rows, 2 per step, 4 programs" in run(*how).stdout
    template.write_text("reduce_0[GRID_400, THREAD]S;")
    assert "programs" not in run(*how).stdout
    template.write_text("reduce_0[")
    assert "template, line 1" in run(*how, status=2).stderr.replace("\n", " ")


LOOP = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %go = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %w = stablehlo.tanh %v : tensor<4xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
    }
  return %r#1 : tensor<4xf32>
}
"""


@pytest.mark.parametrize(
    ("passes", "loops"),
    [
        ("unroll_loops", 0),
        ("unroll_loops{}", 0),
        ("unroll_loops{trips=5}", 0),
        ("unroll_loops{trips=4}", 1),
        (" unroll_loops { trips=5 ops=9 } , cse", 1),
        ("cse,unroll_loops{ops=10 trips=8}", 0),
    ],
)
def test_pass_options(passes: str, loops: int) -> None:
    result = run("opt", "-", "--passes", passes, given=LOOP)
    assert result.stdout.count("stablehlo.while") == loops


def test_passes_on_plans(module: Path) -> None:
    passes = "canonicalize,dce,plan_layers,merge_patterns,gate{margin=inf packed=true}"
    result = run("opt", module, "--passes", passes, "--verify-each", "--time-passes")
    assert "pattern 0 (plan_layers)" in result.stdout
    assert "1 patterns" in result.stderr
    gated = run("opt", module, "--passes", passes.replace("inf", "0"), "--emit", "plan").stdout
    assert "pattern 0" not in gated
    assert "    gate: " in gated
    assert (
        "jstitch"
        not in run("opt", module, "--passes", passes.replace("inf", "0"), "--emit", "stitched").stdout
    )


@pytest.mark.parametrize("planner", ["layers", "ilp", "dp"])
def test_the_default_passes_make_the_plan_that_a_program_gets(module: Path, planner: str) -> None:
    passes = (*PIPELINE, graph_pass("copy_carried", run_on=copy_carried, about=copy_carried))
    options = CompileOptions(target="cpu", planner=planner)
    context = Context(options, target_of(options).profile)
    graph = run_pipeline(import_module(parse_module(MODULE)), context, passes)
    expected = "\n".join(print_plan(plan_frame(frame, context)) for frame in frames(graph))
    found = run("opt", module, "--emit", "plan", "--planner", planner).stdout
    assert found == f"frame 0\n{expected}\n"


def test_json(module: Path) -> None:
    found = json.loads(run("opt", module, "--json", "--passes", "cse,plan_layers").stdout)
    assert [p["name"] for p in found["passes"]] == ["cse", "plan_layers"]
    assert found["passes"][0]["ops"] > found["passes"][1]["patterns"] > 0
    assert found["text"] == run("opt", module, "--passes", "cse,plan_layers").stdout.rstrip("\n")


def test_a_bar_for_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with progress(2, patience=0.01) as step:
        step("first")
        step("second")
        time.sleep(0.3)
    assert "second" in capfd.readouterr().err
    with progress(2, patience=100) as step:
        step("first")
    assert "first" not in capfd.readouterr().err


def test_nothing_half_written(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("kept")
    run("opt", "-", "-o", out, given="func.func @main( {", status=2)
    assert out.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [out]


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


@pytest.mark.parametrize(
    ("passes", "reason"),
    [
        ("cse,weave", "found weave"),
        ("gate", "found a graph before it"),
        ("plan_layers,cse", "found a plan before it"),
        ("cse{}{}", "found '{}'"),
        ("cse{depth=2}", "an option of cse: none, found depth"),
        ("unroll_loops{trips=many}", "a whole number, found many"),
        ("plan_layers,gate{packed=1}", "true or false, found 1"),
        ("unroll_loops{trips=1,2}", "a whole number, found 1,2"),
        ("", "found 'the end'"),
        ("cse,", "found ','"),
        ("cse{" * 10000, "found"),
        ("x" * 100000, "at most"),
    ],
)
def test_bad_pipelines(module: Path, passes: str, reason: str) -> None:
    assert reason in " ".join(run("opt", module, "--passes", passes, status=2).stderr.split())


def test_bad_options(module: Path) -> None:
    assert "h9000" in run("opt", module, "--target", "h9000", status=2).stderr
    assert "No such file" in run("opt", "missing.mlir", status=2).stderr


def test_listings() -> None:
    rows = json.loads(run("passes", "--json").stdout)
    assert [row["name"] for row in rows][: len(PIPELINE)] == [p.name for p in PIPELINE]
    by_name = {row["name"]: row for row in rows}
    assert by_name["unroll_loops"]["options"] == {"trips": 8, "ops": 400}
    assert (by_name["gate"]["takes"], by_name["plan_dp"]["takes"], by_name["plan_dp"]["gives"]) == (
        *("plan", "graph", "plan"),
    )
    assert all(row["what"] for row in rows)
    rows = json.loads(run("ops", "--json").stdout)
    assert {row["name"] for row in rows} <= set(OPS)
    assert {"left to XLA", "in kernels"} <= {row["where"] for row in rows}
    assert "clone_broadcasts" in run("passes").stdout
