"""LLVM modules are compiled at once: the same bytes as one after another, and errors of their own."""

from __future__ import annotations

import threading

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir
from llvmlite.binding import ffi

from jstitch.codegen.cpu import build, compile_kernel
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.runtime import machine_code

WORD = ir.IntType(64)


def module(symbol: str, factor: int) -> ir.Module:
    """An exported function of one integer: times the factor."""
    made = ir.Module(symbol)
    made.triple = llvm.get_process_triple()
    function = ir.Function(made, ir.FunctionType(WORD, [WORD]), symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.mul(function.args[0], WORD(factor)))
    return made


PHASE = """
def phase{n}(bufs, arena, program):
    x = load_s64(bufs, 0, 0)
    y = load_s64(bufs, 1, 0)
    for i in range({n} * 16, {n} * 16 + 16):
        store_f32(y, i, load_f32(x, i, 1) + float32({value}), 2)
"""
HEAD = """from numba import float32
from jstitch.codegen.cpu.math import load_f32, load_s64, store_f32
"""


def three_phases(factor: int) -> KernelSource:
    """Each adds its number, times the factor, to a third of 48 elements."""
    text = HEAD + "".join(PHASE.format(n=n, value=float(factor * (n + 1))) for n in range(3))
    phases = tuple(PhaseSource(f"phase{n}", 1, 1) for n in range(3))
    return KernelSource("three", text, 1, 1, 0, 0, phases)


def test_llvmlite_has_functions_without_its_lock() -> None:
    """A new llvmlite that hides them would be correct, and compile one module after the other."""
    for name in ("LLVMPY_RunNewModulePassManager", "LLVMPY_TargetMachineEmitToMemory"):
        assert machine_code._unlocked(name) is not getattr(ffi.lib, name)


def test_compiles_while_another_thread_holds_llvmlites_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = threading.Event()
    unlocked = machine_code._unlocked

    def noticed(name: str) -> object:
        function = unlocked(name)

        def call(*args: object) -> object:
            with ffi.lib._lock:  # as a thread that compiles something else
                other = threading.Thread(target=lambda: (function(*args), ran.set()))
                other.start()
                other.join(60)
                assert ran.is_set(), f"{name} waited for the lock"
            return None

        return call if name == "LLVMPY_RunNewModulePassManager" else function

    monkeypatch.setattr(machine_code, "_unlocked", noticed)
    assert machine_code.compile_modules([module("jstitch_test_beside", 3)])


def test_many_at_once_are_as_one_by_one() -> None:
    numbers = range(24)
    one_by_one = [machine_code.compile_modules([module(f"jstitch_test_{n}", n)])[0] for n in numbers]
    at_once = machine_code.compile_modules(module(f"jstitch_test_{n}", n) for n in numbers)
    assert [*at_once] == one_by_one


def test_what_llvm_rejects_is_an_error() -> None:
    bad = str(module("jstitch_test_bad", 1)).replace("mul i64", "mul i65")
    with pytest.raises(RuntimeError, match="i65"):
        machine_code.compile_modules([bad, module("jstitch_test_good", 1)])
    assert machine_code.compile_modules([module("jstitch_test_good", 1)])


@pytest.mark.parametrize(("cores", "objects"), [(1, 1), (2, 2), (8, 3)])
def test_phases_are_compiled_apart(cores: int, objects: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_kernel, "available_threads", lambda: cores)
    symbols = [f"jstitch_test_apart_{cores}_{n}" for n in range(3)]
    assert len(compile_kernel.compile_kernel(three_phases(cores), symbols)) == objects
    x, y = np.arange(48, dtype=np.float32), np.zeros(48, np.float32)
    build.call(three_phases(cores), [x], [y])
    np.testing.assert_array_equal(y, x + cores * np.repeat(np.float32([1, 2, 3]), 16))


def test_objects_of_one_entry_are_told_apart() -> None:
    objects = [b"", b"one", bytes(range(256)) * 9]
    kept = b"".join(build._SIZE.pack(len(data)) + data for data in objects)
    assert [*build._apart(kept)] == objects
