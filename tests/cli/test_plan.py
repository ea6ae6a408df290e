"""`jstitch plan` and `jstitch explain` on files and functions: what they print, JSON, and bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jstitch.__main__ import main
from tests.cli.test_opt import MODULE

PROGRAM = """
import jax, jax.numpy as jnp

def soft(x):
    return jax.nn.softmax(x) @ x.T

def case():
    return soft, (jnp.ones((64, 300)),)

def keywords():
    return soft, (), {"x": jnp.ones((64, 300))}

def looping(x):
    return jax.lax.scan(lambda c, _: (jnp.exp(jnp.sort(jnp.tanh(c))), None), x, None, length=50)[0]

class Holder:
    soft = staticmethod(soft)

def broken():
    raise RuntimeError("no data here")

def wrong():
    return 3

number = 4
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.mlir"
    path.write_text(MODULE)
    return path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def run(*arguments: str | Path, given: str | None = None, status: int = 0) -> Result:
    result = CliRunner().invoke(main, list(map(str, arguments)), input=given)
    assert result.exit_code == status, result.output
    return result


@pytest.mark.parametrize("target", ["cpu", "h200", "sm_90"])
def test_plan_of_a_module(module: Path, target: str) -> None:
    result = run("plan", module, "--target", target, "--tune", "off")
    assert "1 kernels of" in " ".join(result.stdout.split())
    found = json.loads(run("plan", module, "--target", target, "--tune", "off", "--json").stdout)
    (pattern,) = found["calls"][0]["frames"][0]["patterns"]
    assert found["totals"]["ours"]["launches"] == 1
    assert found["totals"]["xla"]["nbytes"] >= found["totals"]["ours"]["nbytes"] > 0
    assert (pattern["kernel"]["launches"] == []) == (target == "cpu")


def test_standard_input(module: Path) -> None:
    assert run("plan", "-", given=MODULE).stdout.splitlines()[0].startswith("- for cpu")


@pytest.mark.parametrize("what", ["case", "keywords"])
def test_functions_without_parameters_give_arguments(program: Path, what: str) -> None:
    shown = run("plan", f"{program}:{what}", "--tune", "off").stdout
    assert "1 kernels of" in " ".join(shown.split())


@pytest.mark.parametrize("what", ["soft", "Holder.soft"])
def test_functions_with_shapes(program: Path, what: str) -> None:
    result = run("explain", f"{program}:{what}", "--args", "bf16[32,64]", "--tune", "off", "--json")
    (call,) = json.loads(result.stdout)["calls"]
    assert {edge["why"]["rule"] for edge in call["edges"]} == {"alone"}
    assert all(edge["remedy"] for edge in call["edges"])


def test_functions_of_modules_on_the_path() -> None:
    assert "for h200" in run("plan", "jax.nn:softmax", "--args", "f32[64,64]", "--target", "h200").stdout


def test_explain_of_a_module() -> None:
    result = run("explain", Path(__file__).parents[1] / "golden" / "gate.mlir")
    assert re.search(r"gate\s+│ modelled", result.stdout)
    assert "tune='off'" in result.stdout


def test_one_edge_by_value_op_and_line(program: Path) -> None:
    subject = f"{program}:case"
    whole = json.loads(run("explain", subject, "--json", "--tune", "off").stdout)
    edge = next(e for e in whole["calls"][0]["edges"] if e["consumer"]["name"] == "stablehlo.dot_general")
    producer, consumer = edge["producer"]["values"][0], edge["consumer"]["values"][0]
    for names in ((producer, consumer), ("divide", "dot_general"), ("program.py:5", "program.py:5")):
        shown = run("explain", subject, "--tune", "off", "--edge", *names).stdout
        assert "alone: no other product's rows become its own" in shown
        assert "remedy: " in shown
    assert (
        "in one kernel, "
        in run("explain", subject, "--tune", "off", "--edge", "exponential", "divide").stdout
    )


def test_an_edge_of_a_loop_says_which(program: Path) -> None:
    shown = run("explain", f"{program}:looping", "--args", "f32[64,64]", "--edge", "tanh", "sort").stdout
    assert "%0 stablehlo.tanh -> %1 stablehlo.sort in region 1 of stablehlo.while at " in shown
    assert "sort: a sort is a kernel of its own" in shown


def test_edges_that_are_not_there(program: Path) -> None:
    subject = f"{program}:case"
    turned = run("explain", subject, "--edge", "dot_general", "divide", status=2).stderr
    assert "there is one from divide to dot_general" in turned
    apart = run("explain", subject, "--edge", "exponential", "dot_general", status=2).stderr
    assert "exponential is read by " in apart
    assert "nothing that nobody names" in run("explain", subject, "--edge", "nobody", "x", status=2).stderr


@pytest.mark.parametrize(
    ("subject", "args", "says"),
    [
        ("{program}:broken", None, "RuntimeError: no data here"),
        ("{program}:wrong", None, "expected it to return (f, args) or (f, args, kwargs), found int"),
        ("{program}:soft", None, "found parameters x; give their shapes with --args"),
        ("{program}:soft", "f32[2,", "expected dtype[dims]"),
        ("{program}:soft", "f32[4,4] f32[4,4]", "TypeError"),
        ("{program}:nobody", None, "expected a function called nobody, found none"),
        ("{program}:number", None, "expected a function, found int"),
        ("no_such_package.x:f", None, "No module named 'no_such_package'"),
        ("{folder}/none.py:f", None, "expected a Python file, found none"),
        ("{folder}/none.mlir", None, "No such file"),
        ("{module}", "f32[3]", "--args is for MODULE:FUNCTION"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "explain"])
def test_bad_subjects_cost_a_line(
    command: str, subject: str, args: str | None, says: str, program: Path, module: Path, tmp_path: Path
) -> None:
    name = subject.format(program=program, module=module, folder=tmp_path)
    result = run(command, name, *(("--args", args) if args is not None else ()), status=2)
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout
