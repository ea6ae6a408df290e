"""What a loop carries is written in place by the kernel that makes it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jstitch

Array = jax.Array
SHAPE = (64, 256)


def gated(memory: Array, xs: Array) -> Array:
    def cell(memory: Array, x: Array) -> tuple[Array, None]:
        return jax.nn.sigmoid(x) * memory + jnp.tanh(x) * jnp.tanh(x + memory), None

    return jax.lax.scan(cell, memory, xs)[0]


def test_a_carried_value_stays_in_its_memory() -> None:
    rng = np.random.default_rng(0)
    memory, xs = rng.standard_normal(SHAPE, np.float32), rng.standard_normal((40, *SHAPE), np.float32)
    options = jstitch.CompileOptions(tune="off", without=("recurrences",))
    stitched = jstitch.jit(gated, options=options)
    assert "output_to_operand_aliasing" in str(stitched.lower(memory, xs).compile().as_text())
    np.testing.assert_allclose(stitched(memory, xs), jax.jit(gated)(memory, xs), rtol=2e-5, atol=2e-6)


def test_a_value_that_is_used_after_it_was_overwritten_is_copied_first() -> None:
    def keep(memory: Array, xs: Array) -> tuple[Array, Array]:
        def cell(memory: Array, x: Array) -> tuple[Array, Array]:
            new = jnp.tanh(memory + x) * 0.5
            return new, memory - jnp.exp(new)

        return jax.lax.scan(cell, memory, xs)

    rng = np.random.default_rng(1)
    memory, xs = rng.standard_normal(SHAPE, np.float32), rng.standard_normal((40, *SHAPE), np.float32)
    options = jstitch.CompileOptions(tune="off", without=("recurrences",))
    stitched = jstitch.jit(keep, options=options)
    found, expected = stitched(memory, xs), jax.jit(keep)(memory, xs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), found, expected)
