"""Sharing and shrinking, switched off: more shared memory, or no kernel, and the same results."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from tests.codegen.cuda.stitched import OPTIONS, PROFILES, Stitched, simulated, stitch


def softmaxes(x: Array) -> Array:
    """Of rows, each read from both ends: by other threads than those that made it."""
    for _ in range(5):
        y = jax.nn.softmax(x, axis=-1)
        x = jnp.tanh(y + y[:, ::-1])
    return x


def graph_of(shape: tuple[int, int]) -> Graph:
    return import_module(parse_module(jax.jit(softmaxes).lower(jnp.zeros(shape)).as_text()))


def made(shape: tuple[int, int], *without: str, strict: bool = True) -> Stitched:
    options = replace(OPTIONS, without=without, strict=strict)
    return stitch(graph_of(shape), PROFILES["h200"], options=options)


def shared_bytes(found: Stitched) -> int:
    return sum(launch.shared_bytes for source in found.sources for launch in source.launches)


@pytest.mark.parametrize("shape", [(5, 1001), (3, 4096)])
def test_without_sharing_every_value_has_bytes_of_its_own(shape: tuple[int, int]) -> None:
    together, apart = made(shape), made(shape, "sharing")
    assert shared_bytes(together) < shared_bytes(apart)
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    (expected,) = interpret(graph_of(shape), [x])
    for found in (together, apart):
        np.testing.assert_allclose(found.run([x], simulated)[0], expected, rtol=2e-5, atol=1e-7)


def test_without_shrinking_what_does_not_fit_stays_xlas() -> None:
    """Rows of 160,000 bytes: with shrinking, its exponentials are computed again."""
    shape = (2, 40_000)
    assert made(shape).kernels
    assert not made(shape, "shrinking", strict=False).kernels
