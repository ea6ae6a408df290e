"""Something to plan, explain and report: a transformer block's gradients, by shapes only.

jstitch report jstitch.demo.example:block --target h200 -o report.html
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jstitch.demo.model import ModelConfig, attention, dense, init_params, layer_norm

CONFIG = ModelConfig(length=512, width=256, heads=8, layers=1)
BATCH = 8


def block() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function, and the shapes of its arguments: one layer's parameters, f32[8, 512, 256]."""
    params = jax.eval_shape(partial(init_params, CONFIG), jax.random.key(0))["layers"][0]
    x = jax.eval_shape(partial(jnp.zeros, (BATCH, CONFIG.length, CONFIG.width)))
    return block_gradients, (params, x)


def block_gradients(params: Any, x: jax.Array) -> Any:
    """Of a pre-norm block without dropout: attention and GELU MLP."""

    def total(params: Any, x: jax.Array) -> jax.Array:
        x = x + attention(CONFIG, params, layer_norm(params["norm1"], x))
        hidden = jax.nn.gelu(dense(params["up"], layer_norm(params["norm2"], x)))
        return jnp.sum(jnp.square(x + dense(params["down"], hidden)))

    return jax.grad(total, argnums=(0, 1))(params, x)
