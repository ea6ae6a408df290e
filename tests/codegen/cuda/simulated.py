"""Run a few lines of kernel text in the simulator.

run("store_f32(y, thread(), float32(1))", {"y": ("write", y)}, block=32)
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from jstitch.codegen.cuda.simulate import LaunchCounts, simulate
from jstitch.codegen.cuda.simulate_functions import DTYPES
from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.codegen.launch_ir import Mode, Parameter

Array = np.ndarray[Any, np.dtype[Any]]
LAYER_NORM = """
from jstitch.codegen.cuda.math import block, read_f32x4, registers_f32, remainder_pos, quotient, rsqrt
from jstitch.codegen.cuda.math import shuffle_xor, store_f32x4, thread, unroll
from numba import float32

def phase0(b0, b1, b2, b3):
    # rows of 768, 8 teams of 32 threads
    t = remainder_pos(thread(), 32)
    team = quotient(thread(), 32)
    p = block()
    for r in range(p * 8 + team, p * 8 + 8, 8):
        x0 = registers_f32(24)
        acc1 = float32(0.0)
        for k in unroll(6):
            i = (k * 32 + t) * 4
            v0 = read_f32x4(b0, r * 768 + i)
            for j in unroll(4):
                x0[k * 4 + j] = v0[j]
                acc1 = acc1 + v0[j]
        acc1 = acc1 + shuffle_xor(acc1, 16)
        acc1 = acc1 + shuffle_xor(acc1, 8)
        acc1 = acc1 + shuffle_xor(acc1, 4)
        acc1 = acc1 + shuffle_xor(acc1, 2)
        acc1 = acc1 + shuffle_xor(acc1, 1)
        v3 = acc1 / float32(768.0)
        acc4 = float32(0.0)
        for k in unroll(6):
            for j in unroll(4):
                v5 = x0[k * 4 + j] - v3
                acc4 = acc4 + v5 * v5
        v6 = acc4 + shuffle_xor(acc4, 16)
        v6 = v6 + shuffle_xor(v6, 8)
        v6 = v6 + shuffle_xor(v6, 4)
        v6 = v6 + shuffle_xor(v6, 2)
        v6 = v6 + shuffle_xor(v6, 1)
        v7 = rsqrt(v6 / float32(768.0) + float32(1e-05))
        for k in unroll(6):
            i = (k * 32 + t) * 4
            g = read_f32x4(b1, i)
            h = read_f32x4(b2, i)
            y = registers_f32(4)
            for j in unroll(4):
                y[j] = (x0[k * 4 + j] - v3) * v7 * g[j] + h[j]
            store_f32x4(b3, r * 768 + i, y, 0)
"""

REDUCTION = """
t = thread()
v = read_f32(x, block() * 128 + t)
shared_store_f32(0, t, v)
barrier()
if t < 64:
    shared_store_f32(0, t, shared_load_f32(0, t) + shared_load_f32(0, t + 64))
barrier()
if t < 32:
    w = shared_load_f32(0, t) + shared_load_f32(0, t + 32)
    w = w + shuffle_xor(w, 16)
    w = w + shuffle_xor(w, 8)
    w = w + shuffle_xor(w, 4)
    w = w + shuffle_xor(w, 2)
    w = w + shuffle_xor(w, 1)
    if t == 0:
        store_f32(y, block(), w)
"""

TEAMS = """
team = quotient(thread(), 64)
t = remainder_pos(thread(), 64)
for r in range(team, 5, 2):
    shared_store_f32(0, thread(), read_f32(x, r * 64 + t))
    barrier_team(team + 1, 64)
    store_f32(y, r * 64 + t, shared_load_f32(0, team * 64 + 63 - t))
    barrier_team(team + 1, 64)
"""

NAMES = {dtype.numpy: name for name, dtype in DTYPES.items()}


def source(
    body: str, arrays: Mapping[str, tuple[Mode, Array]], grid: int, block: int, shared: int, bits: Any
) -> CudaSource:
    parameters = tuple(
        Parameter(name, NAMES[array.dtype], array.size, mode) for name, (mode, array) in arrays.items()
    )
    text = f"def phase0({', '.join(arrays)}):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    return CudaSource("k", text, (Launch("phase0", grid, block, shared, bits, parameters, 0),))


def run(
    body: str,
    arrays: Mapping[str, tuple[Mode, Array]],
    grid: int = 1,
    block: int = 32,
    shared: int = 0,
    bits: int = 32,
) -> LaunchCounts:
    """One launch; the arrays are written in place."""
    kernel = source(body, arrays, grid, block, shared, bits)
    return simulate(kernel, [[array for _, array in arrays.values()]]).launches[0]


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def zeros(count: int, dtype: Any = np.float32) -> Array:
    return np.zeros(count, dtype)
