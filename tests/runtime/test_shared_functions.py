"""Functions that kernels share: compiled once, kept by name, loaded once; also in entries of kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jstitch.codegen.cpu import build, shared_functions
from jstitch.codegen.cpu.compile_kernel import compile_kernel
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.runtime.cache import kernel_store

ROWS, INNER, COLUMNS = 21, 5, 19
PANEL = 1 << 16  # bytes, more than any machine's


def product(constant: float) -> KernelSource:
    """f32[21, 5], f32[5, 19] -> their product, plus a constant that no other kernel has."""
    numbers = f"{COLUMNS}, {INNER}, 1, {COLUMNS}, 1, {ROWS}, {COLUMNS}, {INNER}"
    text = f"""
def product(bufs, arena, program):
    a = load_s64(bufs, 0, 0)
    b = load_s64(bufs, 1, 0)
    c = load_s64(bufs, 2, 0)
    multiply_f32_f32(c, 0, a, 0, b, 0, arena, {numbers})
    for i in range({ROWS * COLUMNS}):
        store_f32(c, i, load_f32(c, i, 1) + convert_f32({constant!r}), 1)
"""
    return KernelSource("product", text, 2, 1, 0, PANEL, (PhaseSource("product", 1, 1000),))


def check(constant: float, folder: Path) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((ROWS, INNER), np.float32)
    b = rng.standard_normal((INNER, COLUMNS), np.float32)
    c = np.empty((ROWS, COLUMNS), np.float32)
    build.build(product(constant), str(folder))
    build.call(product(constant), [a, b], [c])
    np.testing.assert_allclose(c, a @ b + np.float32(constant), rtol=1e-5, atol=1e-5)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules of shared functions that are compiled, in a process that has compiled none."""
    found: list[str] = []
    really = shared_functions.compile_text

    def counted(text: str, *others: Any) -> bytes:
        found.append(text)
        return really(text, *others)

    monkeypatch.setattr(shared_functions, "_made", {})
    monkeypatch.setattr(shared_functions, "compile_text", counted)
    return found


def test_what_one_kernel_needs_is_there_for_the_next(compiled: list[str], tmp_path: Path) -> None:
    check(1.5, tmp_path)
    first = len(compiled)
    assert first == len({*compiled}) > 3  # the product, rows, packing, what asks for lines
    check(2.5, tmp_path)
    assert len(compiled) == first


def test_other_processes_find_it_on_disk(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(3.5, tmp_path)
    first = len(compiled)
    monkeypatch.setattr(shared_functions, "_made", {})
    check(4.5, tmp_path)
    assert len(compiled) == first
    monkeypatch.setattr(shared_functions, "_made", {})
    check(5.5, tmp_path / "another")
    assert len(compiled) == 2 * first


def test_a_kernels_entry_has_all_that_it_calls(compiled: list[str], tmp_path: Path) -> None:
    check(6.5, tmp_path)
    assert compiled
    kept = kernel_store(str(tmp_path)).get(build._key(product(6.5).digest))
    assert kept is not None
    own, shared = build._apart(kept)
    assert len(own) == 1
    assert {name.split("_")[1][:4] for name in shared} >= {"mult", "rows", "pack", "ask", "edge"}
    assert build._together(own, shared) == kept
    for name, data in shared.items():
        assert kernel_store(str(tmp_path)).get(build._key(name)) == data


def test_a_failure_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_functions, "_made", {})

    def full(_: str, make: Callable[[], bytes]) -> bytes:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        compile_kernel(product(7.5), ["jstitch_test_shared_failed"], full)
    made = compile_kernel(product(7.5), ["jstitch_test_shared_failed"])
    assert all(made.shared.values())


def test_assembly_shows_what_is_called() -> None:
    text = build.assembly(product(8.5))
    called = [line for line in text.splitlines() if line.startswith("jstitch_") and line.endswith(":")]
    assert len({*called}) == len(called)
    assert any(line.startswith("jstitch_multiply_f32_f32") for line in called)
    assert f"jstitch_{product(8.5).digest}_0:" in called
