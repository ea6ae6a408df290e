"""Hand-written kernels for the runtime's tests, and a way to call them from JAX."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jstitch.codegen.cpu import build
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.runtime import cpu_handler
from jstitch.runtime.cache import SUFFIX, kernel_store

ROOT = Path(__file__).resolve().parents[2]


def add_constant(size: int, constant: float, programs: int = 8, alone_ns: int | None = None) -> KernelSource:
    """f32[size] -> x + constant; `size` a multiple of `programs`."""
    tile = size // programs
    text = f"""
def add(bufs, arena, program):
    x = load_s64(bufs, 0, 0)
    y = load_s64(bufs, 1, 0)
    c = convert_f32({constant!r})
    for i in range(program * {tile}, (program + 1) * {tile}):
        store_f32(y, i, load_f32(x, i, 1) + c, 2)
"""
    phase = PhaseSource("add", programs, size if alone_ns is None else alone_ns)
    return KernelSource("add", text, 1, 1, 0, 0, (phase,))


def softmax(rows: int, columns: int, programs: int = 8) -> KernelSource:
    """Softmax of each row of f32[rows, columns]; exponentials wait in the arena."""
    tile = rows // programs
    text = f"""
def softmax(bufs, arena, program):
    x = load_s64(bufs, 0, 0)
    y = load_s64(bufs, 1, 0)
    for row in range(program * {tile}, (program + 1) * {tile}):
        start = row * {columns}
        top = load_f32(x, start, 1)
        for j in range({columns}):
            top = maximum(top, load_f32(x, start + j, 1))
        total = convert_f32(0.0)
        for j in range({columns}):
            e = exp(load_f32(x, start + j, 1) - top)
            store_f32(arena, j, e, 2)
            total = add_reassoc(total, e)
        for j in range({columns}):
            store_f32(y, start + j, load_f32(arena, j, 2) / total, 3)
"""
    return KernelSource(
        "softmax", text, 1, 1, 0, 4 * columns, (PhaseSource("softmax", programs, rows * columns),)
    )


def column_sum(rows: int, columns: int, programs: int = 8) -> KernelSource:
    """f32[rows, columns] -> sums over rows: partial sums per program in scratch, then a second phase."""
    tile, width = rows // programs, columns // 2
    text = f"""
def partial(bufs, arena, program):
    x = load_s64(bufs, 0, 0)
    s = load_s64(bufs, 2, 0)
    for j in range({columns}):
        store_f32(s, program * {columns} + j, convert_f32(0.0), 3)
    for row in range(program * {tile}, (program + 1) * {tile}):
        for j in range({columns}):
            k = program * {columns} + j
            store_f32(s, k, load_f32(s, k, 3) + load_f32(x, row * {columns} + j, 1), 3)

def combine(bufs, arena, program):
    y = load_s64(bufs, 1, 0)
    s = load_s64(bufs, 2, 0)
    for j in range(program * {width}, (program + 1) * {width}):
        total = convert_f32(0.0)
        for p in range({programs}):
            total = total + load_f32(s, p * {columns} + j, 3)
        store_f32(y, j, total, 2)
"""
    phases = (PhaseSource("partial", programs, rows * columns), PhaseSource("combine", 2, 1 << 20))
    return KernelSource("column_sum", text, 1, 1, 4 * columns * programs, 0, phases)


def call(source: KernelSource, out: Any, *args: Any, leaves: bool = False, **options: Any) -> Any:
    """The custom call of `source` on JAX arrays or tracers. leaves: it may leave the thread that calls it."""
    build.build(source)
    attributes = {**build.attributes(source), **({cpu_handler.LEAVES: "1"} if leaves else {})}
    return jax.ffi.ffi_call(cpu_handler.TARGET, out, **options)(*args, **attributes)


def run_add(source: KernelSource, x: Any) -> Any:
    return call(source, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def random(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def start_python(code: str, *args: str, **environment: str) -> subprocess.Popen[str]:
    """Run `code` in a new process that can import jstitch and this module."""
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    env = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", **environment}
    command = [sys.executable, "-W", "error::jstitch.errors.JstitchWarning", "-c", code, *args]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)


def finish(processes: Sequence[subprocess.Popen[str]], timeout: float = 120.0) -> list[str]:
    """Standard output of each; fails with the process's error output unless all end with status 0."""
    outputs = []
    for process in processes:
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == 0, f"status {process.returncode}\n{out}\n{err[-4000:]}"
        outputs.append(out)
    return outputs


def run_python(code: str, *args: str, **environment: str) -> str:
    return finish([start_python(code, *args, **environment)])[0]


def folder_with_handler(folder: Path) -> str:
    """A new cache folder that holds the compiled handler and no kernel."""
    build.register()
    name = f"{cpu_handler.handler_key()}{SUFFIX}"
    (folder / "kernels").mkdir(parents=True)
    shutil.copy(kernel_store().directory / name, folder / "kernels" / name)
    return str(folder)
