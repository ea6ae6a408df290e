"""Kernels and bytes counted from HLO text: a hand-made module, and a real one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jstitch.demo.hlo import program_cost, type_bytes

MODULE = """\
HloModule jit_f, entry_computation_layout={(f32[8,4]{1,0})->f32[8]{0}}

%fused (p: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  ROOT %e = f32[8,4]{1,0} exponential(%p)
}

%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %v = f32[8]{0} get-tuple-element(%s), index=1
  %w = f32[8]{0} fusion(%v), kind=kLoop, calls=%fused
  ROOT %t = (s32[], f32[8]{0}) tuple(%i, %w)
}

%cond (c: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]{0}) parameter(0)
  ROOT %k = pred[] constant(true)
}

ENTRY %main (x: f32[8,4]) -> f32[8] {
  %x = f32[8,4]{1,0} parameter(0)
  %f = f32[8,4]{1,0} fusion(%x), kind=kLoop, calls=%fused
  %r = (f32[8]{0}, bf16[8]{0}) custom-call(%f), custom_call_target="jstitch", backend_config={n = 1}
  %g = f32[8]{0} get-tuple-element(%r), index=0
  %z = s32[] constant(0)
  %q = (s32[], f32[8]{0}) tuple(%z, %g)
  %l = (s32[], f32[8]{0}) while(%q), condition=%cond, body=%body
  ROOT %o = f32[8]{0} get-tuple-element(%l), index=1
}
"""


def test_kernels_of_a_module() -> None:
    cost = program_cost(MODULE)
    assert [(k.name, k.opcode, k.nbytes) for k in cost.kernels] == [
        ("f", "fusion", 256),
        ("r", "custom-call", 128 + 32 + 16),
        ("w", "fusion", 64),
    ]
    assert [k.name for k in cost.stitched] == ["r"]
    assert cost.nbytes == 496


def test_a_compiled_program() -> None:
    compiled = jax.jit(lambda x: jnp.sum(jnp.exp(x) * x)).lower(jnp.ones((64, 32))).compile()
    cost = program_cost(compiled.as_text() or "")
    assert cost.kernels
    assert cost.nbytes >= 64 * 32 * 4
    assert cost.stitched == ()


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("f32[8,4]{1,0}", 128),
        ("pred[3]", 3),
        ("bf16[]", 2),
        ("(s8[2], f64[2]{0}, u32[0])", 18),
        ("token[]", 0),
    ],
)
def test_type_bytes(text: str, nbytes: int) -> None:
    assert type_bytes(text) == nbytes


def test_no_entry_is_an_error() -> None:
    with pytest.raises(ValueError, match="ENTRY"):
        program_cost("HloModule empty")
