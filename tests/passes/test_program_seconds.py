"""The time of a program of XLA's, by arithmetic that can be done in the head."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jstitch.codegen.intrinsics import cpu_cpi
from jstitch.ir.graph import Value
from jstitch.ir.ops import lookup
from jstitch.ir.ops.build import elementwise, slice_
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.bandwidth_curve import BandwidthCurve
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.cost.after_slices import after_slices
from jstitch.passes.cost.program_seconds import ProgramSeconds
from jstitch.xla.hlo import Module, parse_module

FREE = BandwidthCurve.level(1e30)
MACHINE = replace(
    Machine(), in_order=1.0, queue=1000.0, queued=10.0, lane_cycle=1e-3, cores=2.0, xla_cycles=1.0,
    lone_bandwidths=FREE, bandwidths=FREE, overlap=0.0,
)  # fmt: skip
TANH = cpu_cpi(lookup("stablehlo.tanh")) * 1e-3 * 2.0  # of one element, on one core


def program(body: str, *, trips: str = "", call: str = "", start: str = "") -> Module:
    loop = f"while(%s), condition=%condition, body=%body{trips}"
    entry = f"call(%s), to_apply=%loop{call}" if call else loop
    tuple_ = "(f32[300], f32[300])"
    return parse_module(f"""HloModule m
%body (s: {tuple_}) -> {tuple_} {{
  %s = {tuple_} parameter(0)
  %x = f32[300]{{0}} get-tuple-element(%s), index=0
{body}
  ROOT %t = {tuple_} tuple(%y, %y)
}}

%condition (s: {tuple_}) -> pred[] {{
  %s = {tuple_} parameter(0)
  ROOT %go = pred[] constant(true)
}}

%loop (s: {tuple_}) -> {tuple_} {{
  %s = {tuple_} parameter(0)
  ROOT %w = {tuple_} {loop}
}}

ENTRY %main (s: {tuple_}) -> {tuple_} {{
  %s = {tuple_} parameter(0)
  ROOT %f = {tuple_} {entry}
}}
""")


KNOWN = ', backend_config={"known_trip_count":{"n":"7"}}'
SMALL = ', frontend_attributes={xla_cpu_small_call="true"}'
ONE = "  %y = f32[300]{0} tanh(%x)"
OURS = '  %y = f32[300]{0} custom-call(%x), custom_call_target="j", backend_config={jstitch_number = 1 : i64}'
THEIRS = '  %y = f32[300]{0} custom-call(%x), custom_call_target="lapack"'


def many(count: int) -> str:
    return "\n".join(f"  %{'y' if not n else f'y{n}'} = f32[300]{{0}} tanh(%x)" for n in range(count))


def test_a_turn_starts_its_kernels_in_order() -> None:
    assert ProgramSeconds(program(ONE, trips=KNOWN), MACHINE).whole == pytest.approx(1 + 7 * (1 + 300 * TANH))


def test_in_one_kernel_nothing_is_started() -> None:
    found = ProgramSeconds(program(ONE, trips=KNOWN, call=SMALL), MACHINE).whole
    assert found == pytest.approx(1 + 7 * 300 * TANH)


def test_turns_that_nobody_knows_are_as_given() -> None:
    assert ProgramSeconds(program(ONE), MACHINE, turns=20).whole == pytest.approx(1 + 20 * (1 + 300 * TANH))


def test_a_queue_costs_and_may_keep_all_cores_busy() -> None:
    for spread in (1.0, 2.0):
        found = ProgramSeconds(program(many(9)), MACHINE, spread=spread).whole
        assert found == pytest.approx(1 + 1000 + 9 * 10 + 9 * 300 * TANH / spread)


def test_a_kernel_divided_among_cores() -> None:
    split = ONE + ', backend_config={"outer_dimension_partitions":["2"]}'
    assert ProgramSeconds(program(split), MACHINE).whole == pytest.approx(2 + 300 * TANH / 2)
    one = ProgramSeconds(program(split, call=SMALL), MACHINE).whole
    assert one == pytest.approx(1 + 300 * TANH)


def test_calls_of_ours_take_what_is_said_and_others_nothing() -> None:
    assert ProgramSeconds(program(OURS), MACHINE, calls=(5.0, 50.0)).whole == pytest.approx(2 + 50)
    assert ProgramSeconds(program(THEIRS), MACHINE).whole == pytest.approx(2)


def test_parts_of_inputs_come_in() -> None:
    x = Value(TensorType((500, 64), DType.F32))
    part = slice_(x, (3, 0), (4, 64), (1, 1))
    op = elementwise("stablehlo.tanh", part.result)
    found = after_slices(FusionPattern((part, op), (x,), (op.result,), "test"))
    assert (found.ops, found.inputs, found.outputs) == ((op,), (part.result,), (op.result,))
