"""Rows that a CTA works on in turn are asked for a row ahead, and results stay what they were."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen import launch_ir
from jstitch.codegen.cuda.check_launch import check_launch
from jstitch.codegen.cuda.ptx.error import PtxError
from jstitch.codegen.cuda.simulate_error import SimulationError
from jstitch.codegen.kernel_ir import Kernel, Prefetch
from jstitch.codegen.launch_ir import LaunchCode, Parameter
from jstitch.device_spec import find_spec
from jstitch.frontend.importer import import_module
from jstitch.frontend.target import cuda_profile
from jstitch.ir.graph import Graph
from jstitch.ir.index import const
from jstitch.ir.interpret import interpret
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from tests.codegen.cuda import ptx_kernels, simulated
from tests.codegen.cuda.stitched import (
    PROFILES,
    WHY_NO_PTX,
    MakeMachine,
    interpreted,
    stitch,
)
from tests.codegen.cuda.stitched import simulated as in_simulator
from tests.contexts import on

Array = jax.Array
MACHINES = {"simulator": in_simulator, "ptx": interpreted}


def layer_norm(x: Array, g: Array, b: Array) -> Array:
    c = x.astype(jnp.float32)
    c = c - c.mean(-1, keepdims=True)
    return (c * jax.lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g + b).astype(x.dtype)


def gradients(x: Array, g: Array, b: Array, upstream: Array) -> tuple[Array, ...]:
    return tuple(jax.vjp(layer_norm, x, g, b)[1](upstream))


def graph_of(rows: int, columns: int, dtype: Any = jnp.float32) -> Graph:
    x, g = jax.ShapeDtypeStruct((rows, columns), dtype), jax.ShapeDtypeStruct((columns,), jnp.float32)
    return import_module(jax.jit(gradients).lower(x, g, g, x).compiler_ir("stablehlo"))


def kernel_of(
    rows: int, columns: int, dtype: Any = jnp.float32, device: str = "h200", **options: Any
) -> Kernel:
    context = on(cuda_profile(find_spec(device)), **options)
    graph = run(graph_of(rows, columns, dtype), context)
    return schedule_kernel(best_kernel("k", graph.ops, graph.inputs, graph.outputs, context), context)


def asked(kernel: Kernel) -> list[Prefetch]:
    return [p for phase in kernel.phases for lane in phase.lanes for s in lane.stages for p in s.prefetches]


def test_both_tensors_of_a_gradient_are_asked_for_whole_rows_ahead() -> None:
    found = asked(kernel_of(16384, 4096, jnp.bfloat16))
    assert [(p.nbytes, p.first, p.last, p.ahead) for p in found] == [(8192, 0, 128, 1)] * 2


def test_nothing_is_asked_for_without_the_pass_or_the_instruction() -> None:
    assert not asked(kernel_of(16384, 4096, without=("prefetch_turns",)))
    assert not asked(kernel_of(16384, 4096, device="a100"))


def test_rows_that_do_not_begin_at_pieces_of_16_bytes_are_not_asked_for() -> None:
    assert not asked(kernel_of(4096, 1021))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("rows", "columns"), [(37, 512), (300, 1024), (19, 2064)])
def test_results_are_the_same(rows: int, columns: int, machine: str) -> None:
    if machine == "ptx" and WHY_NO_PTX:
        pytest.skip(WHY_NO_PTX)
    rng = np.random.default_rng(rows)
    graph = graph_of(rows, columns)
    args = [rng.standard_normal(v.type.shape, np.float32) for v in graph.inputs]
    found = stitch(graph, PROFILES["h200"])
    assert any("prefetch_bulk(" in source.text for source in found.sources)
    made: MakeMachine = MACHINES[machine]
    for ours, theirs in zip(found.run(args, made), interpret(graph, args), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-4)


def test_a_launch_that_asks_for_parts_of_pieces_is_refused() -> None:
    parameter = Parameter("b0", "f32", "read", 64)
    for at, nbytes, fine in ((1, 32, True), (1, 24, False), (0, 0, False)):
        body = (launch_ir.Prefetch("b0", const(at), nbytes),)
        launch = LaunchCode("k", 1, 32, 0, (parameter,), body, 0, 0, 0)
        assert bool(check_launch(launch)) is not fine


@pytest.mark.parametrize(("at", "nbytes", "said"), [(4, 64, "bytes in"), (0, 24, "a constant multiple")])
def test_the_simulator_refuses_what_is_not_there(at: int, nbytes: int, said: str) -> None:
    x = np.zeros(24, np.float32)
    simulated.run("prefetch_bulk(x, 2, 64)", {"x": ("read", x)}, block=32)
    with pytest.raises(SimulationError, match=said):
        simulated.run(f"prefetch_bulk(x, {at}, {nbytes})", {"x": ("read", x)}, block=32)


def test_ptx_that_asks_for_what_is_not_there_is_refused() -> None:
    def asks(nbytes: int) -> str:
        return f"cp.async.bulk.prefetch.L2.global [%rd20], {nbytes};"

    x = np.zeros(24, np.float32)
    ptx_kernels.run(asks(96), x)
    with pytest.raises(PtxError, match="out of bounds: prefetches"):
        ptx_kernels.run(asks(112), x)
