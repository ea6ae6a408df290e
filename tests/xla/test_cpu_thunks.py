"""What XLA:CPU starts: counted, from small modules written by hand."""

from __future__ import annotations

import pytest

from jstitch.xla.cpu_thunks import in_order, is_one_kernel, number_of, parts_of, thunks_a_turn, thunks_of
from jstitch.xla.hlo import Module, parse_module

LOOP = """
%body (s: (s32[], f32[9])) -> (s32[], f32[9]) {
  %s = (s32[], f32[9]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[9]{0} get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[9]{0} tanh(%x)
  ROOT %t = (s32[], f32[9]) tuple(%next, %y)
}

%condition (s: (s32[], f32[9])) -> pred[] {
  %s = (s32[], f32[9]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(614)
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

%loop (s: (s32[], f32[9])) -> (s32[], f32[9]) {
  %s = (s32[], f32[9]) parameter(0)
  ROOT %w = (s32[], f32[9]) while(%s), condition=%condition, body=%body
}
"""
CALL = "call(%s), to_apply=%loop"
WHILE = "while(%s), condition=%condition, body=%body"


def module(entry: str) -> Module:
    return parse_module(
        f"HloModule m\n{LOOP}\nENTRY %main (s: (s32[], f32[9])) -> (s32[], f32[9]) {{\n"
        f"  %s = (s32[], f32[9]) parameter(0)\n  ROOT %f = (s32[], f32[9]) {entry}\n}}\n"
    )


@pytest.mark.parametrize(
    ("entry", "thunks"),
    [
        (WHILE, 2),
        (CALL, 2),
        (CALL + ', frontend_attributes={xla_cpu_small_call="true"}', None),
        ("custom-call(%s), custom_call_target=\"f\"", None),
    ],
)  # fmt: skip
def test_a_turn_starts_what_its_body_holds(entry: str, thunks: int | None) -> None:
    assert thunks_a_turn(module(entry)) == thunks


def test_marks() -> None:
    found = module(CALL + ', frontend_attributes={xla_cpu_small_call="true"}')
    (call,) = thunks_of(found.computations[found.entry])
    assert is_one_kernel(call)
    assert (number_of(call), parts_of(call)) == (None, 1)
    ours = module('custom-call(%s), custom_call_target="j", backend_config={jstitch_number = 12 : i64}')
    (call,) = thunks_of(ours.computations[ours.entry])
    assert (is_one_kernel(call), number_of(call)) == (False, 12)
    split = module('tanh(%s), backend_config={"outer_dimension_partitions":["2"]}')
    (kernel,) = thunks_of(split.computations[split.entry])
    assert parts_of(kernel) == 2


def chain(length: int, elements: int, apart: bool) -> bool:
    """Whether so many kernels run in order that read one another, or all the same argument."""
    reads = ["x" if apart or not n else f"k{n - 1}" for n in range(length)]
    lines = [f"  %k{n} = f32[{elements}]{{0}} tanh(%{name})" for n, name in enumerate(reads)]
    text = "\n".join([*lines[:-1], lines[-1].replace("  %", "  ROOT %")])
    found = parse_module(
        f"ENTRY %main (x: f32[{elements}]) -> f32[{elements}] {{\n"
        f"  %x = f32[{elements}]{{0}} parameter(0)\n{text}\n}}\n"
    )
    scope = found.computations[found.entry]
    return in_order(scope, thunks_of(scope))


def test_few_small_or_dependent_kernels_run_in_order() -> None:
    assert chain(8, 1000, apart=True)
    assert not chain(9, 1000, apart=True)
    assert chain(9, 128, apart=True)
    assert not chain(9, 129, apart=True)
    assert chain(9, 1000, apart=False)
