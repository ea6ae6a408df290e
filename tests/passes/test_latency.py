"""The latency-evaluator: what must be dearer is, latencies add, measured kernels come in the right order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.latency import spearman
from benchmarks.lone_kernels import kernels_of
from benchmarks.zoo import Case, cases, struct
from jstitch.codegen.cuda.build import build
from jstitch.codegen.cuda.emit import emit
from jstitch.codegen.cuda.homes import find_homes
from jstitch.codegen.cuda.live_values import live_registers
from jstitch.codegen.cuda.registers import estimate_registers
from jstitch.codegen.kernel_ir import Kernel, Let, Loop, Nest
from jstitch.device_spec import find_spec
from jstitch.frontend.target import cuda_profile
from jstitch.ir.expr import Const, Number, Ref, call
from jstitch.ir.index import Var, add, const, floordiv, mul, var
from jstitch.ir.types import DType
from jstitch.passes.base import profile
from jstitch.passes.base.bandwidth_curve import BandwidthCurve
from jstitch.passes.base.machine import Machine
from jstitch.passes.schedule.latency import Latency, kernel_latency
from jstitch.passes.schedule.latency_gpu import WarpWork, launch_latency, thread_work
from jstitch.passes.schedule.nest_work import Way, count, expr_cycles
from tests.contexts import CPU, CPU_PROFILE, on

H200 = find_spec("h200")
GPU = cuda_profile(H200)
TIMES = json.loads((Path(__file__).parent / "latency_times.json").read_text())["seconds"]


def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x)


def kernel(
    function: Callable[..., Any],
    *shape: int,
    dtype: Any = jnp.float32,
    args: int = 1,
    target: profile.Profile = CPU_PROFILE,
) -> Kernel:
    """The only kernel of a function, lowered for that target."""
    types = (struct(shape, dtype),) * args
    (found,) = kernels_of(Case("case", function, types), target).values()
    return found


def on_cpu(function: Callable[..., Any], *shape: int, dtype: Any = jnp.float32) -> Latency:
    return kernel_latency(kernel(function, *shape, dtype=dtype), CPU)


def on_gpu(function: Callable[..., Any], *shape: int, args: int = 1) -> Latency:
    return kernel_latency(kernel(function, *shape, args=args, target=GPU), on(GPU))


# -- what is counted ------------------------------------------------------------------------------------


def test_a_nest_is_counted_by_class() -> None:
    found = kernel(lambda x: jnp.exp(x) * 2.0 + x, 4096)
    ((nest,),) = (stage.nests for stage in found.phases[0].lanes[0].stages)
    work = count(nest, rows=4096)
    assert work.inner == 4096 * (8 + 1 + 1 + 1 + 1)  # exp; multiply, add; load, store
    assert (work.turns, work.lane_bytes, work.reduced) == (4096, 4, 0)
    assert [(a.way, a.times, a.distinct) for a in work.accesses] == [(Way.NEXT, 4096, 4096)] * 2


def test_accesses_know_their_way() -> None:
    found = kernel(lambda x: x.T * 2.0, 64, 48)
    nests = [n for lane in found.phases[0].lanes for stage in lane.stages for n in stage.nests]
    ways = {(a.store, a.way, a.stride) for nest in nests for a in count(nest).accesses}
    assert ways == {(False, Way.FAR, 48), (True, Way.NEXT, 1)}


def test_divisions_cost_what_a_division_does() -> None:
    a, b, seven, i = Ref("v0"), Ref("v1"), Const(7, DType.S32), var(Var("i", 100))
    assert expr_cycles(call("idiv", a, b)) > expr_cycles(call("iadd", a, b))
    assert expr_cycles(Number(floordiv(i, 3))) > expr_cycles(Number(mul(i, 3)))
    by_number = expr_cycles(call("irem", a, seven))
    assert by_number == expr_cycles(Number(floordiv(i, 7))) < expr_cycles(call("irem", a, b))


def test_instructions_outside_the_innermost_loop_run_less_often() -> None:
    loops = (Loop(Var("i", 8), 0, 8), Loop(Var("j", 32), 0, 32))
    below, twice = Number(add(var(loops[0].var), const(1))), call("mul", Ref("v0"), Ref("v0"))
    work = count(Nest(loops, (), (Let("v0", below, 1), Let("v1", twice, 2)), ()))
    assert (work.outer, work.inner, work.loops) == (8, 8 * 32, 8)


# -- curves ---------------------------------------------------------------------------------------------


def test_a_curve_is_interpolated_on_logarithms() -> None:
    curve = BandwidthCurve(((2.0**15, 120e9), (2.0**25, 20e9)))
    assert curve.at(2**20) == pytest.approx((120e9 * 20e9) ** 0.5)
    assert (curve.at(1), curve.at(2**40)) == (120e9, 20e9)
    assert curve.seconds(1e9, in_use=1.0) == pytest.approx(1 / 120)


@pytest.mark.parametrize("points", [(), ((2.0, 1e9), (1.0, 1e9)), ((1.0, 0.0),), ((-1.0, 1e9),)])
def test_points_that_are_no_curve(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="expected points by bytes"):
        BandwidthCurve(points)


# -- CPU ------------------------------------------------------------------------------------------------


def test_latencies_add() -> None:
    a, b = (
        on_cpu(softmax, 64, 64),
        on_cpu(jnp.exp, 4096),
    )
    assert (a + b).seconds == pytest.approx(a.seconds + b.seconds)
    assert (a + Latency()) == a
    assert a.seconds == pytest.approx(a.compute + a.memory - a.hidden + a.launches)


@pytest.mark.parametrize("rows", [16, 256, 4096, 16384])
def test_more_rows_take_longer(rows: int) -> None:
    few, many = (on_cpu(softmax, n, 128) for n in (rows, 2 * rows))
    assert few.seconds < many.seconds
    assert many.nbytes == pytest.approx(2 * few.nbytes)


def test_more_ops_take_longer_and_dear_ones_longer_still() -> None:
    functions = (lambda x: x * 2.0, lambda x: x * x * x * x + x, jnp.exp, lambda x: jnp.sin(jnp.exp(x)))
    times = [on_cpu(f, 8192).compute for f in functions]
    assert times == sorted(times)
    assert times[-1] > 10 * times[0]


def test_fewer_bytes_take_less_memory_time() -> None:
    wide = on_cpu(lambda x: x * 2.0, 1 << 24)
    narrow = on_cpu(lambda x: x * 2.0, 1 << 24, dtype=jnp.float16)
    assert narrow.memory < 0.6 * wide.memory


def test_a_transpose_moves_whole_lines() -> None:
    functions = (lambda x: x * 2.0, lambda x: x.T * 2.0)
    straight, turned = (on_cpu(f, 4096, 4096) for f in functions)
    assert turned.memory > 4 * straight.memory


def test_small_kernels_are_their_call() -> None:
    tiny = on_cpu(lambda x: x * 2.0, 16)
    assert tiny.launches > 0.9 * tiny.seconds


def test_slower_machines_are_slower() -> None:
    one = kernel(softmax, 4096, 512)
    usual = kernel_latency(one, CPU)
    slow = replace(Machine(), lane_cycle=2 * Machine().lane_cycle)
    assert kernel_latency(one, on(replace(CPU_PROFILE, machine=slow))).compute == pytest.approx(
        2 * usual.compute
    )
    alone = replace(Machine(), cores=1.0, lane_cycle=2 * Machine().lane_cycle)
    assert kernel_latency(one, on(replace(CPU_PROFILE, machine=alone))).compute == pytest.approx(
        2 * usual.compute
    )


def test_measured_kernels_come_in_order() -> None:
    """Times recorded on a machine like the default one: 120 kernels of all kinds and sizes."""
    wanted = {name.rpartition(" #")[0] for name in TIMES}
    made = [kernels_of(case, CPU_PROFILE) for case in cases() if case.name in wanted]
    kernels = {name: found for each in made for name, found in each.items()}
    names = [name for name in TIMES if name in kernels]
    assert len(names) >= 100
    model = {name: kernel_latency(kernels[name], CPU).seconds for name in names}
    assert spearman(TIMES, model, names) >= 0.95


# -- GPU ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [2048, 8192, 16384])
def test_more_rows_take_longer_on_a_gpu(rows: int) -> None:
    assert on_gpu(softmax, rows, 128).seconds < on_gpu(softmax, 4 * rows, 128).seconds


def test_more_ops_take_longer_on_a_gpu() -> None:
    assert on_gpu(jnp.exp, 1 << 22).compute > on_gpu(lambda x: x * 2.0, 1 << 22).compute > 0


def test_lower_occupancy_takes_longer() -> None:
    launch = emit(kernel(softmax, 16384, 512, target=GPU), H200.shared_optin).made.codes[0]
    work = WarpWork(1e7, 1e6, 32)
    usual = launch_latency(work, launch, GPU.machine, H200)
    many_registers = launch_latency(replace(work, registers=255), launch, GPU.machine, H200)
    much_shared = replace(launch, shared_bytes=H200.shared_optin)
    assert many_registers.compute > usual.compute
    assert launch_latency(work, much_shared, GPU.machine, H200).compute > usual.compute


@pytest.mark.skipif(util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed: no PTX")
@pytest.mark.parametrize(
    "function", [softmax, lambda x: jnp.exp(x) * 2.0, lambda x: x - jnp.mean(x, -1)[:, None]]
)
def test_registers_are_close_to_those_of_the_ptx(function: Callable[..., Any]) -> None:
    lowered = kernel(function, 4096, 1024, target=GPU)
    source = emit(lowered, H200.shared_optin).source
    (text,) = build(source, H200)
    homes = find_homes(lowered.phases[0].lanes[0], H200.shared_optin, source.launches[0].block)
    assert 0.5 <= live_registers(homes) / estimate_registers(text) <= 2.0


def test_rows_that_are_read_again_are_dearer() -> None:
    """A million numbers fit neither registers nor shared memory: later passes read them again."""
    short, long = on_gpu(softmax, 4096, 2048), on_gpu(softmax, 8, 1 << 20)
    assert long.nbytes > 1.4 * short.nbytes
    assert long.seconds > 1.4 * short.seconds


def test_phases_are_launches_on_a_gpu() -> None:
    columns = on_gpu(lambda x: jnp.sum(x, 0), 8192, 256)
    assert columns.launches == pytest.approx(2 * H200.launch_seconds)


def test_three_phases_in_two_launches() -> None:
    """Statistics of columns that the rows' launch combines itself (`in_strips`)."""
    norm = kernel(lambda x: (x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5), 16384, 256, target=GPU)
    found = kernel_latency(norm, on(GPU))
    emitted = emit(norm, H200.shared_optin)
    assert (len(norm.phases), len(emitted.made.phases)) == (2, 2)
    assert found.launches == pytest.approx(2 * H200.launch_seconds)
    assert found.nbytes == sum(x.bytes_read + x.bytes_written for x in emitted.source.launches)
    columns, rows = (
        thread_work(*both, H200) for both in zip(emitted.made.phases, emitted.made.codes, strict=True)
    )
    assert 0 < rows.cycles < 20 * columns.cycles
    assert min(columns.registers, rows.registers) > 18
