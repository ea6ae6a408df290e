"""`jstitch inspect`: what it prints of a dump, and what it says of what is none."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner, Result

from jstitch.__main__ import main
from jstitch.codegen.cuda.resources import find_tool
from jstitch.inspection.subject import observe_function
from jstitch.options import CompileOptions


def step(x: jax.Array) -> jax.Array:
    y = jnp.tanh(x) + 0.0
    return y / y.sum(-1, keepdims=True)


def write(folder: Path, target: str, **others: object) -> Path:
    shape = jax.ShapeDtypeStruct((64, 300), jnp.float32)
    options = CompileOptions(target=target, dump_dir=str(folder), tune="off", strict=True)
    observe_function(step, (shape,), {}, options.replace(**others))
    return folder


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("dump"), "cpu")


def run(*arguments: str | Path, status: int = 0) -> Result:
    result = CliRunner().invoke(main, ["inspect", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result


def kernel_of(dump: Path) -> str:
    (path,) = dump.glob("*/*.kernel.txt")
    return path.name.removesuffix(".kernel.txt").partition("_")[2]


def test_list(dump: Path) -> None:
    (call,) = json.loads(run(dump, "--json").stdout)
    stages = {s["name"]: s for s in call["stages"]}
    assert call["call"].startswith("step_")
    assert stages["dce.txt"]["changed"].startswith("-")
    assert stages["dce.txt"]["ops"] < stages["cse.txt"]["ops"]
    assert f"{kernel_of(dump)}.json" in stages
    assert "clone_broadcasts" in run(dump).stdout
    assert run("--json", dump).stdout == run(dump, "--json").stdout


def test_a_list_names_missing_files(tmp_path: Path) -> None:
    folder = write(tmp_path, "cpu")
    (lost,) = folder.glob("*/02_*")
    lost.unlink()
    assert "02 are missing" in run(folder).stderr


def test_show_and_diff(dump: Path) -> None:
    assert run(dump, "show", "step", "0").stdout == run(dump, "show", "step", "input").stdout
    changed = run(dump, "diff", "step", "cse", "dce", status=1).stdout
    assert changed.startswith("--- step_")
    assert "# went: " in changed
    fields = json.loads(run(dump, "diff", "step", "cse", "dce", "--json", status=1).stdout)
    assert fields["went"]
    assert not fields["same"]
    assert "---" not in run(dump, "diff", "step", "cse", "dce", "--stat", status=1).stdout
    assert run(dump, "diff", "step", "dce", "dce").stdout == ""


def test_compare(dump: Path, tmp_path: Path) -> None:
    assert all(row["call"] for row in json.loads(run(dump, "compare", dump, "--json").stdout))
    other = write(tmp_path, "cpu", arena_bytes=700)
    (pair,) = json.loads(run(dump, "compare", other, "--json", status=1).stdout)
    assert {row["same"] for row in pair["stages"] if row["before"].endswith("dce.txt")} == {True}
    assert [row["same"] for row in pair["kernels"]] == [False]
    assert "differ" in run(dump, "compare", other, status=1).stdout
    text = run(dump, "compare", other, "--kernel", kernel_of(dump), status=1).stdout
    assert any(line.startswith("-  arena") for line in text.splitlines())
    assert "expected a stage or kernel" in run(dump, "compare", other, "--stage", "weave", status=2).stderr


def test_kernel(dump: Path, tmp_path: Path) -> None:
    name = kernel_of(dump)
    assert "phase 0" in run(dump, "kernel", name).stdout
    assert "def phase0(" in run(dump, "kernel", name, "--show", "source").stdout
    asm = run(dump, "kernel", name, "--show", "asm").stdout
    assert asm.startswith(f"# {name}: compiled again")
    assert "\tret" in asm
    picture = tmp_path / "memory.svg"
    assert run(dump, "kernel", name, "--svg", picture).stdout == ""
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert [p.name for p in tmp_path.iterdir()] == ["memory.svg"]
    for what in ("ptx", "resources", "timeline"):
        assert f"{name} is for cpu" in run(dump, "kernel", name, "--show", what, status=2).stderr


@pytest.mark.skipif(util.find_spec("numba_cuda") is None, reason="there is no PTX")
def test_a_kernel_for_a_gpu(tmp_path: Path) -> None:
    folder = write(tmp_path, "h200")
    name = kernel_of(folder)
    assert ".entry" in run(folder, "kernel", name, "--show", "ptx").stdout
    assert "registers" in run(folder, "kernel", name, "--show", "resources").stdout
    assert "one for h200" in run(folder, "kernel", name, "--show", "asm", status=2).stderr
    if find_tool("ptxas") and find_tool("nvdisasm"):
        shown = run(folder, "kernel", name, "--show", "timeline").stdout
        assert "of the cycles that warps wait" in shown
        assert "an estimate" in shown


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("show", "nope", "cse"), "found 'nope'"),
        (("show", "step", "weave"), "found 'weave'"),
        (("diff", "step", "cse", "99"), "found '99'"),
        (("kernel", "weave"), "found 'weave'"),
        (("compare", "nowhere"), "found nothing"),
    ],
)
def test_what_is_not_there_is_one_line(dump: Path, arguments: tuple[str, ...], reason: str) -> None:
    result = run(dump, *arguments, status=2)
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout


def test_what_is_no_dump(tmp_path: Path) -> None:
    for path, found in ((tmp_path, "an empty folder"), (tmp_path / "none", "nothing"), (__file__, "a file")):
        result = run(path, status=2)
        assert f"found {found}" in result.stderr
        assert len(result.stderr.splitlines()) == 1
