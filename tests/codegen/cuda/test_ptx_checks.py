"""Defects that the PTX interpreter must find, each with a message that says who, where and why."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ptx_kernels import HEAD, kernel, run

from jstitch.codegen.cuda.ptx import Counts, PtxError, run_ptx

ARENA = ".extern .shared .align 16 .b8 arena[];"
WHERE = """
    mov.u32 %r1, arena; mad.lo.u32 %r2, %r31, 4, %r1; xor.b32 %r3, %r31, {other}; mad.lo.u32 %r3, %r3, 4, %r1;
    mad.wide.u32 %rd1, %r30, 4, %rd20;
"""


def shared(steps: str, other: int = 32, block: int = 64, grid: int = 2) -> tuple[Counts, np.ndarray]:
    """Run steps: %r2 and %r3 are this thread's and another one's word of the arena; results go to %r4."""
    out = np.zeros(grid * block, "u4")
    body = WHERE.format(other=other) + steps + "\n st.global.u32 [%rd1], %r4;"
    return run(body, out, grid=grid, block=block, shared=1024, outside=ARENA), out


def test_the_right_order_passes() -> None:
    _, out = shared("st.shared.u32 [%r2], %r31; bar.sync 0; ld.shared.u32 %r4, [%r3];")
    assert (out == np.tile(np.arange(64) ^ 32, 2)).all()


def test_dropped_barrier_between_write_and_read() -> None:
    with pytest.raises(
        PtxError, match=r"race: reads what thread 32 of CTA 0 at line .* wrote, no barrier"
    ) as found:
        shared("st.shared.u32 [%r2], %r31; ld.shared.u32 %r4, [%r3];")
    assert (found.value.thread, found.value.cta, found.value.buffer) == (0, 0, "shared memory")
    assert "ld.shared.u32" in str(found.value)


def test_dropped_barrier_between_read_and_write() -> None:
    steps = "st.shared.u32 [%r2], %r31; bar.sync 0; ld.shared.u32 %r4, [%r3]; {} st.shared.u32 [%r2], 5;"
    with pytest.raises(PtxError, match=r"race: writes where thread 32 of CTA 0 .* read"):
        shared(steps.format(""))
    shared(steps.format("bar.sync 0;"))


def test_a_broadcast_is_read_by_everybody() -> None:
    steps = "st.shared.u32 [%r2], %r31; bar.sync 0; ld.shared.u32 %r4, [arena]; st.shared.u32 [%r2], 5;"
    with pytest.raises(PtxError, match=r"race: writes where thread .* and others read") as found:
        shared(steps)
    assert found.value.thread == 0


def test_dropped_warp_barrier() -> None:
    steps = "st.shared.u32 [%r2], %r31; {} ld.shared.u32 %r4, [%r3];"
    with pytest.raises(PtxError, match="race: reads what thread 1 of CTA 0"):
        shared(steps.format(""), other=1)
    shared(steps.format("bar.warp.sync -1;"), other=1)
    with pytest.raises(PtxError, match="race: reads what thread 32"):
        shared(steps.format("bar.warp.sync -1;"), other=32)


def test_a_teams_barrier_orders_the_team_only() -> None:
    steps = "shr.u32 %r5, %r31, 6; st.shared.u32 [%r2], %r31; bar.sync %r5, 64; ld.shared.u32 %r4, [%r3];"
    shared(steps, other=32, block=128)
    with pytest.raises(PtxError, match="race: reads what thread 64"):
        shared(steps, other=64, block=128)


def test_overlapping_tiles() -> None:
    steps = """
        st.shared.u32 [%r2], %r31; add.u32 %r5, %r2, {};
        ld.shared.u32 %r4, [%r2]; st.shared.u32 [%r5], %r4; bar.sync 0; ld.shared.u32 %r4, [%r3];
    """
    shared(steps.format(256))
    with pytest.raises(PtxError, match=r"race: (reads|writes where) .*shared memory \+ "):
        shared(steps.format(240))


def test_lanes_of_a_warp_write_one_word() -> None:
    shared("st.shared.u32 [arena], 7; bar.sync 0; ld.shared.u32 %r4, [arena];", block=32)
    with pytest.raises(PtxError, match="lanes of one warp write different values"):
        shared("st.shared.u32 [arena], %r31; mov.u32 %r4, 0;", block=32)
    with pytest.raises(PtxError, match=r"race: writes where thread .* writes too"):
        shared("st.shared.u32 [arena], 7; mov.u32 %r4, 0;", block=64)


def test_uninitialised_shared_memory() -> None:
    with pytest.raises(PtxError, match=r"reads memory that nobody has written \(shared memory \+ 128\)"):
        shared("st.shared.u32 [%r2], 1; bar.sync 0; ld.shared.u32 %r4, [%r2+128];", block=32)


def test_arena_bound() -> None:
    with pytest.raises(
        PtxError, match=r"out of bounds: writes 4 bytes at shared memory \+ 1024, past its end"
    ) as e:
        shared("mov.u32 %r4, 0; st.shared.u32 [%r2+900], 1;")
    assert e.value.thread == 31


COPY = """
    mad.wide.u32 %rd1, %r30, 4, %rd20; mad.wide.u32 %rd2, %r30, 4, %rd21;
    ld.global.nc.f32 %f1, [%rd1{read}]; st.global.f32 [%rd2{write}], %f1;
