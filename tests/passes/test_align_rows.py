"""What lies between two products has its rows in the first one's order, whatever lies there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.fuse.find_chains import CHAIN
from jstitch.passes.graph.align_rows import align_rows
from jstitch.passes.graph.turn_region import TRANSPOSE
from tests.passes.product_graphs import arrays, graph_of, products

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def aligned(f: Callable[..., Any], *args: Any) -> tuple[Graph, Graph]:
    """Before and after, which mean the same."""
    before = graph_of(f, args)
    after = check(align_rows(before), "align_rows")
    for want, found in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    return before, after


def is_turned_between(graph: Graph) -> bool:
    """Whether what the first product makes is transposed before the last."""
    first, *_, last = products(graph)
    ops = list(graph.walk())
    turned = [op.result for op in ops[ops.index(first) : ops.index(last)] if op.name == TRANSPOSE]
    return any(v.tensor.size == first.result.tensor.size for v in turned)


def heads(q: Any, k: Any, v: Any, between: Callable[[Any], Any]) -> Any:
    """q [b, q, h, g, d], k and v [b, k, h, d]: groups of heads first between products."""
    s = jnp.einsum("bqhgd,bkhd->gbhqk", q, k)
    return jnp.einsum("gbhqk,bkhd->bqhgd", between(s), v)


ARGS = arrays((2, 5, 3, 2, 4), (2, 7, 3, 4), (2, 7, 3, 4))
BETWEEN: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda s: jax.nn.softmax(s, -1),
    "a mask of rows and columns": lambda s: (
        jnp.where(jnp.tri(5, 7, dtype=bool), s, 0).sum(-1, keepdims=True) * s
    ),
    "a mask of groups": lambda s: jax.nn.softmax(s + jnp.arange(2.0)[:, None, None, None, None]),
    "a number": lambda s: jnp.where(s.max(-1, keepdims=True) > jnp.linalg.norm(jnp.ones(3)), s, 1.0),
    "a norm": lambda s: (s - s.mean(-1, keepdims=True)) / (1 + s.std(-1, keepdims=True)),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_groups_of_heads(name: str) -> None:
    before, after = aligned(lambda q, k, v: heads(q, k, v, BETWEEN[name]), *ARGS)
    assert is_turned_between(before)
    assert not is_turned_between(after)


def test_sums_of_columns_stay() -> None:
    before, after = aligned(lambda q, k, v: heads(q, k, v, lambda s: s / s.sum(3, keepdims=True)), *ARGS)
    assert is_turned_between(after)
    assert len([*before.walk()]) == len([*after.walk()])


def test_what_is_wanted_as_it_is_stays() -> None:
    """A result of the program, a sort, a cumulative sum."""

    def returned(q: Any, k: Any, v: Any) -> Any:
        s = jax.nn.softmax(jnp.einsum("bqhgd,bkhd->gbhqk", q, k), -1)
        return s, jnp.einsum("gbhqk,bkhd->bqhgd", s, v)

    ordered = [lambda s: jnp.sort(jax.nn.softmax(s, -1)), lambda s: jnp.cumsum(jax.nn.softmax(s, -1), -1)]
    others = [lambda q, k, v, change=change: heads(q, k, v, change) for change in ordered]
    for f in (returned, *others):
        before = graph_of(f, ARGS)
        assert [*align_rows(before).walk()] == [*before.walk()]


def _drawn(random: Random) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Two products with dimensions in any order, and things between them, in any order of dimensions."""
    sizes = dict(zip("bhgqkd", (2, 3, 2, 4, 5, 3), strict=True))
    spell = lambda letters: "".join(random.sample(letters, len(letters)))  # noqa: E731
    left, right, values, scores, out = map(spell, ("bqhgd", "bkhd", "bkhd", "bhgqk", "bhgqd"))
    later = spell(scores)
    kinds = [random.randrange(4) for _ in range(random.randint(0, 3))]

    def f(q: Any, k: Any, v: Any, m: Any) -> Any:
        s = jnp.einsum(f"{left},{right}->{scores}", q, k)
        for kind in kinds[:1]:
            s = s * 0.5 if kind % 2 else jnp.tanh(s)
        s = jnp.transpose(s, [scores.index(x) for x in later])
        for kind in kinds[1:]:
            axis = later.index("k") if kind < 3 else later.index("q")
            s = jax.nn.softmax(s, axis) * 2 if kind % 2 else s - s.max(axis, keepdims=True)
        return jnp.einsum(f"{later},{values}->{out}", jax.nn.softmax(s + m, later.index("k")), v)

    shapes = [tuple(sizes[x] for x in letters) for letters in (left, right, values, later)]
    numbers = np.random.default_rng(0)
    return f, [numbers.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("seed", range(60))
def test_drawn_orders(seed: int) -> None:
    f, args = _drawn(Random(seed))
    aligned(f, *args)
    aligned(jax.grad(lambda *a: jnp.sum(f(*a) ** 2), (0, 1, 2)), *args)


@pytest.mark.parametrize("keys", [1, 2])
@pytest.mark.parametrize("given", ["nothing", "is_causal", "bias", "mask", "window"])
def test_grouped_heads_of_jax_nn_are_chains(given: str, keys: int) -> None:
    """They are not without the pass."""
    kinds = {
        "nothing": {},
        "is_causal": {"is_causal": True},
        "bias": {"bias": np.linspace(-1, 1, 4 * 32 * 48).reshape(1, 4, 32, 48).astype(np.float32)},
        "mask": {"mask": np.arange(48)[None, None, None] < np.array([20, 48])[:, None, None, None]},
        "window": {"local_window_size": 9},
    }

    def f(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, **kinds[given])

    args = arrays((2, 32, 4, 16), (2, 48, keys, 16), (2, 48, keys, 16))
    jitted = jstitch.jit(f, options=OPTIONS)
    np.testing.assert_allclose(jitted(*args), jax.jit(f)(*args), rtol=1e-5, atol=1e-5)
    assert any(p.origin == CHAIN for p in jitted.plan(*args).patterns)
    plain = jstitch.jit(f, options=jstitch.CompileOptions(tune="off", without=("align_rows",)))
    assert keys == 1 or not any(p.origin == CHAIN for p in plain.plan(*args).patterns)
