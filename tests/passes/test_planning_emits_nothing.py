"""To plan and to explain, no kernel is written down: what is decided is there before its text is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jstitch
from jstitch.codegen.cpu import backend as cpu
from jstitch.codegen.cuda import backend as cuda

SHAPES = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((512, 1000), (1000,), (1000,)))


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    y = x - x.mean(-1, keepdims=True)
    return y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5) * scale + bias


def gradient(*args: jax.Array) -> Any:
    return jax.grad(lambda *a: jnp.sin(layer_norm(*a)).sum(), argnums=(0, 1, 2))(*args)


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernels that somebody wanted as text: nobody gets it."""
    found: list[str] = []

    def never(kernel: Any, *_: Any, **__: Any) -> Any:
        found.append(kernel.name)
        raise AssertionError("a kernel was written down")

    for module in (cpu, cuda):
        monkeypatch.setattr(module, "emit", never)
    return found


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("look", [jstitch.plan, jstitch.explain])
@pytest.mark.parametrize("f", [layer_norm, gradient])
def test_planning_emits_nothing(
    f: Callable[..., Any], look: Callable[..., Any], target: str, emitted: list[str]
) -> None:
    options = jstitch.CompileOptions(target=target, tune="off", strict=True)
    assert "kernel" in str(look(f, options)(*SHAPES))
    assert not emitted
