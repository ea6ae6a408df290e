"""Rounds of CTAs on a GPU: what adds up columns has whole rounds of them, and the same results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.lower.fill_rounds import EACH, GAIN, fill_rounds
from jstitch.passes.pipeline import run
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.passes.schedule.latency import kernel_latency
from tests.contexts import CPU, H200_PROFILE

SMS = 132
SMALL = replace(H200_PROFILE, program_work=64, partial_rows=1)
"""As many programs for few rows as for many."""


def norm(x: Any, g: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * g


def norm_gradient(d: Any, x: Any, g: Any) -> Any:
    return jax.vjp(norm, x, g)[1](d)


def graph_of(rows: int, width: int, context: Context) -> Graph:
    wide, narrow = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((rows, width), (width,)))
    module = jax.jit(norm_gradient).lower(wide, wide, narrow).compiler_ir("stablehlo")
    return run(import_module(module), context)


def made(rows: int, width: int, profile: Profile, without: tuple[str, ...] = ()) -> tuple[Kernel, Graph]:
    context = Context(CompileOptions(tune="off", without=without), profile)
    graph = graph_of(rows, width, context)
    kernel = best_kernel("norm", graph.ops, graph.inputs, graph.outputs, context)
    return schedule_kernel(kernel, context), graph


def programs(kernel: Kernel) -> int:
    return max(lane.programs for phase in kernel.phases for lane in phase.lanes if lane.rows > 1)


@pytest.mark.parametrize("width", [1024, 8192])
def test_rounds_are_whole(width: int) -> None:
    kernel, _ = made(16384, width, H200_PROFILE)
    usual, _ = made(16384, width, H200_PROFILE, ("templates",))
    context = Context(CompileOptions(tune="off"), H200_PROFILE)
    before, after = (kernel_latency(k, context).seconds for k in (usual, kernel))
    assert programs(usual) == SMS * 3 // 2
    assert programs(kernel) in (programs(usual), *(each * SMS for each in EACH))
    assert after <= before
    assert width < 4096 or programs(kernel) % SMS == 0


def test_of_two_that_fit_one_by_one_none_waits_alone() -> None:
    """Rows so long that a multiprocessor holds one CTA: 198 would be a round and a half."""
    kernel, _ = made(16384, 12000, H200_PROFILE)
    usual, _ = made(16384, 12000, H200_PROFILE, ("templates",))
    context = Context(CompileOptions(tune="off"), H200_PROFILE)
    before, after = (kernel_latency(k, context).seconds for k in (usual, kernel))
    assert programs(kernel) % SMS == 0
    assert after < (1 - GAIN) * before


def test_few_rows_have_as_many_programs_as_ever() -> None:
    kernel, _ = made(64, 4096, H200_PROFILE)
    usual, _ = made(64, 4096, H200_PROFILE, ("templates",))
    assert programs(kernel) == programs(usual) <= 64


def test_a_processor_has_no_rounds() -> None:
    kernel, usual = (made(4096, 256, CPU.profile, without)[0] for without in ((), ("templates",)))
    assert programs(kernel) == programs(usual)


@pytest.mark.parametrize("rows", [265, *(pytest.param(n, marks=pytest.mark.slow) for n in (527, 1000))])
def test_results_are_those_of_the_graph(rows: int) -> None:
    """Rows that are no multiple of the programs."""
    usual, graph = made(rows, 96, SMALL, ("templates",))
    assert usual.template is not None
    rounds = next(fill_rounds(usual.template, SMALL))
    context = Context(CompileOptions(tune="off", template=str(rounds)), SMALL)
    kernel = best_kernel("norm", graph.ops, graph.inputs, graph.outputs, context)
    kernel = schedule_kernel(kernel, context)
    assert not check_kernel(kernel)
    assert programs(kernel) == EACH[0] * SMS
    numbers = np.random.default_rng(rows)
    given = [numbers.standard_normal(v.shape, np.float32) for v in graph.inputs]
    for found, wanted in zip(interpret_kernel(kernel, given), interpret(graph, given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)
