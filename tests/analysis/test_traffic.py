"""Bytes of one HLO instruction, from small modules written by hand."""

from __future__ import annotations

import pytest

from jstitch.xla.hlo import Array, Module, Operand, parse_module
from jstitch.xla.traffic import Traffic, traffic

REGIONS = """
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}

%second (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  ROOT %b = f32[] parameter(1)
}
"""


def fused(body: str, call: str, parameters: str) -> Module:
    """A module whose entry calls one fusion, named f."""
    return parse_module(
        f"HloModule m\n{REGIONS}\n%c (x: f32[]) -> f32[] {{\n{body}\n}}\n\n"
        f"ENTRY %main (x: f32[]) -> f32[] {{\n{parameters}\n  ROOT %f = {call}\n}}\n"
    )


def cost(module: Module, name: str = "f") -> Traffic:
    scope = module.computations[module.entry]
    return traffic(module, scope, scope.instructions[name])


ROW = "  %x = f32[100,64]{1,0} parameter(0)"


@pytest.mark.parametrize(
    ("body", "call", "expected"),
    [
        pytest.param(  # read twice by the fusion, once from memory
            "  %p = f32[100,64] parameter(0)\n  ROOT %m = f32[100,64] multiply(%p, %p)",
            "f32[100,64]{1,0} fusion(%x), kind=kLoop, calls=%c",
            Traffic(25600, 25600),
            id="elementwise",
        ),
        pytest.param(
            "  %p = f32[100,64] parameter(0)\n  %z = f32[] constant(0)\n"
            "  ROOT %r = f32[100] reduce(%p, %z), dimensions={1}, to_apply=%sum",
            "f32[100]{0} fusion(%x), kind=kInput, calls=%c",
            Traffic(25600, 400),
            id="reduce",
        ),
        pytest.param(
            "  %p = f32[100,64] parameter(0)\n  %e = f32[100,64] exponential(%p)\n"
            "  ROOT %s = f32[10,64] slice(%e), slice={[0:10], [0:64]}",
            "f32[10,64]{1,0} fusion(%x), kind=kLoop, calls=%c",
            Traffic(2560, 2560),
            id="a slice of what is computed",
        ),
        pytest.param(  # both halves: all of it
            "  %p = f32[100,64] parameter(0)\n"
            "  %a = f32[50,64] slice(%p), slice={[0:50], [0:64]}\n"
            "  %b = f32[50,64] slice(%p), slice={[50:100], [0:64]}\n"
            "  ROOT %s = f32[50,64] add(%a, %b)",
            "f32[50,64]{1,0} fusion(%x), kind=kLoop, calls=%c",
            Traffic(25600, 12800),
            id="two slices",
        ),
        pytest.param(
            "  %p = f32[100,64] parameter(0)\n  %n = bf16[100,64] convert(%p)\n"
            "  ROOT %t = (f32[100,64], bf16[100,64]) tuple(%p, %n)",
            "(f32[100,64]{1,0}, bf16[100,64]{1,0}) fusion(%x), kind=kLoop, calls=%c",
            Traffic(25600, 38400),
            id="two results",
        ),
        pytest.param(
            "  %z = f32[] constant(0)\n  ROOT %b = f32[100,64] broadcast(%z), dimensions={}",
            "f32[100,64]{1,0} fusion(), kind=kLoop, calls=%c",
            Traffic(0, 25600),
            id="fill",
        ),
        pytest.param(  # the other result of the reduce is not needed, all of x is
            "  %p = f32[100,64] parameter(0)\n  %i = s32[100,64] iota(), iota_dimension=1\n"
            "  %z = f32[] constant(0)\n  %j = s32[] constant(0)\n"
            "  %r = (f32[100], s32[100]) reduce(%p, %i, %z, %j), dimensions={1}, to_apply=%sum\n"
            "  ROOT %g = s32[100] get-tuple-element(%r), index=1",
            "s32[100]{0} fusion(%x), kind=kInput, calls=%c",
            Traffic(25600, 400),
            id="one result of a variadic reduce",
        ),
    ],
)
def test_a_fusion_moves_what_its_results_need(body: str, call: str, expected: Traffic) -> None:
    assert cost(fused(body, call, ROW)) == expected


UPDATED = """  %p = f32[100,64] parameter(0)
  %u = f32[1,64] parameter(1)
  %i = s32[] parameter(2)
  %z = s32[] constant(0)
  ROOT %d = f32[100,64] dynamic-update-slice(%p, %u, %i, %z)"""
SCATTERED = """  %p = f32[100,64] parameter(0)
  %i = s32[7,1] parameter(1)
  %u = f32[7,64] parameter(2)
  ROOT %d = f32[100,64] scatter(%p, %i, %u), update_window_dims={1}, to_apply=%"""
