"""Shapes whose index arithmetic needs care: planned, proven, and executed where numbers are largest.

Only the ends of the arrays are there: the PTX interpreter runs a launch's last CTAs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import Array

from jstitch.codegen.cpu.check_integers import check_integers
from jstitch.codegen.cpu.emit import emit as cpu_emit
from jstitch.codegen.cuda.emit import Emitted
from jstitch.codegen.cuda.ptx import Last, run_ptx
from jstitch.codegen.cuda.ptx_text import entry_name
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.ops import KERNEL
from tests.codegen.cuda import stitched
from tests.codegen.cuda.stitched import PROFILES, PTX, ptx_of, stitch, stitch_for_cpu

pytestmark = pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
ALIGNED = 16  # bytes of the widest access
BEFORE = 100  # rows of the program before
BF16 = jnp.bfloat16
Shapes = Sequence[tuple[tuple[int, ...], Any]]


def rms_norm(x: Array, gamma: Array) -> Array:
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * gamma


def gradients(x: Array, gamma: Array, upstream: Array) -> tuple[Array, ...]:
    return tuple(jax.vjp(rms_norm, x, gamma)[1](upstream))


def graph_of(f: Callable[..., Any], shapes: Shapes) -> Graph:
    args = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


@cache
def made(f: Callable[..., Any], shapes: Shapes) -> stitched.Stitched:
    found = stitch(graph_of(f, shapes), PROFILES["h200"])
    assert not found.recorder.refused
    return found


def emitted(f: Callable[..., Any], shapes: Shapes) -> Emitted:
    (found,) = made(f, shapes).kernels.values()
    return found


def arguments(f: Callable[..., Any], shapes: Shapes) -> dict[str, int]:
    """Which of the function's arguments each parameter of the first launch is."""
    found = made(f, shapes)
    (op,) = (op for op in found.graph.ops if op.name == KERNEL)
    operands = emitted(f, shapes).made.buffers[0].operands
    return {f"a{b.number}": found.graph.inputs.index(op.operands[b.number]) for b in operands}


def run_last(found: Emitted, ctas: int, ends: dict[str, np.ndarray]) -> None:
    """The last CTAs of the first launch on the ends of its arguments, by their names."""
    launch = found.source.launches[0]
    arrays = [ends[p.name] for p in launch.parameters]
    missing = [(p.elements - a.size) * a.itemsize for p, a in zip(launch.parameters, arrays, strict=True)]
    assert not any(before % ALIGNED for before in missing)
    text, entry = ptx_of(found.source, launch, PTX), entry_name(found.source.name, launch.function)
    run_ptx(text, entry, launch.grid, launch.block, launch.shared_bytes, arrays, Last(ctas, missing))


ROWS, COLUMNS = 24_000_000, 64
RMS: Shapes = (((ROWS, COLUMNS), BF16), ((COLUMNS,), BF16), ((ROWS, COLUMNS), BF16))


def test_the_last_rows_of_a_norm_of_24_million() -> None:
    """rows * programs is beyond 32 bits: the last program's rows, and the partial result that they make."""
    found = emitted(gradients, RMS)
    launch = found.source.launches[0]
    own = ROWS - (launch.grid - 1) * ROWS // launch.grid
    there = own + BEFORE
    rng = np.random.default_rng(0)
    x, u = (rng.normal(size=(there, COLUMNS)).astype(ml_dtypes.bfloat16) for _ in range(2))
    gamma = rng.normal(size=COLUMNS).astype(ml_dtypes.bfloat16)
    dx = np.full(there * COLUMNS, 77.0, ml_dtypes.bfloat16)
    partial = np.full(launch.grid * COLUMNS, 77.0, np.float32)
    given = [x.reshape(-1), gamma, u.reshape(-1)]
    ends = {name: given[k] for name, k in arguments(gradients, RMS).items()}
    written = {p.name: partial if p.dtype == "f32" else dx for p in launch.parameters if p.mode == "write"}
    run_last(found, 1, ends | written)
    expected, column = _expected(x, gamma, u)
    rows = dx.astype(np.float32).reshape(there, COLUMNS)
    assert (rows[:BEFORE] == 77.0).all()
    np.testing.assert_allclose(rows[BEFORE:], expected[BEFORE:], rtol=0.02, atol=0.02)
    assert (partial[:-COLUMNS] == 77.0).all()
    np.testing.assert_allclose(partial[-COLUMNS:], column[BEFORE:].sum(0), rtol=0.02, atol=1.0)


