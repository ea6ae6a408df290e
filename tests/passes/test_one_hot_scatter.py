"""The one-hot scatter rewrite: on what JAX emits, on random scatters, and where it must refuse."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.ir.verify import check
from jstitch.passes.pipeline import run, verify_after
from tests.contexts import CPU

N, C = 6, 9
Loss = Callable[[jax.Array, jax.Array], jax.Array]
LOSSES: dict[str, Loss] = {
    "indexing": lambda x, i: -jax.nn.log_softmax(x)[jnp.arange(N), i].mean(),
    "take_along_axis": lambda x, i: jnp.take_along_axis(x, i[:, None], axis=-1).sum(),
    "clip": lambda x, i: jnp.take_along_axis(x, i[:, None], axis=-1, mode="clip").sum(),
    "fill": lambda x, i: x.at[jnp.arange(N), i].get(mode="fill", fill_value=0).sum(),
    "in bounds": lambda x, i: x.at[jnp.arange(N), i].get(mode="promise_in_bounds").sum(),
    "optax": lambda x, i: optax.softmax_cross_entropy_with_integer_labels(x, i).mean(),
    "where": lambda x, i: jnp.where(i >= 0, x[jnp.arange(N), i], 0.0).sum(),
    "vmap": lambda x, i: jax.vmap(lambda row, k: row[k])(x, i).sum(),
    "column": lambda x, i: x.T[i, jnp.arange(N)].sum(),
}


def gradient(loss: Loss) -> Graph:
    x, i = jnp.zeros((N, C)), jnp.zeros((N,), jnp.int32)
    return import_module(jax.jit(jax.grad(loss)).lower(x, i).compiler_ir("stablehlo"))


def has_scatter(graph: Graph) -> bool:
    return any(op.name == "stablehlo.scatter" for op in graph.walk())


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_that_jax_emits(name: str) -> None:
    """Also for labels out of range: negative ones wrap where JAX wraps them, the rest is dropped."""
    before = gradient(LOSSES[name])
    after = run(before, CPU, after=verify_after)
    assert has_scatter(before)
    assert not has_scatter(after)
    rng = np.random.default_rng(0)
    for _ in range(10):
        args = [_draw(rng, v.tensor) for v in before.inputs]
        for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
            assert a.tobytes() == b.tobytes()


def _draw(rng: np.random.Generator, type_: TensorType) -> np.ndarray:
    if type_.dtype.is_float:
        return rng.standard_normal(type_.shape).astype(type_.dtype.numpy)
    return rng.integers(-2 * C, 2 * C, type_.shape).astype(type_.dtype.numpy)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, i: x[i].sum(),
        lambda x, i: x[:, i].sum(),
        lambda x, i: x[i, i].sum(),
        lambda x, i: jnp.take_along_axis(x, jnp.stack([i, i], 1), axis=-1).sum(),
    ],
    ids=["rows may repeat", "columns may repeat", "both depend on data", "two updates per row"],
)
def test_refuses_where_updates_may_meet(loss: Loss) -> None:
    assert has_scatter(run(gradient(loss), CPU))


def random_scatter(random: Random) -> tuple[Graph, list[np.ndarray]]:
    """zeros (rows x cols) or (cols x rows); an iota and a random component in either order; any labels."""
    rows, cols = random.randint(1, 4), random.randint(1, 4)
    first = random.random() < 0.5
    shape = (rows, cols) if first else (cols, rows)
    dtype, fill = random.choice((DType.F32, DType.S32)), random.choice((0, 0, 3))
    labels, updates = Value(TensorType((rows,), DType.S32)), Value(TensorType((rows,), dtype))
    count = build.iota(TensorType((rows, 1), DType.S32), 0)
    column = build.reshape(labels, (rows, 1))
    parts = (count, column) if first else (column, count)
    index = build.concatenate([p.result for p in parts], 1)
    zeros = build.splat(TensorType(shape, dtype), fill)
    scatter = _scatter(zeros.result, index.result, updates, random.random() < 0.5)
    graph = Graph((labels, updates), (count, column, index, zeros, scatter), scatter.results)
    rng = np.random.default_rng(random.randrange(1 << 30))
    values = rng.choice([-0.0, 1.0, 2.5, np.nan], rows) if dtype is DType.F32 else rng.integers(-5, 5, rows)
    return check(graph), [rng.integers(-3, 6, rows).astype(np.int32), values.astype(dtype.numpy)]


def _scatter(operand: Value, indices: Value, updates: Value, adds: bool) -> Op:
    scalar = TensorType((), operand.tensor.dtype)
    old, new = Value(scalar), Value(scalar)
    total = build.add(old, new)
    body = Graph((old, new), (total,), total.results) if adds else Graph((old, new), (), (new,))
    attrs = {
        "update_window_dims": (),
        "inserted_window_dims": (0, 1),
        "input_batching_dims": (),
        "scatter_indices_batching_dims": (),
        "scattered_dims_to_operand_dims": (0, 1),
        "index_vector_dim": 1,
        "indices_are_sorted": False,
        "unique_indices": False,
    }
    return Op("stablehlo.scatter", (operand, indices, updates), (Value(operand.type),), attrs, (body,))


def test_random_scatters_bit_by_bit() -> None:
    """Overwriting and adding, into zeros and other splats, labels out of bounds on both sides."""
    for seed in range(150):
        before, args = random_scatter(Random(seed))
        after = run(before, CPU, after=verify_after)
        assert not has_scatter(after)
        (a,), (b,) = interpret(before, args), interpret(after, args)
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))
