"""A pass fails: one file is left that fails the same way, from `jit`, `jstitch plan` and `jstitch opt`."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner, Result
from robustness_support import LENIENT, arguments, check, our_warnings, standardize

import jstitch
from jstitch.__main__ import main
from jstitch.cli.pipeline_text import parse_pipeline
from jstitch.codegen.cpu import backend
from jstitch.frontend import rewrite
from jstitch.frontend.crash import Crash, read_crash
from jstitch.frontend.mlir import parse_module
from jstitch.options import PLANNERS
from jstitch.passes import named_passes, pipeline
from jstitch.passes.base.named_pass import NamedPass, blamed, blaming
from jstitch.passes.named_passes import PASSES, default_passes

MODULE = """
func.func public @main(%x: tensor<64x300xf32> {jax.buffer_donor = true}) -> tensor<64x300xf32> {
  %a = stablehlo.exponential %x : tensor<64x300xf32>
  %b = stablehlo.exponential %x : tensor<64x300xf32>
  %c = stablehlo.add %a, %b : tensor<64x300xf32>
  return %c : tensor<64x300xf32>
}
"""
ERROR = "ZeroDivisionError: broken on purpose"


def _raise(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("broken on purpose")


def broken(passes: tuple[NamedPass, ...], name: str) -> tuple[NamedPass, ...]:
    return tuple(replace(p, run_on=_raise) if p.name == name else p for p in passes)


@pytest.fixture
def break_cse(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """cse fails, in the pipeline and by name; until what this gives is called."""
    monkeypatch.setattr(rewrite, "PIPELINE", broken(rewrite.PIPELINE, "cse"))
    (cse,) = (p for p in broken(PASSES, "cse") if p.name == "cse")
    monkeypatch.setitem(named_passes._BY_NAME, "cse", cse)
    return monkeypatch.undo


def invoke(*words: object, status: int) -> Result:
    done = CliRunner().invoke(main, list(map(str, words)))
    assert done.exit_code == status, (done.output, done.exception)
    return done


def the_file(folder: Path) -> tuple[Path, Crash]:
    (path,) = folder.iterdir()
    return path, read_crash(path.read_bytes())


def lower(folder: Path, **options: Any) -> str:
    """The warning that a call costs."""
    with our_warnings() as texts:
        f = jstitch.jit(standardize(), options=LENIENT.replace(reproducer_dir=folder, **options))
        f.lower(*arguments())
    (text,) = texts
    return text


# -- who leaves one ------------------------------------------------------------------------------------------


def test_jit_leaves_a_file_that_fails_the_same_way(tmp_path: Path, break_cse: Callable[[], None]) -> None:
    text, _ = (lower(tmp_path / "new" / "folder") for _ in range(2))  # the same failure is the same file
    path, crash = the_file(tmp_path / "new" / "folder")
    assert f"jstitch opt --run-reproducer {path}" in text
    assert "pass:  cse" in text
    assert (crash.failed, crash.error, crash.via) == ("cse", ERROR, "pipeline")
    assert "canonicalize," in crash.pipeline
    assert ",cse," in crash.pipeline
    assert crash.options["tune"] == LENIENT.tune
    assert crash.options["target"] == "cpu"
    assert "jax=" in crash.versions
    assert parse_module(path.read_text()).operation.verify()  # to others it is a module like any other
    assert "fails the same way, in cse" in invoke("opt", "--run-reproducer", path, status=1).stderr
    break_cse()
    assert "does not fail" in invoke("opt", "--run-reproducer", path, status=0).stderr


@pytest.mark.parametrize("stage", ["emit_kernel", "emit"])
def test_whatever_fails_after_the_import_leaves_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    where = backend if stage == "emit" else rewrite
    monkeypatch.setattr(where, stage, _raise)
    if stage == "emit_kernel":
        monkeypatch.setattr("jstitch.inspection.rerun.emit_kernel", _raise)
    lower(tmp_path)
    path, crash = the_file(tmp_path)
    assert (crash.failed, crash.error) == ("", ERROR)
    assert "fails the same way" in invoke("opt", "--run-reproducer", path, status=1).stderr


def test_a_verifier_leaves_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = replace(pipeline.PIPELINE[0], run_on=lambda graph, _: replace(graph, ops=graph.ops[:-1]))
    monkeypatch.setattr(rewrite, "PIPELINE", (first, *pipeline.PIPELINE[1:]))
    lower(tmp_path, verify=True)
    path, crash = the_file(tmp_path)
    assert crash.failed == first.name
    assert "fails the same way" in invoke("opt", "--run-reproducer", path, status=1).stderr


def test_a_part_of_a_program_is_run_again_as_one(tmp_path: Path, break_cse: Callable[[], None]) -> None:
    options = LENIENT.replace(reproducer_dir=tmp_path)
    inner = jstitch.stitch(lambda x: jax.nn.softmax(x * 2), options)
    x = jnp.ones((64, 64))
    with our_warnings():
        jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: inner(y), x) + 1).lower(x)
        jstitch.jit(lambda x: jax.nn.softmax(x), options=options, donate_argnums=0).lower(x)
    part, whole = sorted((read_crash(p.read_bytes()) for p in tmp_path.iterdir()), key=lambda c: c.donated)
    assert (part.arguments, part.donated) == (None, ())
    assert whole.arguments == (0,)
    assert whole.donated == ((0, 0),)
    for path in tmp_path.iterdir():
        assert "fails the same way" in invoke("opt", "--run-reproducer", path, status=1).stderr


def test_plan_leaves_one(tmp_path: Path, break_cse: Callable[[], None]) -> None:
    module, folder = tmp_path / "m.mlir", tmp_path / "found"
    module.write_text(MODULE)
    asked = ("--target", "h200", "--planner", "dp")
    done = CliRunner().invoke(main, ["plan", str(module), "--reproducer", str(folder), *asked])
    assert isinstance(done.exception, ZeroDivisionError)
    path, crash = the_file(folder)
    assert (crash.options["target"], crash.options["planner"], crash.kernels) == ("h200", "dp", False)
    assert crash.donated == ((0, None),)
    assert "fails the same way, in cse" in invoke("opt", "--run-reproducer", path, status=1).stderr


def test_opt_leaves_one_with_its_own_passes(tmp_path: Path, break_cse: Callable[[], None]) -> None:
    module, folder = tmp_path / "m.mlir", tmp_path / "found"
    module.write_text(MODULE)
    passes = "canonicalize,unroll_loops{trips=4 ops=10},cse,plan_layers"
    words = ("opt", module, "--passes", passes, "--emit", "plan", "--verify-each", "--reproducer", folder)
    done = CliRunner().invoke(main, list(map(str, words)))
    assert isinstance(done.exception, ZeroDivisionError)
    path, crash = the_file(folder)
    assert (crash.via, crash.pipeline, crash.emit, crash.failed) == ("opt", passes, "plan", "cse")
    assert crash.options["verify"]
    assert "buffer_donor" in path.read_text()
    assert "fails the same way, in cse" in invoke("opt", "--run-reproducer", path, status=1).stderr
    break_cse()
    assert "does not fail" in invoke("opt", "--run-reproducer", path, status=0).stderr


def test_another_failure_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_cse: Callable[[], None]
) -> None:
    lower(tmp_path)
    path, _ = the_file(tmp_path)
    monkeypatch.setattr(rewrite, "PIPELINE", broken(pipeline.PIPELINE, "dce"))
    said = invoke("opt", "--run-reproducer", path, status=1).stderr
    assert f"fails in another way; it was {ERROR}, in cse" in said
    assert "Traceback" in said


# -- who leaves none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["full", "file", "module"])
def test_a_file_that_cannot_be_written_costs_only_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_cse: Callable[[], None], what: str
) -> None:
    folder = tmp_path / "folder"
    if what == "full":
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        monkeypatch.setattr("jstitch.runtime.whole_file.os.replace", partial(_throw, full))
    elif what == "file":
        folder.touch()
    else:
        monkeypatch.setattr("jstitch.frontend.crash.export_module", _raise)
    with our_warnings() as texts:
        f = standardize()
        check(jstitch.jit(f, options=LENIENT.replace(reproducer_dir=folder)), f, *arguments())
    assert "no reproducer could be written" in texts[0]
    assert "runs on XLA's own kernels" in texts[0]
    assert folder.is_file() or not folder.exists() or list(folder.iterdir()) == []


def _throw(error: Exception, *_: object) -> None:
    raise error


def test_what_is_asked_for_in_vain_is_no_crash(tmp_path: Path) -> None:
    options = LENIENT.replace(reproducer_dir=tmp_path)
    f = jstitch.fuse_together(strict=True)(lambda x: jnp.exp(jnp.tanh(x) @ x))
    with pytest.raises(jstitch.CannotFuseError):
        jstitch.jit(f, options=options).lower(jnp.ones((64, 64)))
    assert not list(tmp_path.iterdir())


# -- files that are none -------------------------------------------------------------------------------------


HEAD = "// jstitch reproducer 1: jstitch opt --run-reproducer THIS_FILE\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "", "begins"),
        (lambda text: MODULE, "begins"),
        (lambda text: HEAD, "Expecting value"),
        (lambda text: HEAD + "// {}\n" + MODULE, "missing"),
        (lambda text: HEAD + "// " + "[" * 100000 + "\n" + MODULE, "Expected a file"),
        (lambda text: text.replace('"via": "pipeline"', '"via": "shell"'), "'shell'"),
        (lambda text: text.replace('"via": "pipeline"', '"via": ["pipeline"]'), "another type"),
        (lambda text: text.replace('"tune":', '"dump_dir": "/", "tune":'), "found dump_dir"),
        (lambda text: text.replace('"tune": "off"', '"tune": "on"'), "tune to be one of"),
        (lambda text: text.replace('"donated": []', '"donated": [[99, 0]]'), "found input 99"),
        (lambda text: text.replace('"donated": []', '"donated": 3'), "Expected a file"),
        (lambda text: text.replace('"name"', '"named"'), "named"),
        (lambda text: text.replace("stablehlo.", "nothing."), "Unable to parse"),
    ],
)
def test_a_file_that_is_no_reproducer_is_one_line(
    tmp_path: Path, change: Callable[[str], str], said: str
) -> None:
    path = tmp_path / "case.mlir"
    path.write_text(change(REPRODUCER))
    done = invoke("opt", "--run-reproducer", path, status=2)
    assert said in " ".join(done.stderr.split())
    assert len(done.stderr.splitlines()) == 1


REPRODUCER = (
    HEAD
    + """// {
//  "via": "pipeline", "name": "main", "pipeline": "cse", "failed": "cse", "error": "E: no", "versions": "",
//  "options": {"target": "cpu", "tune": "off"},
//  "donated": [], "arguments": null
// }"""
    + MODULE
)


def test_the_same_file_unchanged_is_read() -> None:
    assert read_crash(REPRODUCER.encode()).compile_options().tune == "off"


# -- pipelines as text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_pipeline_is_read_as_it_is_written(planner: str) -> None:
    passes = default_passes(planner)
    assert parse_pipeline(",".join(map(str, passes))) == passes


def test_the_inner_pass_is_blamed() -> None:
    with pytest.raises(ValueError, match="x") as caught, blaming("outer"), blaming("inner"):
        raise ValueError("x")
    assert blamed(caught.value) == "inner"
    assert blamed(ValueError("y")) == ""
