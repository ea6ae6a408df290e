"""argmax and argmin become two reductions with the same indices: ties, NaNs, infinities, every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.rewrite_argmax import rewrite_argmax
from jstitch.passes.pipeline import run
from jstitch.runtime.report import last_report, record_count
from tests.contexts import CPU
from tests.ir.running import run_with_xla

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf]
DTYPES = [jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.uint8, jnp.int8]


def imported(f: Callable[..., Any], *args: Any) -> Graph:
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


def pairs(graph: Graph) -> int:
    """Reductions of a value and an index together."""
    return sum(op.name == "stablehlo.reduce" and len(op.results) == 2 for op in graph.walk())


def draw(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Few different values, so that there are ties."""
    rng = np.random.default_rng(seed)
    if jnp.issubdtype(dtype, jnp.floating):
        return rng.choice(SPECIAL, shape, p=[0.2, 0.2, 0.2, 0.2, 0.05, 0.05, 0.1]).astype(dtype)
    info = jnp.iinfo(dtype)
    return rng.choice([info.min, info.max, 0, 1], shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("f", [jnp.argmax, jnp.argmin], ids=["argmax", "argmin"])
def test_same_indices(f: Any, dtype: Any) -> None:
    for axis, shape in ((0, (3, 7)), (1, (40, 4)), (1, (2, 5, 3)), (None, (3, 4)), (0, (1,))):
        before = imported(lambda x, axis=axis: f(x, axis), jnp.zeros(shape, dtype))
        after = check(rewrite_argmax(before))
        assert (pairs(before), pairs(after)) == (1, 0)
        for seed in range(8):
            x = draw(seed, shape, dtype)
            for a, b in zip(interpret(before, [x]), interpret(after, [x]), strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("value", SPECIAL)
def test_one_value_everywhere(value: float) -> None:
    graph = rewrite_argmax(imported(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1)), jnp.zeros((2, 5))))
    for found in interpret(graph, [np.full((2, 5), value, np.float32)]):
        assert found.tolist() == [0, 0]


def both(x: Any) -> Any:
    return lax.reduce(
        (x, lax.broadcasted_iota(jnp.int32, x.shape, 1)),
        (np.float32(-np.inf), np.int32(0)),
        lambda a, b: (jnp.maximum(a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])),
        (1,),
    )


@pytest.mark.parametrize(
    "f",
    [
        both,
        lambda x: both(x)[1],
        lambda x: lax.reduce((x, x), (np.float32(0), np.float32(0)), lambda a, b: (a[0] + b[0], a[1]), (1,)),
    ],
    ids=["value used", "another combiner", "no index"],
)
def test_other_pairs_stay(f: Any) -> None:
    graph = imported(f, jnp.ones((4, 6)))
    assert pairs(rewrite_argmax(graph)) == pairs(graph) == 1


def test_a_value_that_is_used_stays() -> None:
    """A maximum of zeros is +0; the reduction may have picked either."""
    graph = imported(lambda x: jnp.argmax(x, 1), jnp.ones((4, 6)))
    (op,) = [op for op in graph.ops if len(op.results) == 2]
    assert pairs(rewrite_argmax(Graph(graph.inputs, graph.ops, op.results))) == 1


def test_in_xla() -> None:
    """XLA:CPU's maximum drops NaNs where it is vectorised; the indices must not depend on it."""
    graph = rewrite_argmax(imported(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1)), jnp.zeros((70, 130))))
    x = draw(5, (70, 130), jnp.float32)
    for found, f in zip(run_with_xla(graph, [x]), (jnp.argmax, jnp.argmin), strict=True):
        np.testing.assert_array_equal(found, f(x, 1))


@pytest.mark.parametrize("axis", [0, 1])
def test_in_a_kernel(axis: int) -> None:
    def f(x: Any) -> Any:
        return jnp.argmax(x * 2, axis), jnp.argmin(x, axis), jnp.abs(x)

    since = record_count()
    for seed in range(3):
        x = draw(seed, (70, 130), jnp.float32)
        for a, b in zip(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), strict=True):
            np.testing.assert_array_equal(a, b)
    assert all(r.kernels >= 1 and not r.reason for r in last_report(since))


def test_the_pipeline_has_it() -> None:
    assert pairs(run(imported(lambda x: jnp.argmax(jax.nn.softmax(x), -1), jnp.ones((4, 6))), CPU)) == 0
