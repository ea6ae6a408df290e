"""Systems that lack what Linux on x86-64 has: parts work without it, or say why they do not."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.calibration import measure
from jstitch.codegen.cpu.build import register_or_warn
from jstitch.errors import JstitchWarning
from jstitch.frontend.safe_parse import CHILD
from jstitch.passes.base.machine import Machine
from jstitch.passes.schedule import stream_results
from jstitch.runtime import device_name, file_lock, malloc, process_block
from jstitch.runtime import ffi_layout as at


def no_posix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_block, "os", SimpleNamespace(name="nt"))
    monkeypatch.setattr("platform.system", lambda: "Windows")


def test_import_without_posix_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    no_posix(monkeypatch)
    with pytest.warns(JstitchWarning, match=r"found Windows[^$]*use WSL 2"):
        register_or_warn()


def test_functions_stay_of_xla_without_posix(monkeypatch: pytest.MonkeyPatch) -> None:
    no_posix(monkeypatch)
    options = jstitch.CompileOptions(tune="off", strict=False)
    since, x = jstitch.record_count(), np.linspace(-2, 2, 311, dtype=np.float32)
    with pytest.warns(JstitchWarning, match="Windows"):
        found = jstitch.jit(lambda x: jnp.tanh(x) * x + 3.25, options=options)(x)
    np.testing.assert_array_equal(found, jax.jit(lambda x: jnp.tanh(x) * x + 3.25)(x))
    assert jstitch.stitch_count(since) == 0
    assert "Windows" in str(jstitch.last_report(since)[-1].reason)


@pytest.mark.parametrize(("system", "asked"), [("linux", True), ("darwin", False), ("freebsd14", False)])
def test_huge_pages_are_asked_of_linux(system: str, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have a madvise, too, in which MADV_HUGEPAGE's number means something else."""
    monkeypatch.setattr(process_block, "sys", SimpleNamespace(platform=system))
    block = process_block.process_block.__wrapped__()
    assert bool(block[at.PROCESS_MADVISE]) == asked
    assert block[at.PROCESS_MALLOC] == ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value


def test_cores_where_there_is_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_block, "os", SimpleNamespace(cpu_count=lambda: 3))
    assert process_block.available_threads() == 3


def test_a_machine_without_proc_and_sys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device_name, "Path", lambda _: tmp_path / "none")
    monkeypatch.setattr(measure, "Path", lambda _: tmp_path / "none")
    monkeypatch.setattr(stream_results, "CACHES", tmp_path / "none")
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert device_name.cpu_device.__wrapped__().startswith("cpu arm ")
    assert device_name.free_bytes(SimpleNamespace(platform="cpu")) is None
    assert stream_results.last_level_cache.__wrapped__() == stream_results.USUAL_CACHE
    assert measure.near_bytes() == Machine().near_bytes


@pytest.mark.parametrize(
    ("features", "width"), [("+neon,+fp-armv8", 16), ("+avx2,-avx512f", 32), ("+avx2,+avx512f", 64)]
)
def test_registers(features: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "host_processor", lambda: f"some-triple some-cpu {features}")
    assert measure.vector_bytes() == width


def test_another_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert malloc.tune_malloc() is False


def test_locks_without_fcntl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(file_lock, "fcntl", None)
    with file_lock.locked(tmp_path / "lock", seconds=0.0) as mine, file_lock.locked(tmp_path / "lock") as too:
        assert mine
        assert too


REFUSING = """
import resource, runpy, sys

def setrlimit(what, limits):
    raise ValueError("current limit exceeds maximum limit")

resource.setrlimit = setrlimit
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_system_that_refuses_limits() -> None:
    """As macOS does; the module is parsed all the same."""
    module = jax.jit(lambda x: x + 1).lower(np.float32(0)).as_text().encode()
    command = [sys.executable, "-c", REFUSING, str(CHILD), str(1 << 31), "30"]
    done = subprocess.run(command, input=module, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"ML\xefR")
