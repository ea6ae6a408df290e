"""In real programs every op keeps a line of the user from import to kernels, whose text quotes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jstitch
from jstitch.demo.model import ModelConfig
from jstitch.demo.training import TrainingConfig, initial_state, train_step
from jstitch.frontend.dump import open_dump
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.observe import Observed, observing
from jstitch.frontend.rewrite import rewrite_graph
from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import KERNEL
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import is_free
from tests.contexts import CPU_PROFILE
from tests.frontend.emitting import Recorder

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
X, ROWS = jnp.ones((32, 64)), jnp.ones(64)


def layer_norm(x: Any, scale: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale


def lstm(x: Any, w: Any) -> Any:
    def cell(state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(jnp.concatenate([x, h]) @ w, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), h

    zeros = jnp.zeros(16)
    return jax.lax.scan(cell, (zeros, zeros), x)[1].sum()


def cross_entropy(x: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1).mean()


def training() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    model = ModelConfig(vocabulary=32, length=16, width=16, heads=2, layers=1)
    config = TrainingConfig(model=model, batch=2)
    tokens = jnp.zeros((2, 17), jnp.int32)
    return (
        lambda state, tokens, key: train_step(config, state, tokens, key),
        (initial_state(config), tokens, jax.random.key(0)),
    )


PROGRAMS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "layer norm": lambda: (jax.grad(lambda x, s: (layer_norm(x, s) ** 3).sum(), (0, 1)), (X, ROWS)),
    "lstm": lambda: (jax.grad(lstm, (0, 1)), (jnp.ones((12, 8)), jnp.ones((24, 64)))),
    "cross entropy": lambda: (jax.grad(cross_entropy), (X, jnp.zeros(32, jnp.int32))),
    "transformer and AdamW": training,
}


def everything(graph: Graph) -> Iterator[Op]:
    """All ops, those inside kernels and other regions too."""
    return (op for op in graph.walk() if not is_free(op))


def observed(f: Callable[..., Any], *args: Any) -> Observed:
    graph = import_module(parse_module(jax.jit(f).lower(*args).as_text(debug_info=True)))
    context = Context(OPTIONS, CPU_PROFILE)
    with observing() as calls:
        rewrite_graph(graph, context, "f", open_dump(context, "f"), Recorder(), donated={})
    (call,) = calls
    return call


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_op_has_a_line(name: str) -> None:
    f, args = PROGRAMS[name]()
    call = observed(f, *args)
    assert call.graph is not None
    assert call.stitched is not None
    assert call.built
    for stage, graph in (("import", call.graph), *((s.name, s.value) for s in call.steps)):
        assert [op.name for op in everything(graph) if not op.loc] == [], stage
    for plan in call.plans:
        assert [op.name for op in everything(plan.frame) if not op.loc] == []
    kernels = [op for op in call.stitched.walk() if op.name == KERNEL]
    assert kernels
    assert all(op.loc for op in kernels)
    for built in call.built:
        stages = [s for p in built.kernel.phases for lane in p.lanes for s in lane.stages]
        assert all(s.lines for s in stages if not s.once), built.name
        quoted = {line for s in stages for line in s.lines[:12]}
        assert any(f"#   {line}" in built.text for line in quoted)