def _expected(x: np.ndarray, gamma: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of x, and each row's part of gamma's."""
    x, gamma, u = (a.astype(np.float64) for a in (x, gamma, u))
    scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    own = u * gamma
    return own * scale - x * scale**3 * (own * x).mean(-1, keepdims=True), u * x * scale


def test_only_what_needs_it_is_computed_in_64_bits() -> None:
    """The norm's own offsets fit 32 bits, though rows * programs does not: its kernel is as fast as any."""
    assert [launch.index_bits for launch in emitted(gradients, RMS).source.launches] == [32, 32]
    for rows, bits in (((1 << 30) - 256, 32), ((1 << 31) + 64, 64)):
        (launch,) = emitted(jax.nn.softmax, (((rows, 2), np.float32),)).source.launches
        assert launch.index_bits == bits


def test_the_last_rows_of_a_softmax_of_two_to_the_31() -> None:
    rows = (1 << 31) + 64
    found = emitted(jax.nn.softmax, (((rows, 2), np.float32),))
    launch = found.source.launches[0]
    there = 64 + 2 * launch.block
    x = np.random.default_rng(0).normal(size=(there, 2)).astype(np.float32)
    result = np.full(there * 2, 77.0, np.float32)
    operand, output = launch.parameters
    run_last(found, 2, {operand.name: x.reshape(-1), output.name: result})
    shares = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    written = result.reshape(there, 2)
    own = 64 + launch.block  # the last CTA has 64 rows
    assert (written[: there - own] == 77.0).all()
    np.testing.assert_allclose(written[-own:], shares[-own:], rtol=1e-5)


# -- fifty billion elements -------------------------------------------------------------------------------

MANY = 50_000_000_000


def elementwise(x: Array) -> Array:
    return jnp.exp(x) * 2 + jnp.tanh(x)


def positions(x: Array) -> Array:
    return x + jnp.arange(x.size, dtype=jnp.int32).astype(x.dtype)


def columns(x: Array) -> Array:
    return jax.nn.softmax(x, axis=0)


def turned(x: Array) -> Array:
    return jnp.exp(x).T + 1


def picked(x: Array, rows: Array) -> Array:
    return jax.nn.softmax(x[rows] * 2.0)


FIFTY_BILLION: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "elements": (elementwise, (((MANY,), np.float32),)),
    "positions": (positions, (((MANY,), np.float32),)),
    "short rows": (jax.nn.softmax, (((MANY // 2, 2), np.float32),)),
    "long rows": (jax.nn.softmax, (((4, MANY // 4), BF16),)),
    "columns": (columns, (((MANY // 64, 64), np.float32),)),
    "partial results": (
        gradients,
        (((MANY // 1024, 1024), BF16), ((1024,), BF16), ((MANY // 1024, 1024), BF16)),
    ),
    "turned": (turned, (((200_000, 250_000), np.float32),)),
    "picked": (picked, (((MANY // 64, 64), np.float32), ((1000,), np.int32))),
}


@pytest.mark.parametrize("name", FIFTY_BILLION)
def test_fifty_billion_elements_have_kernels(name: str) -> None:
    """On both targets, all of it proven; what touches so many in 64 bits."""
    f, shapes = FIFTY_BILLION[name]
    found = made(f, shapes)
    assert found.sources[0].launches[0].index_bits == 64
    on_cpu = stitch_for_cpu(graph_of(f, shapes))
    kernels = [op.attrs["kernel"] for op in on_cpu.ops if op.name == KERNEL]
    assert kernels
    assert not any(check_integers(cpu_emit(kernel).source) for kernel in kernels)


def test_more_rows_than_a_launch_has_ctas_stay_with_xla() -> None:
    found = stitch(graph_of(jax.nn.softmax, (((3_000_000_000, 20_000), np.float32),)), PROFILES["h200"])
    assert not found.kernels
    assert found.recorder.refused == ["needs 3,000,000,000 CTAs, a launch has 2,147,483,647 at most"]


def test_more_ctas_than_a_grid_has_are_refused() -> None:
    found = stitch(graph_of(lambda x: jnp.sin(x) + 1, (((1 << 45,), np.float32),)), PROFILES["h200"])
    assert not found.kernels
    assert "CTAs" in str(found.recorder.refused)
