"""Packed lanes that read an argument in one phase and overwrite it in a later one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jstitch

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def step(parameters: list[Array], gradients: list[Array]) -> list[Array]:
    """Each parameter, less its gradient scaled by both their norms: known only when all of it was read."""
    ratios = [jnp.linalg.norm(p) / jnp.linalg.norm(g) for p, g in zip(parameters, gradients, strict=True)]
    return [p - 0.1 * r * g for p, g, r in zip(parameters, gradients, ratios, strict=True)]


def arrays(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(seed)
    return [jnp.asarray(random.standard_normal(shape), jnp.float32) for shape in shapes]


def test_every_parameter_is_overwritten() -> None:
    shapes = ((12, 12),) * 5 + ((36,),) * 3 + ((7, 5),)
    expected = jax.jit(step)(arrays(0, *shapes), arrays(1, *shapes))
    since, jitted = jstitch.record_count(), jstitch.jit(step, options=OPTIONS, donate_argnums=0)
    given = arrays(0, *shapes)
    found = jitted(given, arrays(1, *shapes))
    assert jstitch.stitch_count(since) == 1
    assert all(p.is_deleted() for p in given)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


def test_no_copy_is_made_of_what_is_overwritten() -> None:
    shapes = ((12, 12),) * 5
    jitted = jstitch.jit(step, options=OPTIONS, donate_argnums=0)
    compiled = jitted.lower(arrays(0, *shapes), arrays(1, *shapes)).compile()
    assert " copy(" not in compiled.as_text()
