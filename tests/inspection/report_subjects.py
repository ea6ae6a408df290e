"""Programs that the tests of reports show."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from jstitch.inspection.inspected import Inspected
from jstitch.inspection.report.data import report_data
from jstitch.inspection.subject import observe_function
from jstitch.options import CompileOptions
from jstitch.runtime.report import last_report, record_count

ROWS = jax.ShapeDtypeStruct((512, 256), jnp.float32)
Subject = tuple[Callable[..., Any], tuple[Any, ...]]


def _norm(x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def _layers(depth: int, x: jax.Array, w: jax.Array) -> jax.Array:
    for _ in range(depth):
        x = x + jnp.tanh(_norm(x) @ w)
    return jax.nn.softmax(x)


def network(depth: int = 2) -> Subject:
    """Layers with a matrix product each, then a softmax."""
    return partial(_layers, depth), (ROWS, jax.ShapeDtypeStruct((256, 256), jnp.float32))


def gradients(depth: int) -> Subject:
    """The same, and backwards: 59 ops of a layer, or so."""
    f, args = network(depth)
    return jax.grad(lambda x, w: f(x, w).sum(), argnums=(0, 1)), args


def scanned() -> Subject:
    """A frame within a frame."""

    def step(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = _norm(carry * 0.9 + x)
        return carry, jnp.exp(carry).sum(-1)

    def f(xs: jax.Array) -> tuple[jax.Array, jax.Array]:
        last, sums = jax.lax.scan(step, jnp.zeros(ROWS.shape), xs)
        return jax.nn.softmax(last), sums

    return f, (jax.ShapeDtypeStruct((50, *ROWS.shape), jnp.float32),)


def inspected(subject: Subject, *, target: str = "cpu", kernels: bool = True) -> Inspected:
    f, args = subject
    without = ("recurrences",)  # loops are to have frames
    options = CompileOptions(target=target, tune="off", verify=kernels, without=without)
    before = record_count()
    calls = observe_function(f, args, {}, options, kernels=kernels)
    return Inspected(calls, last_report(before))


@cache
def data_of(make: Callable[[], Subject], target: str = "cpu") -> dict[str, Any]:
    return report_data(make.__name__, inspected(make(), target=target), lines=True)
