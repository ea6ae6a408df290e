"""Building kernels: direct calls, the disk cache around them, errors, many processes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import NumbaError
from runtime_kernels import add_constant, column_sum, finish, run_python, softmax, start_python

from jstitch.codegen.comments import strip_comments
from jstitch.codegen.cpu import build
from jstitch.codegen.cpu.compile_kernel import compile_kernel
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.errors import JstitchWarning
from jstitch.runtime import cache
from jstitch.runtime.native_object import load_objects


def test_direct_call_matches_numpy() -> None:
    x = np.random.default_rng(0).standard_normal((64, 100), np.float32)
    rows, sums = np.empty_like(x), np.empty(100, np.float32)
    build.call(softmax(64, 100), [x], [rows])
    build.call(column_sum(64, 100), [x], [sums])
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(rows, e / e.sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(sums, x.sum(0, dtype=np.float64), rtol=1e-5, atol=1e-5)


def test_direct_call_refuses_what_it_cannot_run() -> None:
    x = np.zeros((8, 8), np.float32)
    with pytest.raises(ValueError, match="expected 1 arguments and 1 results, found 2 and 1"):
        build.call(add_constant(64, 1.0), [x, x], [x])
    with pytest.raises(ValueError, match="C-contiguous"):
        build.call(add_constant(64, 1.0), [x.T[::2]], [x])


def test_same_source_is_built_once() -> None:
    assert build.build(add_constant(64, 2.0)) is build.build(add_constant(64, 2.0))
    assert build.build(add_constant(64, 2.0)) is not build.build(add_constant(64, 3.0))


def test_payload_round_trip() -> None:
    source = column_sum(64, 100)
    assert KernelSource.from_payload(source.payload) == replace(source, text=strip_comments(source.text))
    assert KernelSource.from_payload(source.payload).digest == source.digest
    for bad in ("", "[]", '{"name": "x"}', '{"phases": [{"x": 1}]}'):
        with pytest.raises(ValueError, match=r"KernelSource|Expecting value"):
            KernelSource.from_payload(bad)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("def f(bufs, arena, program:", SyntaxError),
        ("def g(bufs, arena, program): pass", KeyError),
        ("def f(bufs, arena, program): no_such_function(bufs)", NumbaError),
        ("def f(bufs, arena, program): return program", NumbaError),
    ],
)
def test_bad_text_raises_at_build(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        build.build(KernelSource("bad", text, 0, 1, 0, 0, (PhaseSource("f", 1, 1),)))


def test_missing_symbol_is_an_error() -> None:
    data = compile_kernel(add_constant(64, 99.0), ["jstitch_test_present"])
    with pytest.raises(RuntimeError, match="jstitch_test_absent"):
        load_objects(data, ["jstitch_test_present", "jstitch_test_absent"])


def test_damaged_disk_entry_is_rebuilt(tmp_path: Path) -> None:
    source = add_constant(64, 1234.5)
    build.build(source, str(tmp_path))
    (path,) = (tmp_path / "kernels").iterdir()
    path.write_bytes(path.read_bytes()[:100])
    build._kernels.pop(source.digest)
    x = np.zeros(64, np.float32)
    with pytest.warns(JstitchWarning, match="damaged"):
        build.build(source, str(tmp_path))
    build.call(source, [x], [x])
    assert (x == 1234.5).all()
    assert cache.kernel_store(str(tmp_path)).get(path.stem) is not None


def test_builds_without_a_usable_cache_folder(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    x = np.zeros(64, np.float32)
    with pytest.warns(JstitchWarning, match="Kernels still work"):
        build.build(add_constant(64, 71.0), str(blocker))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        build.build(add_constant(64, 72.0), str(blocker))
    for constant in (71.0, 72.0):
        build.call(add_constant(64, constant), [x], [x])
    assert (x == 143).all()


WARM = """
import sys
import numpy as np
from runtime_kernels import add_constant, run_add
x = run_add(add_constant(64, 7.0), np.zeros(64, np.float32))
assert (np.asarray(x) == 7).all()
print("numba" in sys.modules)
"""


def test_two_processes_build_at_once_and_a_warm_one_never_imports_numba(tmp_path: Path) -> None:
    folder = str(tmp_path)
    cold = [start_python(WARM, JSTITCH_CACHE_DIR=folder) for _ in range(2)]
    assert finish(cold) == ["True\n", "True\n"]
    assert run_python(WARM, JSTITCH_CACHE_DIR=folder) == "False\n"
    assert all(path.suffix == cache.SUFFIX for path in (tmp_path / "kernels").iterdir())


MANY = """
import resource
from pathlib import Path
from runtime_kernels import add_constant
from jstitch.codegen.comments import strip_comments
from jstitch.codegen.cpu import build
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
first = 50
for i in range(first):
    build.build(add_constant(64, float(i)))
before = resident()
for i in range(first, 300):
    build.build(add_constant(64, float(i)))
print((resident() - before) / (300 - first))
"""


@pytest.mark.slow
def test_memory_of_300_kernels(tmp_path: Path) -> None:
    grown = float(run_python(MANY, JSTITCH_CACHE_DIR=str(tmp_path)))
    warm = float(run_python(MANY, JSTITCH_CACHE_DIR=str(tmp_path)))
    assert grown < 400_000
    assert warm < 50_000


TUNE = """
import platform
from jstitch.runtime import tune_malloc
assert tune_malloc() == (platform.libc_ver()[0] == "glibc")
import numpy as np
from runtime_kernels import add_constant, run_add
x = run_add(add_constant(1 << 22, 1.0), np.zeros(1 << 22, np.float32))
assert (np.asarray(x) == 1).all()
"""


def test_tune_malloc() -> None:
    run_python(TUNE)
