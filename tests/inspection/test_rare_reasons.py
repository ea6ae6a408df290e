"""Reasons that need a planner's own options, a module that JAX does not write, or a kernel made by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.cuda.emit import emit
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.device_spec import find_spec
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.inspection.explain import explain_program
from jstitch.inspection.inspected import inspect_module
from jstitch.inspection.remedies import remedy
from jstitch.ir.graph import Graph
from jstitch.passes.explore.plan_ilp import plan_ilp
from jstitch.passes.explore.savings import Savings
from jstitch.passes.fuse.fuse_subgraph import FusionOptions
from jstitch.passes.fuse.plan_layers import plan_layers
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from tests.contexts import CPU, CPU_PROFILE
from tests.passes.random_dags import random_dag
from tests.passes.test_fusion import at_most
from tests.passes.test_plan_ilp import per_op

RULES = {
    *("gave up", "roof", "blocks", "attempts", "not emitable", "candidates", "constant", "lowering", "form")
}
"""Those that this file tests."""

Array = jax.Array
SMALL = jax.ShapeDtypeStruct((64, 64), jnp.float32)
WIDE = jax.ShapeDtypeStruct((4, 1 << 20), jnp.float32)


def graph_of(f: Callable[..., Any], *args: Any) -> Graph:
    return run(import_module(parse_module(jax.jit(f).lower(*args).as_text())), CPU)


def around_a_product(x: Array, w: Array) -> Array:
    y = jnp.exp(x)
    return jnp.tanh(y @ w) + y


def beside_a_product(x: Array, w: Array) -> tuple[Array, Array]:
    return jnp.exp(jnp.sin(jnp.cos(x))), jnp.exp(x @ w)


@pytest.mark.parametrize(
    ("f", "args", "options", "rule", "says"),
    [
        (around_a_product, (SMALL, SMALL), {}, "gave up", "its user stablehlo.dot_general .*is not in the"),
        (beside_a_product, (SMALL, SMALL), {"whole_layer_roof": True}, "roof", "span 1 is not below .* at 1"),
        (
            *(lambda x: jnp.exp(jnp.sum(x * 2, 1)), (WIDE,), {}),
            *("blocks", "4 blocks for 4194304 elements, at least 8 needed"),
        ),
        (
            *(lambda x: jnp.exp(jnp.sin(jnp.exp(x))), (SMALL,), {"max_ops": 2}),
            *("size", "one kernel would have 3 ops, the bound is 2"),
        ),
    ],
)
def test_reasons_of_the_layers(
    f: Callable[..., Any], args: Any, options: dict[str, Any], rule: str, says: str
) -> None:
    plan = plan_layers(graph_of(f, *args), FusionOptions(**options))
    (found,) = {r.why for r in plan.refusals if r.rule == rule}
    assert re.search(says, str(found))
    assert "{" not in remedy(found)
    if options:  # without them, nothing is in the way
        assert rule not in {r.rule for r in plan_layers(graph_of(f, *args)).refusals}


def test_what_no_kernel_holds() -> None:
    graph = graph_of(lambda x: jnp.exp(jnp.sin(jnp.exp(x))), SMALL)
    plan = plan_layers(graph, FusionOptions(footprint=0), at_most(2))
    assert {r.rule for r in plan.refusals} == {"not emitable"}


def test_growth_that_never_ends_well() -> None:
    def wide(x: Array) -> Array:
        return jnp.concatenate([jnp.exp(x[n]) for n in range(24)])

    plan = plan_layers(graph_of(wide, SMALL), FusionOptions(footprint=0), at_most(2))
    (stopped,) = {r.why for r in plan.refusals if r.rule == "attempts"}
    assert str(stopped) == "growth stopped after 8 of 8 attempts"
    assert "split the function" in remedy(stopped)


def test_edges_that_no_candidate_holds() -> None:
    plan = plan_ilp(random_dag(Random(11), 100), CPU, Savings(per_op))
    (found,) = {str(r.why) for r in plan.refusals if r.rule == "candidates"}
    assert found == "0 of the patterns that were explored hold both"


def test_large_constants_of_modules_are_inputs() -> None:
    numbers = ", ".join(f"{n}.5" for n in range(64))
    text = f"""func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {{
        %c = stablehlo.constant dense<[{numbers}]> : tensor<64xf32>
        %0 = stablehlo.multiply %x, %c : tensor<64xf32>
        return %0 : tensor<64xf32>
    }}"""
    options = jstitch.CompileOptions(target="cpu", tune="off")
    made = explain_program("main", inspect_module(parse_module(text), options))
    (edge,) = made.edge("constant", "multiply")
    assert edge.why is not None
    assert (edge.why.rule, edge.why.found, edge.why.bound) == ("constant", 64, 16)


def test_ops_that_a_kernel_cannot_hold_are_named() -> None:
    graph = graph_of(lambda x: x.at[x.astype(int)].add(x), jax.ShapeDtypeStruct((64,), np.float32))
    with pytest.raises(CannotLowerError, match=r"stablehlo\.scatter") as raised:
        lower_kernel("sorted", graph.ops, graph.inputs, graph.outputs, CPU_PROFILE)
    assert raised.value.reason.rule == "lowering"
    assert "jstitch ops" in remedy(raised.value.reason)


def test_kernels_that_a_backend_has_no_form_for() -> None:
    graph = graph_of(lambda x: jnp.exp(x.sum(1)).sum(1), jax.ShapeDtypeStruct((8, 64, 512), np.float32))
    for_a_cpu = lower_kernel("sums", graph.ops, graph.inputs, graph.outputs, CPU_PROFILE)
    with pytest.raises(NoRoom, match="was not lowered for CUDA") as raised:
        emit(for_a_cpu, find_spec("h200").shared_optin)
    assert raised.value.reason.rule == "form"
    assert "split the function" in remedy(raised.value.reason)
