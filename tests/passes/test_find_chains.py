"""Chains of products in one kernel of the CPU: found in plain code, and as float64 has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.passes.base.plan import is_free, make_pattern
from jstitch.passes.cost.cost_model import work_of_levels
from jstitch.passes.fuse.find_chains import CHAIN, Chains, find_chains
from jstitch.passes.fuse.judge_chain import WAITS, _kernel_seconds
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from tests.contexts import CPU_PROFILE, H200_PROFILE, on
from tests.passes.chain_programs import Array, close, program
from tests.passes.test_own_columns import graph_of
from tests.shares import one_in


@pytest.mark.parametrize("seed", one_in(5, range(60)))
def test_drawn_chains_are_one_kernel(seed: int) -> None:
    """The kernel is right to the check of kernels and the interpreter, and on this machine."""
    f, args = program(seed)
    context = on(CPU_PROFILE, tune="off")
    graph = graph_of(f, args, context)
    (pattern,) = find_chains(graph, context).patterns
    what = pattern.ops, pattern.inputs, pattern.outputs
    kernel = schedule_kernel(lower_kernel("chain", *what, context.profile), context)
    assert check_kernel(kernel) == ()
    assert kernel.products == 2
    if pattern.outputs == graph.outputs and list(pattern.inputs) == list(graph.inputs):
        close(interpret_kernel(kernel, [a.copy() for a in args]), f, args)
    jitted = jstitch.jit(f, options=jstitch.CompileOptions(tune="off", strict=True, verify=True))
    close(jax.tree.leaves(jitted(*args)), f, args)
    assert f"by {CHAIN}" in str(jstitch.explain(f, options=jstitch.CompileOptions(tune="off"))(*args))


@pytest.mark.parametrize("options", [{"without": ("chains",)}, {"planner": "fs2018"}, {"planner": "fs2021"}])
def test_without_chains(options: dict[str, Any]) -> None:
    f, args = program(0)
    context = on(CPU_PROFILE, tune="off", **options)
    assert find_chains(graph_of(f, args, context), context) == Chains()


def test_chains_that_no_cache_holds_stay_with_the_library() -> None:
    """Every step would pack all weights again: 64 rows for each time."""
    shapes = (4096, 1024), (1024, 4096), (4096, 1024)
    graph = graph_of(
        lambda x, up, down: jax.nn.gelu(x @ up) @ down,
        [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        on(CPU_PROFILE),
    )
    assert find_chains(graph, on(CPU_PROFILE)).patterns == ()
    assert len(find_chains(graph, on(CPU_PROFILE, tune="off")).patterns) == 1


def layer(x: Array, w: Array, biases: Array, heads: Array) -> Array:
    """As layers of flax and Hugging Face are: one product, biases, heads behind lengths, a mask of heads."""
    parts = zip(jnp.split(x @ w, 3, -1), biases, strict=True)
    q, k, v = (part.reshape(*x.shape[:2], 4, -1) + bias for part, bias in parts)
    p = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q / 4, k))
    p = jnp.einsum("bhqk,h->bhqk", p, heads)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(x.shape)


def test_powers_of_few_columns_stay_xlas() -> None:
    """No vector is made of three columns, so each power takes as long as a vector of them."""
    graph = graph_of(
        lambda x, m: 1.055 * jnp.clip(x @ m.T, 0.0, 1.0) ** (1 / 2.4) - 0.055,
        [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((173520, 3), (3, 3))],
        on(CPU_PROFILE),
    )
    found = find_chains(graph, on(CPU_PROFILE))
    assert found.patterns == ()
    assert any("instruction by instruction" in str(why) for why in found.refused.values())


@pytest.mark.parametrize("rows", [256, 197])
@pytest.mark.parametrize(("target", "kind"), [("cpu", jnp.float32), ("h200", jnp.bfloat16)])
def test_what_makes_operands_stays_outside_where_rows_would_wait(target: str, kind: Any, rows: int) -> None:
    shapes = (2, rows, 128), (128, 384), (3, 4, 32), (4,)
    args = [jax.ShapeDtypeStruct(shape, kind) for shape in shapes]
    story = jstitch.explain(layer, options=jstitch.CompileOptions(target=target))(*args)
    assert f"by {CHAIN}" in str(story)


def test_a_layer_s_numbers() -> None:
    numbers = np.random.default_rng(0)
    shapes = (2, 67, 128), (128, 384), (3, 4, 32), (4,)
    args = [numbers.standard_normal(shape).astype(np.float32) / 4 for shape in shapes]
    jitted = jstitch.jit(layer, options=jstitch.CompileOptions(tune="off"))
    np.testing.assert_allclose(jitted(*args), jax.jit(layer)(*args), rtol=1e-4, atol=1e-5)


def test_every_product_outside_a_chain_has_its_reason() -> None:
    """By what keeps it out: its type, that it is alone, its rows, the gate."""

    def reasons(
        f: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = jnp.float32, **more: Any
    ) -> list[str]:
        args = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
        story = jstitch.explain(f, options=jstitch.CompileOptions(**more))(*args)
        products = [e for e in story.open_edges if "dot_general" in f"{e.producer} {e.consumer}"]
        return sorted({e.why.rule for e in products if e.why is not None})

    def attention(q: Array, k: Array, v: Array) -> Array:
        return jax.nn.softmax(q @ k.T) @ v

    square = (512, 64), (512, 64), (512, 64)
    prime = (1021, 64), (521, 64), (521, 64)
    assert reasons(attention, *square, dtype=jnp.float16) == ["product"]
    assert reasons(lambda x, w: jnp.tanh(x) @ w, (512, 64), (64, 64)) == ["alone"]
    assert reasons(lambda x, w: jnp.tanh(x @ w) * 2, (512, 64), (64, 64)) == []
    assert reasons(attention, *prime, tune="off") == []
    assert reasons(attention, *prime[:1], (8192, 64), (8192, 64), tune="off") == ["tiles"]
    assert reasons(lambda a, b, c: jnp.tanh(a @ b) @ c, (4096, 1024), (1024, 4096), (4096, 1024)) == ["gate"]
    assert reasons(attention, *square, without=("chains",)) == ["contraction"]
    assert reasons(attention, *square) == []


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_rows_that_wait_for_totals_are_told_before_anything_is_lowered(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight's gradient behind two products: it is a sum over all rows."""

    def lowered(*_: object, **__: object) -> None:
        raise AssertionError("the chain was lowered")

    def gradient(x: Array, w: Array, v: Array) -> Array:
        hidden = jnp.tanh(x @ w)
        return x.T @ (hidden * jnp.sum(hidden @ v, axis=1, keepdims=True))

    monkeypatch.setattr("jstitch.passes.fuse.judge_chain.lower_kernel", lowered)
    context = on(CPU_PROFILE if target == "cpu" else H200_PROFILE)
    args = [np.zeros(shape, np.float32) for shape in ((512, 64), (64, 64), (64, 64))]
    graph = graph_of(gradient, args, context)
    pattern = make_pattern(graph, graph.ops, CHAIN)
    assert work_of_levels(pattern, context.profile)[1:]
    assert _kernel_seconds(pattern, context) == WAITS


