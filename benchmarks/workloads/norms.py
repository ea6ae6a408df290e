"""Layer, RMS, batch and group norm: forward, and the gradient of a loss on top.

`*_grad` differentiates a sum of cubes of the result (the sum of squares of normalised columns is a constant,
and batch norm's gradient of it only rounding noise); `*_vjp` pulls an upstream gradient back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks import twins
from benchmarks.workload import Problem, Workload, normal, sizes

EPSILON = 1e-5
Norm = Callable[[Array, Array, Array], Array]


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * gamma + beta


def rms_norm(x: Array, gamma: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + EPSILON) * gamma


def batch_norm(x: Array, gamma: Array, beta: Array) -> Array:
    mean = jnp.mean(x, axis=0)
    variance = jnp.var(x, axis=0)
    return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * gamma + beta


def group_norm(x: Array, gamma: Array, beta: Array, groups: int = 32) -> Array:
    batch, positions, channels = x.shape
    grouped = x.reshape(batch, positions, groups, channels // groups)
    mean = jnp.mean(grouped, axis=(1, 3), keepdims=True)
    variance = jnp.var(grouped, axis=(1, 3), keepdims=True)
    normalised = (grouped - mean) * jax.lax.rsqrt(variance + EPSILON)
    return normalised.reshape(x.shape) * gamma + beta


def forward(norm: Norm, *shape: int) -> Problem:
    features = shape[-1:]
    return Problem(norm, (normal(shape), normal(features, 1), normal(features, 2)))


def gradient(norm: Norm, *shape: int) -> Problem:
    def loss(x: Array, gamma: Array, beta: Array) -> Array:
        return jnp.sum(norm(x, gamma, beta) ** 3)

    return Problem(jax.grad(loss, argnums=(0, 1, 2)), forward(norm, *shape).args)


def pullback(norm: Norm, *shape: int) -> Problem:
    def vjp(x: Array, gamma: Array, beta: Array, upstream: Array) -> tuple[Array, ...]:
        return tuple(jax.vjp(norm, x, gamma, beta)[1](upstream))

    return Problem(vjp, (*forward(norm, *shape).args, normal(shape, 3)))


def rms_forward(*shape: int) -> Problem:
    return Problem(rms_norm, (normal(shape), normal(shape[-1:], 1)))


def rms_gradient(*shape: int) -> Problem:
    def loss(x: Array, gamma: Array) -> Array:
        return jnp.sum(rms_norm(x, gamma) ** 3)

    return Problem(jax.grad(loss, argnums=(0, 1)), rms_forward(*shape).args)


ROWS = sizes((128, 768), (2048, 768), (32768, 768))
COLUMNS = sizes((392, 256), (6272, 256), (100352, 256))
GROUPS = sizes((2, 196, 256), (8, 784, 256), (32, 3136, 256))

WORKLOADS = (
    Workload("layer_norm", partial(forward, layer_norm), ROWS, twins.layer_norm),
    Workload("layer_norm_grad", partial(gradient, layer_norm), ROWS, twins.layer_norm_grad),
    Workload("layer_norm_vjp", partial(pullback, layer_norm), ROWS),
    Workload("rms_norm", rms_forward, ROWS, twins.rms_norm),
    Workload("rms_norm_grad", rms_gradient, ROWS, twins.rms_norm_grad),
    Workload("batch_norm", partial(forward, batch_norm), COLUMNS, twins.batch_norm),
    Workload("batch_norm_grad", partial(gradient, batch_norm), COLUMNS, twins.batch_norm_grad),
    Workload("batch_norm_vjp", partial(pullback, batch_norm), COLUMNS),
    Workload("group_norm", partial(forward, group_norm), GROUPS),
    Workload("group_norm_grad", partial(gradient, group_norm), GROUPS),
)
