"""Rows too long for the registers or the arena alone are kept in both; what finds no room is read again."""

from __future__ import annotations

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jstitch.codegen.cuda.emit import Emitted, emit
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from tests.codegen.cuda import stitched
from tests.codegen.cuda.machines import run_kernel
from tests.codegen.cuda.stitched import PROFILES, SPEC, Stitched, interpreted, simulated, stitch

ROWS, COLUMNS = 16, 16384
ROW = 4 * COLUMNS
INPUTS = 3


def block(x: Array, bias: Array, residual: Array, gamma: Array, beta: Array) -> Array:
    """A norm of GELU + residual."""
    y = jax.nn.gelu(x + bias) + residual
    centred = y - y.mean(axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
    return centred * scale * gamma + beta


def gradients(x: Array, bias: Array, residual: Array, gamma: Array, upstream: Array) -> tuple[Array, ...]:
    return tuple(jax.vjp(block, x, bias, residual, gamma, gamma)[1](upstream))


@cache
def graph() -> Graph:
    whole, row = (jnp.zeros(s, np.float32) for s in ((ROWS, COLUMNS), (COLUMNS,)))
    return import_module(parse_module(jax.jit(gradients).lower(whole, row, whole, row, whole).as_text()))


@cache
def kernel() -> Kernel:
    (found,) = stitch(graph(), PROFILES["h200"]).kernels
    return found


def emitted(arena_bytes: int) -> Emitted:
    return emit(kernel(), arena_bytes)


def read(found: Emitted) -> float:
    """Rows that the first launch reads, for each row of its results, what all rows share among them."""
    return found.source.launches[0].bytes_read / (ROWS * ROW)


def test_rows_and_partial_results_fill_registers_and_arena() -> None:
    """Three rows and three partial results of 64 KiB; neither has room for more than three and a half."""
    found = emitted(SPEC.shared_optin)
    assert int(read(found)) == INPUTS
    launch = found.source.launches[0]
    assert launch.block == 512
    assert 3 * ROW < launch.shared_bytes <= SPEC.shared_optin
    held = [int(n) for n in re.findall(r"registers_f32\((\d+)\)", found.source.text) if int(n) > 4]
    assert sum(held) * 4 * launch.block > 2 * ROW
    parts = [a for a in found.made.memory[0].areas if a.what == "read once" and a.nbytes < ROW]
    assert sum(a.nbytes for a in parts) == ROW
    assert [a.offset is None for a in parts] == [False, True]


def test_what_all_rows_share_is_read_anew_where_registers_are_full() -> None:
    text = emitted(SPEC.shared_optin).source.text
    bias = next(n for n, b in enumerate(kernel().args) if b.type.shape == (COLUMNS,))
    assert f"read_f32x4(a{bias}, " not in text
    assert f"load_f32x4(a{bias}, " in text


def test_less_room_means_more_reading() -> None:
    sizes = [SPEC.shared_optin, 3 * ROW + 1024, 2 * ROW + 20_000, ROW + 1024]
    found = [emitted(arena_bytes) for arena_bytes in sizes]
    for emitted_, arena_bytes in zip(found, sizes, strict=True):
        assert emitted_.source.launches[0].shared_bytes <= arena_bytes
    reads = [read(emitted_) for emitted_ in found]
    assert reads == sorted(set(reads))


@pytest.mark.parametrize("arena_bytes", [SPEC.shared_optin, 2 * ROW + 20_000, ROW + 1024])
@pytest.mark.parametrize(
    "machine",
    [
        simulated,
        pytest.param(
            interpreted,
            marks=pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX)),
        ),
    ],
)
def test_results(machine: stitched.MakeMachine, arena_bytes: int) -> None:
    rng, found = np.random.default_rng(0), emitted(arena_bytes)
    args, run = [rng.normal(size=v.shape).astype(np.float32) for v in graph().inputs], machine(found)
    made = stitch(graph(), PROFILES["h200"]).graph
    results = stitched.execute(made, args, lambda _, given: run_kernel(kernel(), found, given, run))
    for ours, theirs in zip(results, interpret(graph(), args), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


def rotate(x: Array, cosine: Array, sine: Array) -> Array:
    left, right = jnp.split(x, 2, -1)
    return x * cosine + jnp.concatenate([-right, left], -1) * sine


def rotated() -> Stitched:
    x, table = (jnp.zeros(shape, np.float32) for shape in ((ROWS, 8, 64), (ROWS, 8, 64)))
    lowered = jax.jit(rotate).lower(x, table, table)
    return stitch(import_module(parse_module(lowered.as_text())), PROFILES["h200"])


def test_the_halves_of_a_row_that_one_loop_reads_are_one_row() -> None:
    """Each element of x is read as itself, as a left and as a right half: from memory it comes once."""
    (found,) = rotated().kernels
    (launch,) = emit(found, 1 << 17).source.launches
    assert launch.bytes_read == 3 * ROWS * 8 * 64 * 4
    assert launch.bytes_written == ROWS * 8 * 64 * 4


def turned(x: Array, cosine: Array, sine: Array) -> Array:
    y = jax.nn.softmax(x)
    left, right = jnp.split(jnp.exp(y), 2, -1)
    sides = left * cosine - right * sine, right * cosine + left * sine
    return jnp.concatenate(sides, -1) / jnp.sum(y[:, ::-1], -1, keepdims=True)


def texts_of_turned() -> str:
    x, table = (jnp.zeros(shape, np.float32) for shape in ((64, 128), (64, 64)))
    lowered = jax.jit(turned).lower(x, table, table)
    found = stitch(import_module(parse_module(lowered.as_text())), PROFILES["h200"])
    return "".join(emit(kernel, 1 << 17).source.text for kernel in found.kernels)


def test_the_same_kernel_has_the_same_text_every_time() -> None:
    """Two tiles of one size are in the arena that threads share: which is first follows from the kernel."""
    assert len({texts_of_turned() for _ in range(8)}) == 1
