"""Programs too large to run: planning costs neither memory nor time, and indices do not overflow."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from robustness_support import STRICT, check

import jstitch
from jstitch.passes.lower.schedule import divisors
from tests.counting import calls

F32 = jnp.float32
ROWS, COLS = 50_000, 1_000_000  # 50 billion elements


def _shape(*dims: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


HUGE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "broadcast": (lambda x: jnp.broadcast_to(x, (ROWS, COLS)).sum(1) + 1, (_shape(COLS),)),
    "iota": (
        lambda x: (jax.lax.broadcasted_iota(F32, (ROWS, COLS), 1) * x[:, None]).sum(1),
        (_shape(ROWS),),
    ),
    "splat": (lambda x: jnp.exp(jnp.full((ROWS, COLS), 2.0, F32)) * x[:, None], (_shape(ROWS),)),
    "softmax": (jax.nn.softmax, (_shape(ROWS, COLS),)),
    "columns": (lambda x: (x - x.mean(0)) / (x.std(0) + 1), (_shape(COLS, ROWS),)),
    "one dimension": (lambda x: jnp.tanh(x) + x.sum(), (_shape(ROWS * COLS),)),
    "rows over int32": (jax.nn.softmax, (_shape(2**31 + 11, 3),)),
    "prime": (lambda x: jnp.tanh(x) + x.sum(), (_shape(2**31 - 1),)),
    "concatenate": (lambda x: jnp.concatenate([x, jnp.tanh(x)]) + 1, (_shape(ROWS * COLS),)),
    "one hot": (lambda i: jax.nn.one_hot(i, COLS).sum(0), (_shape(ROWS, dtype=jnp.int32),)),
}


@pytest.mark.parametrize("name", HUGE)
def test_lowering_fifty_billion_elements(name: str) -> None:
    f, args = HUGE[name]
    stitched = jstitch.jit(lambda *xs: f(*xs), options=STRICT)
    since = jstitch.record_count()
    tracemalloc.start()
    start = time.process_time()
    try:
        stitched.lower(*args)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert jstitch.stitch_count(since) > 0
    assert peak < 1 << 28
    assert time.process_time() - start < 30  # hours, or no memory, if anything were enumerated


def test_more_elements_than_addresses_are_left_to_xla() -> None:
    side = 2**31 - 1
    since = jstitch.record_count()
    jstitch.jit(lambda x: jnp.tanh(x) + 1, options=STRICT).lower(_shape(side, side, side))
    (record,) = jstitch.last_report(since)
    assert not record.kernels
    assert record.reason is not None
    found = jstitch.explain(lambda x: jnp.tanh(x) + 1)(_shape(side, side, side))
    assert f"{side}x{side}x{side}" in str(found)


def test_divisors_are_found_fast() -> None:
    for n in range(200):
        assert divisors(n) == (tuple(d for d in range(1, n + 1) if n % d == 0) or (1,))
    assert calls(divisors, 2**61 - 1) < 1_000  # not one for each candidate
    assert divisors(2**61 - 1) == (1, 2**61 - 1)
    assert len(divisors(2**40 * 3**10)) == 41 * 11


@pytest.mark.parametrize("empty", [(0, 4), (4, 0), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_empty_and_scalar_tensors_in_every_position(empty: tuple[int, ...], position: int) -> None:
    def f(*xs: Any) -> Any:
        return [jnp.tanh(x) * 2 + x.sum() for x in xs], xs[0].sum() + xs[1].max(initial=1.0) * xs[2].mean()

    shapes: list[tuple[int, ...]] = [(), (4, 8), (3,)]
    shapes[position] = empty
    args = [np.linspace(-1, 1, int(np.prod(s)), dtype=np.float32).reshape(s) for s in shapes]
    found, expected = jstitch.jit(f, options=STRICT)(*args), jax.jit(f)(*args)
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_joining_with_an_empty_part(axis: int) -> None:
    def f(x: Any, y: Any) -> Any:
        return jnp.tanh(jnp.concatenate([x, y, x], axis)) * 2 + 1

    shape = [4, 4]
    shape[axis] = 0
    x, y = np.ones((4, 4), np.float32), np.zeros(shape, np.float32)
    check(jstitch.jit(f, options=STRICT), f, x, y)
