"""Composition schemes and techniques switched off one by one: more kernels, the same results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jstitch
from jstitch.codegen.backend import Built
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.print_kernel import print_kernel
from jstitch.device_spec import find_spec
from jstitch.errors import OptionError
from jstitch.frontend.dump import open_dump
from jstitch.frontend.importer import import_module
from jstitch.frontend.rewrite import stitch_graph
from jstitch.frontend.target import find_target
from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import KERNEL, OPS, lookup
from jstitch.ir.printer import print_graph
from jstitch.options import OPTIONAL_PASSES, SCHEMES, TECHNIQUES, CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.named_passes import NAMES
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU, CPU_PROFILE, H200_PROFILE, on
from tests.passes.random_graphs import Limits, make_graph
from tests.shares import one_in


class Nothing:
    """A backend that builds nothing."""

    def build(self, kernel: Kernel, cache_dir: str | None) -> Built:
        return Built("", ())


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


def step(x: Array, table: Array) -> tuple[Array, ...]:
    """Something for most passes: windows, loops, an argmax, products, statistics of columns, bf16."""

    def turn(carried: Array, row: Array) -> tuple[Array, Array]:
        made = jnp.tanh(carried * 0.5 + row)
        return made, made.sum()

    def loss(x: Array) -> Array:
        centred = x - x.mean(0)
        return jnp.sum(jnp.sin(centred * jax.lax.rsqrt(jnp.square(centred).mean(0) + 1e-5)))

    pooled = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3), (1, 1), "VALID")
    narrow = jnp.tanh(x.astype(jnp.bfloat16)) * 2
    grads = jax.grad(loss)(x), jax.grad(lambda t: jnp.sum(jnp.square(t[jnp.argmax(x, -1) % 7])))(table)
    both = jax.lax.scan(turn, x[0], x)
    return (*grads, pooled, narrow, jax.nn.softmax(x, 0), jax.nn.softmax(x), x @ x.T + x.sum(-1), *both)


def same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.float64(a), np.float64(b), rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("name", OPTIONAL_PASSES)
def test_programs_are_right_without_each_pass(name: str) -> None:
    args = ARGS[0], jnp.ones((7, 16), jnp.float32)
    options = EVERYTHING.replace(without=(name,), verify=True)
    same(jstitch.jit(lambda *xs: step(*xs), options=options)(*args), jax.jit(step)(*args))


def printed(graph: Graph) -> str:
    """With its kernels, and all numbers of its constants, which are abbreviated in it."""
    kernels = [print_kernel(op.attrs["kernel"]) for op in graph.walk() if op.name == KERNEL]
    constants = [str(op.attrs["value"].tolist()) for op in graph.walk() if "value" in op.attrs]
    return "\n".join([print_graph(graph), *kernels, *constants])


RIGHT: set[str] = set()
"""Programs whose results were compared: many passes change nothing of this one."""


@pytest.mark.parametrize("name", one_in(3, OPTIONAL_PASSES))
def test_kernels_for_a_gpu_are_right_without_each_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are interpreted."""
    args = ARGS[0][:12, :40], jnp.ones((7, 8), jnp.float32)
    context = on(H200_PROFILE, tune="off", verify=True, without=(name,))
    graph = run(import_module(jax.jit(step).lower(*args).compiler_ir("stablehlo")), context)
    made = stitch_graph(graph, context, "k", open_dump(context, "k"), Nothing(), {})

    if printed(made) in RIGHT:
        return

    def run_kernel(op: Op, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return interpret_kernel(op.attrs["kernel"], arrays[: len(op.operands)])

    monkeypatch.setitem(OPS, KERNEL, replace(OPS[KERNEL], reference=run_kernel))
    same(interpret(made, [np.asarray(a) for a in args]), jax.jit(step)(*args))
    RIGHT.add(printed(made))


def test_passes_that_programs_need_are_not_optional() -> None:
    needed = {"gate", "trim_patterns", "restrict_schemes", "divide_phases", "canonicalize", "dce"}
    assert needed.isdisjoint(OPTIONAL_PASSES)
    assert set(OPTIONAL_PASSES) <= set(NAMES)
    assert len({*TECHNIQUES, *OPTIONAL_PASSES}) == len(TECHNIQUES) + len(OPTIONAL_PASSES)
    with pytest.raises(OptionError, match="divide_phases"):
        CompileOptions(without=("divide_phases",))


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