GATHERED = """  %p = f32[100,64] parameter(0)
  %i = s32[7,1] parameter(1)
  ROOT %g = f32[7,64] gather(%p, %i), offset_dims={1}, slice_sizes={1,64}"""
INPUTS = """  %x = f32[100,64]{1,0} parameter(0)
  %y = f32[1,64]{1,0} parameter(1)
  %k = s32[] parameter(2)
  %n = s32[7,1]{1,0} parameter(3)
  %w = f32[7,64]{1,0} parameter(4)"""


@pytest.mark.parametrize(
    ("body", "operands", "result", "expected"),
    [
        pytest.param(UPDATED, "%x, %y, %k", "f32[100,64]", Traffic(260, 256), id="one row"),
        pytest.param(
            SCATTERED + "second", "%x, %n, %w", "f32[100,64]", Traffic(28 + 1792, 1792), id="scatter"
        ),
        pytest.param(
            SCATTERED + "sum", "%x, %n, %w", "f32[100,64]", Traffic(28 + 2 * 1792, 1792), id="scatter-add"
        ),
        pytest.param(GATHERED, "%x, %n", "f32[7,64]", Traffic(28 + 1792, 1792), id="gather"),
    ],
)
def test_updates_are_in_place_and_gathers_read_rows(
    body: str, operands: str, result: str, expected: Traffic
) -> None:
    assert cost(fused(body, f"{result}{{1,0}} fusion({operands}), kind=kLoop, calls=%c", INPUTS)) == expected


def test_an_update_of_a_computed_array_writes_all_of_it() -> None:
    body = UPDATED.replace("-slice(%p,", "-slice(%e,").replace(
        "  %u =", "  %e = f32[100,64] exponential(%p)\n  %u ="
    )
    call = "f32[100,64]{1,0} fusion(%x, %y, %k), kind=kLoop, calls=%c"
    assert cost(fused(body, call, INPUTS)) == Traffic(25600 + 260, 25600)


def test_instructions_that_are_kernels_themselves() -> None:
    module = parse_module(
        f"""HloModule m
{REGIONS}
ENTRY %main (x: f32[64,32]) -> f32[64,32] {{
  %x = f32[64,32]{{1,0}} parameter(0)
  %y = (f32[32,64]{{1,0}}, s32[8]{{0}}) parameter(1)
  %copy = f32[64,32]{{0,1}} copy(%x)
  %gemm = (f32[64,64]{{1,0}}, s8[4194304]{{0}}) custom-call(%x, %y#0), custom_call_target="__cublas$lt$matmul"
  %ours = (f32[64]{{0}}, u8[512]{{0}}) custom-call(%x), custom_call_target="__gpu$xla.gpu.ptx"
  %twice = f32[64,32]{{1,0}} add(%x, %x)
  ROOT %slice = f32[8,32]{{1,0}} slice(%x), slice={{[0:8], [0:32]}}
}}
"""
    )
    assert cost(module, "copy") == Traffic(8192, 8192)
    assert cost(module, "gemm") == Traffic(16384, 16384)  # without the workspace
    assert cost(module, "ours") == Traffic(8192, 768)
    assert cost(module, "twice") == Traffic(8192, 8192)
    assert cost(module, "slice") == Traffic(1024, 1024)


def test_the_parser_reads_what_xla_prints() -> None:
    module = parse_module(
        """HloModule m, is_scheduled=true
ENTRY %main.1 (x: f32[4]) -> (f32[4], pred[]) {
  %x.1 = f32[4]{0:T(128)S(1)} parameter(0), metadata={op_name="f(x)"}
  %c = s4[3]{0} constant({1, 2, 3})
  %w = (f32[4]{0}, /*index=1*/pred[]) while(%x.1, %x.1#1), condition=%a, body=%b, \
backend_config={"known_trip_count":{"n":"17"}}
  ROOT %s = (f32[4]{0}, pred[]) conditional(%x.1, %w), branch_computations={%r.1, %r.2}
}
"""
    )
    instructions = module.computations["main.1"].instructions
    assert instructions["x.1"].arrays == (Array("f32", (4,)),)
    assert (instructions["c"].nbytes, instructions["c"].argument) == (2, "{1, 2, 3}")
    loop = instructions["w"]
    assert loop.arrays == (Array("f32", (4,)), Array("pred", ()))
    assert loop.operands == (Operand("x.1"), Operand("x.1", 1))
    assert (loop.trips, loop.attribute("body"), loop.root) == (17, "b", False)
    assert module.computations["main.1"].root.branches == ("r.1", "r.2")


def test_text_that_is_no_module_is_refused() -> None:
    with pytest.raises(ValueError, match="ENTRY"):
        parse_module("HloModule m\n")
