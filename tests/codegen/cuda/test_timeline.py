"""The timeline: ways through machine code are those of the PTX, and the model answers to what it is told."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from jstitch.codegen.cuda.resources import find_tool
from jstitch.codegen.cuda.source import Launch
from jstitch.codegen.cuda.timeline.count_lines import Extent, count_lines
from jstitch.codegen.cuda.timeline.machine_code import machine_code
from jstitch.codegen.cuda.timeline.paths import MOST_STEPS, TooLongError, find_flow
from jstitch.codegen.cuda.timeline.timeline import CEILING, Timeline, timeline
from jstitch.codegen.launch_ir import Parameter
from jstitch.device_spec import find_spec
from jstitch.ir.types import DType
from tests.codegen.cuda.stitched import WHY_NO_PTX, ptx_of
from tests.codegen.cuda.workloads import lowered

MISSING = [tool for tool in ("ptxas", "nvdisasm") if find_tool(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} are not installed")

H200 = find_spec("h200")
FLOAT, SIZE = 4, 1 << 26
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n.extern .shared .align 16 .b8 arena[];\n"
# out[i] = sum of in[i + n * stride] over n turns; `more` is done in each turn, %f2 is the element.
LOOP = """.visible .entry k_f(.param .u64 param_0, .param .u64 param_1)
.reqntid 256, 1, 1
{{
	.reg .pred %p<3>;
	.reg .f32 %f<9>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [param_0];
	ld.param.u64 %rd2, [param_1];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mad.lo.s32 %r3, %r2, 256, %r1;
	mul.wide.u32 %rd3, %r3, {step};
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	mov.f32 %f1, 0f00000000;
	mov.u32 %r4, 0;
L:
	ld.global.f32 %f2, [%rd4];
	{more}
	add.f32 %f1, %f1, %f2;
	add.s64 %rd4, %rd4, {stride};
	add.s32 %r4, %r4, 1;
	setp.lt.u32 %p1, %r4, {turns};
	@%p1 bra L;
	st.global.f32 [%rd5], %f1;
	ret;
}}
"""


def loop(turns: int, stride: int, more: str = "", step: int = FLOAT) -> str:
    return HEAD + LOOP.format(turns=turns, stride=stride, more=more, step=step)


def launch(grid: int, shared_bytes: int = 0) -> Launch:
    arrays = tuple(Parameter(name, "f32", SIZE, "read") for name in "ab")
    return Launch("f", grid, 256, shared_bytes, 64, arrays, 0)


def replayed(text: str, grid: int, spec: object = H200, shared_bytes: int = 0) -> Timeline:
    return timeline(text, "k", launch(grid, shared_bytes), spec)


def extent(grid: int) -> Extent:
    return Extent(grid, 256, 0, (SIZE * FLOAT,) * 2, 1 << 17)


@pytest.mark.parametrize("turns", [1, 2, 7, 61, 64])
def test_a_loop_is_walked_as_often_as_it_turns(turns: int) -> None:
    """However ptxas unrolls it, each warp loads once a turn."""
    text = loop(turns, 1 << 20)
    code, _ = machine_code(text, "sm_90")
    for warp in count_lines(text, "k_f", extent(8), (0, 7)):
        way = find_flow(code).walk({line: n.reached for line, n in warp.lines.items()})
        assert sum(code[n].name == "LDG" for n in way) == turns
        assert sum(code[n].name == "STG" for n in way) == 1
        assert code[way[-1]].name == "EXIT"


def test_what_warps_touch() -> None:
    """128 bytes of each warp are four sectors, one line; with a stride 32, eight. Then they are not fresh."""
    (line,) = [n for n, row in enumerate(loop(1, 1).splitlines(), 1) if "ld.global" in row]
    forms = ((1 << 20, 4, 4, 4, 1), (1 << 20, 32, 32, 32, 8), (0, 4, 4, 1, 1))
    for stride, step, sectors, fresh, passes in forms:
        warp = count_lines(loop(4, stride, step=step), "k_f", extent(2), (1,))[3].lines[line]
        assert (warp.reached, warp.runs, warp.sectors) == (4, 4, 4 * sectors)
        assert (warp.fresh, warp.passes, warp.buffer) == (4 * fresh, 4 * passes, 0)


def test_bank_conflicts_and_barriers_are_counted() -> None:
    more = "shl.b32 %r5, %r1, {}; mov.u32 %r6, arena; add.s32 %r6, %r6, %r5; st.shared.f32 [%r6], %f2; {}"
    for shift, passes in ((2, 1), (3, 2), (7, 32)):
        text = loop(3, 1 << 20, more.format(shift, "\n\tbar.sync 2, 128;").replace(";", ";\n\t"))
        text = text.replace("bar.sync 2", "@%p2 bra B;\n\tbar.sync 2").replace(
            "add.f32 %f1, %f1", "B:\n\tadd.f32 %f1, %f1"
        )
        text = text.replace("L:", "setp.ge.u32 %p2, %r1, 128;\nL:")
        lines = text.splitlines()
        found = count_lines(text, "k_f", replace(extent(1), shared_bytes=1 << 15), (0,))
        stored = next(n for n, row in enumerate(lines, 1) if "st.shared" in row)
        met = next(n for n, row in enumerate(lines, 1) if "bar.sync" in row)
        assert [w.lines[stored].passes for w in found] == [3 * passes] * 8
        assert [w.lines[met].barrier for w in found] == [(2, 4)] * 4 + [None] * 4


def test_a_stream_is_as_fast_as_the_memory() -> None:
    found = replayed(loop(4, 1 << 25), 1 << 14)
    assert found.bound == "DRAM"
    assert 0.9 * CEILING < found.peak <= CEILING
    assert found.dram_bytes == pytest.approx((4 + 1) * FLOAT * 256 * (1 << 14), rel=0.02)
    slower = replayed(loop(4, 1 << 25), 1 << 14, replace(H200, bandwidth=H200.bandwidth / 2))
    assert slower.seconds == pytest.approx(2 * found.seconds, rel=0.05)


def test_what_all_read_comes_from_memory_once() -> None:
    """Every CTA reads the same elements: DRAM has them once, the others find them in L2."""
    text = loop(4, 0).replace("add.s64 %rd4, %rd1, %rd3", "add.s64 %rd4, %rd1, 0")
    one = tuple(Parameter(name, "f32", count, "read") for name, count in (("a", 8), ("b", SIZE)))
    found = timeline(text, "k", Launch("f", 4096, 256, 0, 64, one, 0), H200)
    assert found.dram_bytes == pytest.approx(FLOAT * 256 * 4096, rel=0.02)
    apart = replayed(loop(4, 1 << 22), 4096)
    assert found.seconds < 0.6 * apart.seconds


def test_few_ctas_do_not_fill_the_memory() -> None:
    few, many = replayed(loop(64, 1 << 20), 8), replayed(loop(64, 1 << 20), 132 * 8)
    assert few.peak < 0.1
    assert few.bound in ("latency", "tail")
    assert many.peak > 4 * few.peak
    assert few.places[0].cause == "memory"


def test_arithmetic_bounds_what_does_much_of_it() -> None:
    heavy = replayed(loop(4, 1 << 25, "ex2.approx.f32 %f2, %f2;\n\t" * 24), 1 << 13)
    assert heavy.bound == "special"
    light = replayed(loop(4, 1 << 25), 1 << 13)
    assert heavy.seconds > 2 * light.seconds


def test_occupancy_hides_latency() -> None:
    """An arena of 200 KB leaves one CTA to a multiprocessor."""
    alone, many = replayed(loop(16, 1 << 22), 2048, shared_bytes=200 << 10), replayed(loop(16, 1 << 22), 2048)
    assert alone.ctas_per_sm == 1 < many.ctas_per_sm
    assert alone.seconds > 1.5 * many.seconds


def test_an_uneven_last_round_is_a_tail() -> None:
    """One CTA at a time on a multiprocessor: of two rounds and a half, the half takes as long as one."""
    text = loop(512, 1 << 12, "ex2.approx.f32 %f2, %f2;\n\t" * 4)  # waits that are not for the memory
    one = replayed(text, H200.sms, shared_bytes=200 << 10)
    assert one.ctas_per_sm == 1
    whole, over = (replayed(text, ctas, shared_bytes=200 << 10) for ctas in (264, 264 + 66))
    assert over.seconds > 1.4 * whole.seconds
    assert whole.seconds > 1.8 * one.seconds


def test_what_is_too_long_is_refused() -> None:
    text = loop(4096, 1 << 10)
    code, _ = machine_code(text, "sm_90")
    lines = count_lines(text, "k_f", extent(1), (0,))[0].lines
    counts = {line: 10**7 if n.reached == 4096 else n.reached for line, n in lines.items()}
    with pytest.raises(TooLongError, match=f"{MOST_STEPS:,}"):
        find_flow(code).walk(counts)


@cache
def estimated(name: str) -> list[tuple[Launch, Timeline]]:
    found = []
    for emitted in lowered(name).recorder.emitted.values():
        for one in emitted.source.launches:
            text = ptx_of(emitted.source, one, (H200.capability, H200.ptx_version))
            found.append((one, timeline(text, emitted.source.name, one, H200)))
    return found


@pytest.mark.skipif(WHY_NO_PTX is not None, reason=str(WHY_NO_PTX))
@pytest.mark.parametrize(
    "name",
    [
        *("layer_norm_grad", "cross_entropy_grad", "rope_bf16"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("softmax", "batch_norm", "moving_average")),
    ],
)
def test_kernels_of_the_suite_move_what_they_say(name: str) -> None:
    """Bytes are the launch's own, but for what L2 has; no less time than the memory takes for them."""
    for one, found in estimated(name):
        said = one.bytes_read + one.bytes_written
        buffers = sum(p.elements * DType[p.dtype.upper()].itemsize for p in one.parameters)
        assert 0.7 * min(said, buffers) <= found.dram_bytes <= 1.2 * said + 64 * len(one.parameters)
        assert found.followed > 0.95
        assert found.seconds >= found.dram_bytes / H200.bandwidth
        assert 0 < found.seconds < 1e-3
        shares = [place.share for place in found.places]
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) <= 1 + 1e-9


@pytest.mark.skipif(WHY_NO_PTX is not None, reason=str(WHY_NO_PTX))
def test_other_architectures() -> None:
    for target in ("a100", "sm_100", "sm_120"):
        emitted = next(iter(lowered("rms_norm", target=target).recorder.emitted.values()))
        spec = find_spec(target)
        text = ptx_of(emitted.source, emitted.source.launches[0], (spec.capability, spec.ptx_version))
        assert timeline(text, emitted.source.name, emitted.source.launches[0], spec).seconds > 0
