"""Every option, from the call and from its JSTITCH_* variable, does what it says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from robustness_support import STRICT, arguments, check, our_warnings, run_python, standardize

import jstitch
from jstitch.passes.pipeline import PIPELINE


def _kernels(options: jstitch.CompileOptions | None) -> int:
    since = jstitch.record_count()
    check(jstitch.jit(standardize(0.3), options=options), standardize(0.3), *arguments())
    return jstitch.stitch_count(since)


EFFECTS = """
import os, sys
import jstitch
from robustness_support import arguments, check, standardize
check(jstitch.jit(standardize(0.3)), standardize(0.3), *arguments())
options = jstitch.CompileOptions()
print(jstitch.stitch_count(), *[getattr(options, name) for name in sys.argv[1:]])
"""


def test_variables_reach_the_pipeline(tmp_path: Path) -> None:
    """One process, all variables; each leaves a trace that only it can leave."""
    cache, dump = tmp_path / "cache", tmp_path / "dump"
    variables = {
        "TARGET": "cpu",
        "PLANNER": "layers",
        "SCHEMES": "thread,block",
        "WITHOUT": "sharing",
        "TUNE": "off",
        "TUNE_SECONDS": "1",
        "RACE_SECONDS": "1",
        "TEMPLATES": "2",
        "TEMPLATE": "reduce_0[GRID_2, THREAD]S;",
        "PLAN": "",
        "ARENA_BYTES": "1048576",
        "DUMP_DIR": str(dump),
        "REPRODUCER_DIR": str(tmp_path),
        "PRINT_AFTER": "",
        "CACHE_DIR": str(cache),
        "CALIBRATED": "0",
        "KEEP_PLANS": "0",
        "ASYNC_COMPILE": "0",
        "ASK_SECONDS": "1",
        "EXPORT_KERNELS": "0",
        "VERIFY": "0",
        "STRICT": "0",
    }
    assert {f.name.upper() for f in dataclasses.fields(jstitch.CompileOptions)} == set(variables)
    env = {f"JSTITCH_{name}": value for name, value in variables.items()}
    found = run_python(EFFECTS, "target", "schemes", "arena_bytes", "strict", **env)
    assert found == "1 cpu ('thread', 'block') 1048576 False\n"
    assert len(list((cache / "kernels").glob("*.kernel"))) >= 1
    assert list(dump.rglob("00_input.mlir"))


def test_unknown_variables_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSTITCH_TUNES", "off")
    with our_warnings() as texts:
        jstitch.CompileOptions()
        jstitch.CompileOptions()
    assert len(texts) == 1
    assert "JSTITCH_TUNES" in texts[0]
    assert "JSTITCH_TUNE," in texts[0]


def test_gate() -> None:
    assert _kernels(STRICT) == 1
    assert _kernels(STRICT.replace(tune="model")) <= 1


def test_arena_bytes_bounds_what_kernels_keep() -> None:
    assert _kernels(STRICT.replace(arena_bytes=1 << 20)) == 1
    assert _kernels(STRICT.replace(arena_bytes=1)) <= 1  # right in either case: a kernel or XLA


def test_print_after(capsys: pytest.CaptureFixture[str]) -> None:
    _kernels(STRICT.replace(print_after=(PIPELINE[0].name, "output")))
    printed = capsys.readouterr().err
    assert printed.startswith(f"// -- {PIPELINE[0].name}\n")
    assert "// -- output" in printed
    assert "custom_call @jstitch" in printed or "call_target_name" in printed
    assert "// -- dce" not in printed


def test_dump_dir(tmp_path: Path) -> None:
    _kernels(STRICT.replace(dump_dir=str(tmp_path / "new" / "dump")))
    (folder,) = (tmp_path / "new" / "dump").iterdir()
    names = [path.name for path in sorted(folder.iterdir())]
    assert names[0] == "00_input.mlir"
    assert names[-1].endswith("output.mlir")
    assert any(name.endswith("plan.txt") for name in names)
    assert any(name.endswith(".py") for name in names)
    assert all(path.stat().st_size for path in folder.iterdir())


def test_dump_to_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with our_warnings() as texts:
        assert _kernels(STRICT.replace(dump_dir=str(tmp_path / "file" / "dump"))) == 1
    assert len(texts) == 1
    assert "dump" in texts[0]


def test_another_target_is_left_to_xla() -> None:
    with pytest.raises(jstitch.JstitchError, match="target"):
        STRICT.replace(target="abacus")