def network(x: Array, weights: Any) -> Array:
    """Layers of attention and of two products: a chain may end where another one's operands begin."""

    def normed(x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    for qkv, out, up, down in weights:
        heads = (*x.shape[:2], 2, x.shape[2] // 2)
        q, k, v = (part.reshape(heads) for part in jnp.split(normed(x) @ qkv, 3, -1))
        p = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(x.shape) @ out
        x = x + jax.nn.gelu(normed(x) @ up) @ down
    return x.mean(1)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("width", [64, 200])
@pytest.mark.parametrize(("batch", "length"), [(1, 50), (2, 128), (8, 32)])
@pytest.mark.parametrize("tune", ["off", "model"])
def test_chains_of_layers_share_no_op(tune: Any, batch: int, length: int, width: int, depth: int) -> None:
    sizes = (3 * width, width, 2 * width, width)
    inputs = (width, width, width, 2 * width)
    weights = [[jax.ShapeDtypeStruct(s, jnp.float32) for s in zip(inputs, sizes, strict=True)]] * depth
    context = on(CPU_PROFILE, tune=tune)
    args = [jax.ShapeDtypeStruct((batch, length, width), jnp.float32), weights]
    patterns = find_chains(graph_of(network, args, context), context).patterns
    held = [op for pattern in patterns for op in pattern.ops if not is_free(op)]
    assert len(set(held)) == len(held)
    assert patterns or tune == "model"
