"""`jstitch run`: results, comparisons, bisection and reproducers, and what it says of bad input."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result

from jstitch.__main__ import main
from jstitch.codegen.cpu import backend
from jstitch.codegen.cpu.emit import Emitted
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend import rewrite
from jstitch.ir.graph import Graph
from jstitch.passes.base.context import on_any_target
from jstitch.passes.base.named_pass import graph_pass
from jstitch.passes.graph.dce import dce
from jstitch.passes.pipeline import PIPELINE

SOURCE = """
import jax.numpy as jnp
import numpy as np

def f(x, n):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    return y, y.astype(jnp.bfloat16), n + 1, y[:0], jnp.any(y > 0.5)

def subject():
    return f, (np.linspace(-3, 3, 1200, dtype=np.float32).reshape(40, 30), np.int32(4))
"""
X = np.linspace(-3, 3, 1200, dtype=np.float32).reshape(40, 30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.py, model.mlir and in.npz: five results, of four dtypes, one empty, one 0-d."""
    place = tmp_path_factory.mktemp("run")
    (place / "model.py").write_text(SOURCE)
    names: dict[str, object] = {}
    exec(SOURCE, names)
    (place / "model.mlir").write_text(jax.jit(names["f"]).lower(X, np.int32(4)).as_text())
    np.savez(place / "in.npz", X, np.int32(4))
    return place


def run(*arguments: str | Path, status: int = 0) -> Result:
    result = CliRunner().invoke(main, ["run", *map(str, arguments)])
    assert result.exit_code == status, (result.output, result.exception)
    return result


