"""Optimiser steps over the 151 tensors of a 12-layer transformer, state donated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks import twins
from benchmarks.workload import Arguments, Problem, Workload, normal, sizes

Tree = dict[str, Array]
LAYERS = 12


def transformer_shapes(width: int, vocabulary: int) -> dict[str, tuple[int, ...]]:
    layer = {
        "norm1_scale": (width,),
        "norm1_bias": (width,),
        "qkv": (width, 3 * width),
        "qkv_bias": (3 * width,),
        "out": (width, width),
        "out_bias": (width,),
        "norm2_scale": (width,),
        "norm2_bias": (width,),
        "up": (width, 4 * width),
        "up_bias": (4 * width,),
        "down": (4 * width, width),
        "down_bias": (width,),
    }
    shapes = {f"layer{i:02}_{name}": shape for i in range(LAYERS) for name, shape in layer.items()}
    embedding = {"embedding": (vocabulary, width), "positions": (64, width), "head": (width, vocabulary)}
    return shapes | embedding | {f"final_{i}": (width,) for i in range(4)}


def parameters(width: int, vocabulary: int, seed: int, scale: float = 1.0) -> Tree:
    shapes = transformer_shapes(width, vocabulary)
    return {name: normal(shape, seed + i, scale) for i, (name, shape) in enumerate(shapes.items())}


def warmed_up(transform: optax.GradientTransformation, params: Tree) -> Any:
    """An optimiser state as after some steps: with a zero second moment the update would be a sign."""

    def fill(leaf: jax.ShapeDtypeStruct) -> Array:
        if not leaf.shape:
            return jnp.asarray(3, leaf.dtype)
        values = np.random.default_rng(leaf.size).standard_normal(leaf.shape, np.float32)
        return jnp.asarray(np.abs(values) * np.float32(0.01) + np.float32(1e-3))

    return jax.tree.map(fill, jax.eval_shape(transform.init, params))


def optimizer(make: Callable[[], optax.GradientTransformation], width: int, vocabulary: int) -> Problem:
    transform = make()

    def step(params: Tree, state: Any, gradients: Tree) -> tuple[Tree, Any]:
        updates, state = transform.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    def carry(args: Arguments, output: Any) -> Arguments:
        return (*output, args[2])

    params = parameters(width, vocabulary, 0)
    state = warmed_up(transform, params)
    gradients = parameters(width, vocabulary, 1000, 0.01)
    return Problem(step, (params, state, gradients), donate=(0, 1), carry=carry)


def moving_average(width: int, vocabulary: int) -> Problem:
    def step(average: Tree, params: Tree) -> Tree:
        return {name: 0.999 * a + 0.001 * params[name] for name, a in average.items()}

    args = (parameters(width, vocabulary, 0), parameters(width, vocabulary, 1000))
    return Problem(step, args, donate=(0,), carry=lambda args, output: (output, args[1]))


def clip_global_norm(width: int, vocabulary: int) -> Problem:
    def clip(gradients: Tree) -> Tree:
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in gradients.values()))
        scale = jnp.minimum(1.0, 1.0 / norm)
        return {name: g * scale for name, g in gradients.items()}

    args = (parameters(width, vocabulary, 0),)
    return Problem(clip, args, donate=(0,), carry=lambda _, output: (output,))


ADAM = sizes((12, 256), (80, 1024), (320, 8192))
TWO_TREES = sizes((20, 256), (104, 1024), (320, 8192))

WORKLOADS = (
    Workload("adamw", partial(optimizer, lambda: optax.adamw(1e-3)), ADAM, twins.adamw),
    Workload("lion", partial(optimizer, lambda: optax.lion(1e-4)), ADAM),
    Workload("lamb", partial(optimizer, lambda: optax.lamb(1e-3)), ADAM),
    Workload("moving_average", moving_average, TWO_TREES),
    Workload("clip_global_norm", clip_global_norm, TWO_TREES),
)
