"""Composition schemes and techniques switched off one by one: more kernels, the same results."""

from __future__ import annotations

from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jstitch
from jstitch.device_spec import find_spec
from jstitch.frontend.target import find_target
from jstitch.ir.ops import lookup
from jstitch.options import SCHEMES, TECHNIQUES, CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.graph.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU, CPU_PROFILE
from tests.passes.random_graphs import Limits, make_graph

EVERYTHING = CompileOptions(tune="off", strict=True)


def block(x: Array, w: Array) -> tuple[Array, Array, Array]:
    """A softmax, and two updates that have nothing to do with it or with each other."""
    return jax.nn.softmax(x * 2.0 + 1.0), jnp.tanh(w) * 2.0, jnp.exp(x[0]) - 1.0


ARGS = (
    jnp.asarray(np.random.default_rng(0).standard_normal((48, 96)), jnp.float32),
    jnp.asarray(np.random.default_rng(1).standard_normal((33, 7)), jnp.float32),
)


def kernels(options: CompileOptions) -> int:
    since = jstitch.record_count()
    results = jstitch.jit(lambda *args: block(*args), options=options)(*ARGS)
    for found, expected in zip(results, jax.jit(block)(*ARGS), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
    return jstitch.stitch_count(since)


def without(*names: str) -> CompileOptions:
    return EVERYTHING.replace(schemes=tuple(s for s in SCHEMES if s not in names))


def test_kernels_with_each_scheme_switched_off() -> None:
    counts = {name: kernels(without(name)) for name in SCHEMES}
    assert kernels(EVERYTHING) == 1
    assert counts["warp"] == 1  # one thread has a row on a CPU: there are no warps
    assert counts["packing"] > 1
    assert counts["block"] >= 2
    assert counts["thread"] >= 3


@pytest.mark.parametrize("name", TECHNIQUES)
def test_techniques_switched_off(name: str) -> None:
    assert kernels(EVERYTHING.replace(without=(name,))) >= 1


def test_remote_fusion_is_of_patterns_with_nothing_in_common() -> None:
    assert kernels(EVERYTHING.replace(without=("remote",))) > kernels(EVERYTHING)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("schemes", [("packing", "thread"), ("packing", "warp", "block"), ()], ids="-".join)
def test_no_edge_needs_a_scheme_that_is_off(seed: int, schemes: tuple[str, ...]) -> None:
    graph = run(make_graph(Random(seed), Limits(ops=14)), CPU)
    plan = plan_frame(graph, Context(EVERYTHING.replace(schemes=schemes), CPU_PROFILE))
    assert not check_plan(plan)
    for pattern in plan.patterns:
        made = {v: op for op in pattern.ops for v in op.results if lookup(op.name).position is None}
        for op in pattern.ops:
            for producer in (made[v] for v in op.operands if v in made and op in pattern.ops):
                constant = not producer.operands
                wanted = {"block"} if is_reduction(producer) else {"thread"}
                assert constant or wanted & set(schemes)


def test_threads_of_a_row_where_a_scheme_is_off() -> None:
    def threads(*names: str) -> tuple[int, int]:
        target = find_target("cuda", without(*names).replace(target=find_spec("h200")))
        assert not isinstance(target, str)
        return target.profile.least_threads, target.profile.most_threads

    assert threads() == (1, 1024)
    assert threads("block") == (1, 32)
    assert threads("warp") == (64, 1024)


@pytest.mark.parametrize("options", [{"without": ("weaving",)}, {"templates": 0}], ids=str)
def test_bad_values(options: dict[str, object]) -> None:
    with pytest.raises(jstitch.JstitchError, match="Expected"):
        CompileOptions(**options)  # type: ignore[arg-type]