def test_results_go_to_a_file(folder: Path, tmp_path: Path) -> None:
    model, given = folder / "model.mlir", folder / "in.npz"
    for by in ("ours", "xla"):
        run(model, "--inputs", given, "--output", tmp_path / f"{by}.npz", "--by", by, "--tune", "off")
    ours, xla = (np.load(tmp_path / f"{by}.npz") for by in ("ours", "xla"))
    assert ours.files == [f"arr_{n}" for n in range(5)]
    np.testing.assert_allclose(ours["arr_0"].sum(-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(ours["arr_1"].view(ml_dtypes.bfloat16).shape, X.shape)
    for name in ours.files:
        assert (ours[name].dtype, ours[name].shape) == (xla[name].dtype, xla[name].shape)
    assert ours["arr_2"] == xla["arr_2"] == 5
    assert ours["arr_3"].size == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ours.npz", "xla.npz"]


def test_a_right_program(folder: Path) -> None:
    given = ("--inputs", folder / "in.npz", "--tune", "off")
    result = run(folder / "model.mlir", *given, "--compare", "--bisect")
    assert "same, by the numerics rule; errors are against NumPy in float64" in result.stdout
    assert "tensor<40x30xbf16>" in result.stdout
    assert "DIFFERENT" not in result.stdout


def test_json(folder: Path) -> None:
    model = folder / "model.mlir"
    found = json.loads(run(model, "--random", "3", "--compare", "--tune", "off", "--json").stdout)
    assert found["comparison"]["same"] is True
    assert found["kernels"] >= 1
    assert [o["type"] for o in found["comparison"]["outputs"]][3:] == ["tensor<0x30xf32>", "tensor<i1>"]
    assert found["culprit"] is None
    alone = json.loads(run(model, "--random", "3", "--json").stdout)
    assert len(alone["outputs"]) == 5
    assert alone["comparison"] is None


def test_a_function(folder: Path) -> None:
    model = f"{folder / 'model.py'}:subject"
    assert "same, by" in run(model, "--compare", "--tune", "off").stdout
    shapes = ("--args", "f32[40,30] s32[]")
    f = f"{folder / 'model.py'}:f"
    assert "same, by" in run(f, *shapes, "--random", "1", "--compare", "--tune", "off").stdout
    assert "takes 2 arguments" in run(f, *shapes, status=2).stderr


def test_random_arguments_avoid_nan(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(jax.jit(jnp.sqrt).lower(jnp.ones((50,))).as_text())
    found = json.loads(run(tmp_path / "m.mlir", "--random", "0", "--json").stdout)
    assert found["outputs"][0]["nans"] == 0


def test_bits_of_bfloat16(tmp_path: Path) -> None:
    x = jnp.arange(64, dtype=jnp.bfloat16)
    (tmp_path / "m.mlir").write_text(jax.jit(lambda x: x + x).lower(x).as_text())
    np.savez(tmp_path / "in.npz", arg0=np.asarray(x).view(np.uint16))
    run(tmp_path / "m.mlir", "--inputs", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    found = np.load(tmp_path / "out.npz")["arr_0"].view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found, np.asarray(x + x))


BAD = {
    "too few": ({"arr_0": X}, "Expected 2 arrays, found 1"),
    "names": ({"x": X, "n": np.int32(4)}, "Expected an array arr_0 or arg0, found x, n"),
    "shape": ({"arr_0": X.T, "arr_1": np.int32(4)}, "argument 0 to be float32[40, 30]"),
    "dtype": ({"arr_0": X, "arr_1": np.int64(4)}, "argument 1 to be int32[]"),
    "object": ({"arr_0": np.array([{}]), "arr_1": np.int32(4)}, "Object arrays"),
}


@pytest.mark.parametrize("case", BAD)
def test_inputs_that_do_not_fit(folder: Path, tmp_path: Path, case: str) -> None:
    arrays, reason = BAD[case]
    np.savez(tmp_path / "in.npz", **arrays)
    result = run(folder / "model.mlir", "--inputs", tmp_path / "in.npz", "--compare", status=2)
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk", b"\x93NUMPY\x01\x00"])
def test_inputs_that_are_no_npz(folder: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in.npz").write_bytes(content)
    result = run(folder / "model.mlir", "--inputs", tmp_path / "in.npz", status=2)
    assert len(result.stderr.splitlines()) == 1


def test_bad_command_lines(folder: Path, tmp_path: Path) -> None:
    model = folder / "model.mlir"
    assert "No such file" in run(model, "--inputs", tmp_path / "none.npz", status=2).stderr
    assert "takes 2 arguments" in run(model, status=2).stderr
    assert "needs --bisect" in run(model, "--reproducer", tmp_path, status=2).stderr
    assert "one of them" in run(model, "--random", "1", "--inputs", model, status=2).stderr
    missing = tmp_path / "none" / "out.npz"
    assert "No such file" in run(model, "--random", "1", "--output", missing, status=2).stderr


def test_a_program_that_xla_does_not_run(tmp_path: Path) -> None:
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %y = stablehlo.custom_call @nobody(%x) {api_version = 4 : i32} : (tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32> }"""
    (tmp_path / "m.mlir").write_text(text)
    result = run(tmp_path / "m.mlir", "--random", "0", status=2)
    assert "nobody" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def seed_wrong_kernels(patch: pytest.MonkeyPatch) -> None:
    emit = backend.emit

    def wrong(kernel: Kernel) -> Emitted:
        emitted = emit(kernel)
        text = emitted.source.text.replace("max_reassoc(", "min_reassoc(")
        return replace(emitted, source=replace(emitted.source, text=text.replace("exp_nonpositive(", "exp(")))

    patch.setattr(backend, "emit", wrong)


def test_a_wrong_kernel_is_named_and_shows_again(folder: Path, tmp_path: Path) -> None:
    """X is large enough for the exponentials of what is above 0 to be infinite."""
    np.savez(tmp_path / "in.npz", X * 100, np.int32(4))
    asked = (folder / "model.mlir", "--inputs", tmp_path / "in.npz", "--bisect", "--tune", "off")
    with pytest.MonkeyPatch.context() as patch:
        seed_wrong_kernels(patch)
        result = run(*asked, "--reproducer", tmp_path / "case", status=1)
        (name,) = re.findall(r"the kernel (\w+) makes the difference", result.stdout)
        assert "nearer to NumPy in float64: XLA" in result.stdout
        assert "stablehlo.exponential  " in result.stdout
        assert "input 0: tensor<40x30xf32>: -300 to 300" in result.stdout
        (line,) = (line for line in result.stdout.splitlines() if line.startswith("reproducer in "))
        command = shlex.split(line.partition(": ")[2])
        assert command[:2] == ["jstitch", "run"]
        assert "DIFFERENT" in run(*command[2:], status=1).stdout
        found = json.loads(run(*asked, "--json", status=1).stdout)
        assert (found["culprit"]["kind"], found["culprit"]["name"]) == ("kernel", name)
        assert found["culprit"]["dump"].startswith("JSTITCH_DUMP_DIR=dump jstitch run ")
    assert "same, by" in run(*command[2:]).stdout
    assert "same, by" in run(*asked).stdout


def test_a_wrong_pass_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(graph: Graph) -> Graph:
        """The first result's division the wrong way round."""
        op = graph.producers()[graph.outputs[0]]
        swapped = replace(op, operands=op.operands[::-1])
        return replace(graph, ops=tuple(swapped if other is op else other for other in graph.ops))

    flipped = on_any_target(lambda graph: flip(dce(graph)))
    passes = [replace(p, run_on=flipped) if p.name == "dce" else p for p in PIPELINE]
    monkeypatch.setattr(rewrite, "PIPELINE", tuple(passes))
    result = run(folder / "model.mlir", "--random", "0", "--bisect", "--tune", "off", status=1)
    assert "the pass dce makes the difference" in result.stdout
    assert "--print-before dce --print-after dce --stop-after dce" in result.stdout


def test_a_pass_that_raises(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Graph) -> Graph:
        raise KeyError("no such value")

    monkeypatch.setattr(
        rewrite, "PIPELINE", (*PIPELINE, graph_pass("broken", run_on=on_any_target(broken), about=broken))
    )
    result = run(folder / "model.mlir", "--random", "0", "--compare", status=1)
    assert "stitching raised KeyError: 'no such value'" in result.stderr