"""


def copy(read: str = "", write: str = "", size: int = 64) -> np.ndarray:
    a, out = np.arange(size, dtype="f4"), np.zeros(64, "f4")
    run(COPY.format(read=read, write=write), a, out, grid=2)
    return out


def test_off_by_one_bounds() -> None:
    assert (copy() == np.arange(64)).all()
    message = r"line \d+, thread 31 of CTA 1: out of bounds: "
    message += r"reads 4 bytes at buffer 0 \+ 256, past its end \(256 bytes\)"
    with pytest.raises(PtxError, match=message) as found:
        copy(read="+4")
    assert (found.value.address, found.value.buffer) == ((1 << 36) + 256, "buffer 0")
    with pytest.raises(
        PtxError, match="thread 0 of CTA 0: out of bounds: writes 4 bytes at buffer 1 - 4, before its start"
    ):
        copy(write="+-4")
    with pytest.raises(PtxError, match="thread 31 of CTA 1: out of bounds: reads"):
        copy(size=63)


def test_wild_and_null_addresses() -> None:
    out = np.zeros(4, "u4")
    with pytest.raises(PtxError, match="writes 4 bytes at 0x10, which is in no buffer"):
        run("mov.u64 %rd1, 16; st.global.u32 [%rd1], 0;", out)
    with pytest.raises(PtxError, match="in no buffer"):
        run("mov.u64 %rd1, 16; ld.u32 %r1, [%rd1];", out)


def test_misaligned_vector() -> None:
    a, out = np.zeros(256, "f4"), np.zeros(256, "f4")
    body = """
        mad.wide.u32 %rd1, %r30, {}, %rd20; mad.wide.u32 %rd2, %r30, 16, %rd21;
        ld.global.nc.v4.f32 {{%f1, %f2, %f3, %f4}}, [%rd1]; st.global.v4.f32 [%rd2], {{%f1, %f2, %f3, %f4}};
    """
    assert run(body.format(16), a, out).vector_accesses == 64
    with pytest.raises(
        PtxError, match=r"thread 1 of CTA 0: misaligned: reads 16 bytes at buffer 0 \+ 4, no multiple"
    ):
        run(body.format(4), a, out)


def test_wrong_vector_width() -> None:
    a, out = np.zeros(64, "f4"), np.zeros(128, "f4")
    body = "mad.wide.u32 %rd2, %r30, 8, %rd21; st.global.v4.f32 [%rd2], {%f1, %f1, %f1, %f1};"
    with pytest.raises(PtxError, match="misaligned: writes 16 bytes"):
        run(body, a, out)


def test_constant_cache_of_written_memory() -> None:
    a = np.zeros(32, "f4")
    body = "mad.wide.u32 %rd1, %r30, 4, %rd20; {}"
    load, store = "ld.global.nc.f32 %f1, [%rd1];", "st.global.f32 [%rd1], 0f00000000;"
    with pytest.raises(PtxError, match=r"writes memory that line \d+ reads by .nc"):
        run(body.format(load + store), a)
    with pytest.raises(PtxError, match=r".nc reads what line \d+ writes"):
        run(body.format(store + load), a)


def test_constants_are_not_written() -> None:
    outside = ".const .align 4 .b32 c[2] = {1, 2};"
    with pytest.raises(PtxError, match="writes memory that is constant"):
        run("mov.u64 %rd1, c; st.global.u32 [%rd1], 0;", np.zeros(1), outside=outside)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("st.global.u32 [%rd20], 7;", "writes where thread 31 of CTA .* writes too"),
        (
            "setp.eq.u32 %p1, %r29, 0; @%p1 st.global.u32 [%rd1], 7; @!%p1 ld.global.u32 %r1, [%rd2];",
            "reads what",
        ),
        ("ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;", "writes where thread .* read"),
    ],
)
@pytest.mark.parametrize("grid", [2, 900])
def test_races_between_ctas(steps: str, message: str, grid: int) -> None:
    out = np.zeros(grid * 32 + 32, "u4")
    body = f"mad.wide.u32 %rd1, %r30, 4, %rd20; mad.wide.u32 %rd2, %r31, 4, %rd20; {steps}"
    with pytest.raises(PtxError, match=f"race: {message}"):
        run(body, out, grid=grid)


def test_races_in_global_memory_of_a_cta() -> None:
    steps = "st.global.u32 [%rd1], %r31; {} xor.b32 %r5, %r30, 32; mad.wide.u32 %rd2, %r5, 4, %rd20;"
    steps = (
        "mad.wide.u32 %rd1, %r30, 4, %rd20;"
        + steps
        + "ld.global.u32 %r1, [%rd2]; {} st.global.u32 [%rd1], %r1;"
    )
    out = np.zeros(128, "u4")
    run(steps.format("bar.sync 0;", "bar.sync 0;"), out, grid=2, block=64)
    assert (out == np.tile(np.arange(64) ^ 32, 2)).all()
    for dropped in (("", "bar.sync 0;"), ("bar.sync 0;", "")):
        with pytest.raises(PtxError, match=r"race: .* no barrier between"):
            run(steps.format(*dropped), out, grid=2, block=64)


def test_barriers_that_threads_miss() -> None:
    half = "setp.lt.u32 %p1, %r31, 32;"
    out = np.zeros(64, "u4")
    with pytest.raises(PtxError, match="deadlock: 32 of 64 threads wait at barrier 0; thread 0 has ended"):
        run(f"{half} @%p1 ret; bar.sync 0;", out, block=64)
    with pytest.raises(PtxError, match="diverged barriers"):
        run(f"{half} @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; B:", out, block=64)
    with pytest.raises(PtxError, match=r"deadlock.*thread 32 waits at line \d+"):
        run(f"{half} @%p1 bra A; bar.sync 1; bra B; A: bar.sync 2; B:", out, block=64)
    with pytest.raises(PtxError, match="64 threads reach barrier 1, it expects 32"):
        run("bar.sync 1, 32;", out, block=64)
    with pytest.raises(PtxError, match="barrier 16: expected a number below 16"):
        run("bar.sync 16;", out, block=64)


def test_warps_that_lanes_miss() -> None:
    half = "setp.lt.u32 %p1, %r31, 16; @%p1"
    out = np.zeros(32, "u4")
    message = "names lanes 0xffffffff, but only 0x0000ffff meet here"
    with pytest.raises(PtxError, match=message):
        run(f"{half} shfl.sync.bfly.b32 %r1, %r31, 1, 31, -1;", out)
    with pytest.raises(PtxError, match=message):
        run(f"{half} bar.warp.sync 0xffffffff;", out)
    run(f"{half} shfl.sync.bfly.b32 %r1, %r31, 1, 31, 0xffff;", out)
    with pytest.raises(PtxError, match="reads lane 17, which is not here"):
        run(f"{half} shfl.sync.bfly.b32 %r1, %r31, 16, 31, 0xffff;".replace("16, 31, 0", "17, 31, 0"), out)
    with pytest.raises(PtxError, match="does not name the lane itself"):
        run("shfl.sync.bfly.b32 %r1, %r31, 1, 31, 0xffff;", out)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("atom.global.add.u32 %r1, [%rd20], 1;", r"line \d+: unknown instruction atom\.global\.add\.u32"),
        ("add.s33 %r1, %r1, 1;", r"unknown instruction add\.s33"),
        ("add.s32 %r99, %r1, 1;", "expected a declared register, found %r99"),
        ("add.s64 %rd1, %r1, 1;", "too narrow"),
        ("add.s32 %r1, %r1;", "instruction not understood"),
        ("bra NOWHERE;", "branches to NOWHERE, which is no label"),
        ("call.uni (q), nobody, (p);", "calls a function that the module does not define"),
        (".weird .b32 x;", "unknown directive"),
        ("{{{", "no closing brace"),
    ],
)
def test_text_that_is_not_supported(body: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(f"\n{body}", np.zeros(1))


def test_recursion() -> None:
    function = ".func f () { call.uni f; ret; }"
    with pytest.raises(PtxError, match="recursive calls"):
        run("call.uni f;", np.zeros(1), outside=function)


def test_launches_that_do_not_fit_the_entry() -> None:
    text = kernel("", 2, limits=".reqntid 32, 1, 1")
    with pytest.raises(PtxError, match="expected 2 arguments, found 1"):
        run_ptx(text, "k", 1, 32, 0, [np.zeros(1)])
    with pytest.raises(PtxError, match=re.escape("expected a block of {'reqntid': 32}, found 64")):
        run_ptx(text, "k", 1, 64, 0, [np.zeros(1)] * 2)
    with pytest.raises(PtxError, match="expected an entry named 'other', found"):
        run_ptx(text, "other", 1, 32, 0, [np.zeros(1)] * 2)
    with pytest.raises(PtxError, match="argument 1 is not contiguous"):
        run_ptx(text, "k", 1, 32, 0, [np.zeros(1), np.zeros((4, 4))[:, 1]])
    with pytest.raises(PtxError, match="expected a declaration"):
        run_ptx(f"{HEAD} nonsense", "k", 1, 32, 0, [])
