"""The PTX interpreter's control flow, calls, memories, and instructions of warps and CTAs."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import HEAD, apply, run

from jstitch.codegen.cuda.ptx import run_ptx


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


COLLATZ = """
    mov.u32 {d}, 0; mov.u32 %r10, {a};
LOOP:
    setp.eq.u32 %p1, %r10, 1;
    @%p1 bra DONE;
    and.b32 %r11, %r10, 1;
    setp.ne.u32 %p2, %r11, 0;
    @%p2 bra ODD;
    shr.u32 %r10, %r10, 1;
    bra.uni NEXT;
ODD:
    mad.lo.u32 %r10, %r10, 3, 1;
NEXT:
    add.u32 {d}, {d}, 1;
    bra LOOP;
DONE:
"""


def test_divergent_loop() -> None:
    a = np.arange(1, 301, dtype=np.uint32)
    assert apply(COLLATZ, "u4", a).tolist() == [collatz(int(n)) for n in a]


def test_guards_of_single_instructions() -> None:
    a, out = np.arange(32, dtype="u4"), np.zeros(32, "u4")
    body = """
        mul.wide.u32 %rd1, %r30, 4; add.u64 %rd2, %rd20, %rd1; add.u64 %rd3, %rd21, %rd1;
        setp.lt.u32 %p1, %r30, 20;
        mov.u32 %r1, 7;
        @%p1 ld.global.nc.b32 %r1, [%rd2];
        @!%p1 add.u32 %r1, %r1, 1;
        st.global.b32 [%rd3], %r1;
    """
    counts = run(body, a, out)
    assert (out == np.where(np.arange(32) < 20, a, 8)).all()
    assert counts.read_bytes == 80
    assert counts.distinct_read == (80, 0)


def test_ended_threads_stay_ended() -> None:
    out = np.zeros(64, "u4")
    body = "setp.ge.u32 %p1, %r30, 37; @%p1 ret; mad.wide.u32 %rd1, %r30, 4, %rd20; st.global.u32 [%rd1], 1;"
    run(body, out, block=64)
    assert (out == (np.arange(64) < 37)).all()


def test_scopes_have_registers_and_labels_of_their_own() -> None:
    part = "{{ .reg .b32 t; mov.b32 t, {a}; setp.lt.s32 %p1, t, 0; @%p1 bra L; add.s32 %r10, %r10, t; L: }}"
    step = f"mov.u32 %r10, 1; {part} {part} mov.u32 {{d}}, %r10;"
    a = np.array([-3, 4, 5], "i4")
    assert apply(step, "i4", a).tolist() == [1, 9, 11]


FUNCTIONS = """
.global .align 4 .b8 table[12] = {1, 0, 0, 0, 2, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF};
.const .align 8 .f64 halves[2] = {0d3FE0000000000000, 0d3FF8000000000000};
.func (.param .b32 r) twice_if_small (.param .b32 x)
{ .reg .b32 %r<3>; .reg .pred %p<2>;
  ld.param.b32 %r1, [x]; setp.gt.s32 %p1, %r1, 9; @%p1 bra L;
  add.s32 %r1, %r1, %r1; st.param.b32 [r+0], %r1; ret;
L: st.param.b32 [r+0], %r1; ret; }
.func (.param .b32 r) both (.param .b32 x, .param .b32 y)
{ .reg .b32 %r<4>; ld.param.b32 %r1, [x];
  { .param .b32 p0; .param .b32 q0; st.param.b32 [p0+0], %r1;
    call.uni (q0), twice_if_small, (p0); ld.param.b32 %r2, [q0+0]; }
  ld.param.b32 %r3, [y]; sub.s32 %r3, %r3, %r2; st.param.b32 [r], %r3; ret; }
"""


def test_calls_of_functions() -> None:
    step = """
        {{ .param .b32 p0; .param .b32 p1; .param .b32 q;
        st.param.b32 [p0+0], {a}; st.param.b32 [p1+0], {b};
        call.uni (q), both, (p0, p1);
        ld.param.b32 {d}, [q+0]; }}
    """
    a, b = np.array([1, 30, 9, -4], "i4"), np.array([100, 200, 300, 400], "i4")
    found = apply(step, "i4", a, b, outside=FUNCTIONS)
    assert (found == b - np.where(a > 9, a, 2 * a)).all()


def test_tables_in_global_and_constant_memory() -> None:
    step = "mov.u64 %rd11, table; mad.wide.u32 %rd11, {a}, 4, %rd11; ld.global.nc.u32 {d}, [%rd11];"
    assert apply(step, "u4", np.array([2, 0, 1], "u4"), outside=FUNCTIONS).tolist() == [2**32 - 1, 1, 2]
    step = "ld.const.f64 %fd1, [halves+8]; mov.b64 {d}, %fd1;"
    assert apply(step, "f8", np.zeros(1, "u4"), outside=FUNCTIONS).tolist() == [1.5]


def test_local_memory_is_each_threads_own() -> None:
    step = """
        .local .align 8 .b8 __local_depot0[16]; .reg .b64 %SP; .reg .b64 %SPL;
        mov.u64 %SPL, __local_depot0; cvta.local.u64 %SP, %SPL;
        st.local.u32 [%SPL+4], {a}; ld.u32 {d}, [%SP+4];
    """
    a = np.arange(40, dtype="u4") * 3
    assert (apply(step, "u4", a) == a).all()


@pytest.mark.parametrize(
    ("way", "by", "clamp", "source"),
    [
        ("bfly", 5, 31, lambda lane: lane ^ 5),
        ("down", 3, 31, lambda lane: np.where(lane + 3 < 32, lane + 3, lane)),
        ("up", 3, 0, lambda lane: np.where(lane >= 3, lane - 3, lane)),
        ("idx", 9, 31, lambda lane: lane * 0 + 9),
        ("bfly", 1, 0x181F, lambda lane: lane ^ 1),  # segments of 8 lanes
        ("down", 6, 0x181F, lambda lane: np.where(lane % 8 < 2, lane + 6, lane)),
        ("idx", 2, 0x181F, lambda lane: lane // 8 * 8 + 2),
    ],
)
def test_shuffles(way: str, by: int, clamp: int, source: object) -> None:
    a, lanes = np.random.default_rng(0).integers(0, 99, 64).astype("u4"), np.arange(64)
    found = apply(f"shfl.sync.{way}.b32 {{d}}|%p1, {{a}}, {by}, {clamp}, -1;", "u4", a)
    assert (found == a[lanes - lanes % 32 + source(lanes % 32)]).all()


def test_votes_and_reductions_of_a_warp() -> None:
    a = np.random.default_rng(0).integers(-99, 99, 64).astype("i4")
    step = "setp.gt.s32 %p1, {a}, 0; vote.sync.ballot.b32 {d}, %p1, -1;"
    bits = [sum(int(x > 0) << n for n, x in enumerate(warp)) for warp in (a[:32], a[32:])]
    assert apply(step, "u4", a).tolist() == [bits[0]] * 32 + [bits[1]] * 32
    for name, function in (("add", np.sum), ("min", np.min), ("max", np.max)):
        found = apply(f"redux.sync.{name}.s32 {{d}}, {{a}}, -1;", "i4", a)
        assert found.tolist() == [function(a[:32])] * 32 + [function(a[32:])] * 32
    step = "setp.gt.s32 %p1, {a}, 100; vote.sync.any.pred %p2, %p1, -1; selp.u32 {d}, 1, 0, %p2;"
    assert not apply(step, "u4", a).any()
    step = "mov.u32 {d}, 0; setp.gt.s32 %p1, {a}, 0; @%p1 activemask.b32 {d};"
    assert apply(step, "u4", a).tolist() == [
        b if x > 0 else 0 for x, b in zip(a, np.repeat(bits, 32), strict=True)
    ]


ARENA = ".extern .shared .align 16 .b8 arena[];"
REVERSE = """
    mov.u32 %r1, arena; mad.lo.u32 %r2, %r31, 4, %r1; sub.s32 %r3, 127, %r31; mad.lo.u32 %r3, %r3, 4, %r1;
    mul.wide.u32 %rd1, %r30, 4; add.u64 %rd2, %rd20, %rd1; add.u64 %rd3, %rd21, %rd1;
    ld.global.nc.b32 %r4, [%rd2]; st.shared.b32 [%r2], %r4;
    bar.sync 0;
    ld.shared.b32 %r4, [%r3]; st.global.b32 [%rd3], %r4;
"""


def test_ctas_have_shared_memory_of_their_own() -> None:
    a, out = np.random.default_rng(0).random((300, 128), np.float32), np.zeros((300, 128), "f4")
    counts = run(REVERSE, a, out, grid=300, block=128, shared=512, outside=ARENA)
    assert (out == a[:, ::-1]).all()
    assert counts.barriers == 300
    assert counts.read_bytes == counts.written_bytes == a.nbytes
    assert counts.distinct_read == (a.nbytes, 0)
    assert counts.distinct_written == (0, a.nbytes)
    assert counts.instructions == 300 * 128 * (2 + 4 + 12 + 1)


TEAMS = """
    shr.u32 %r5, %r31, 6; and.b32 %r6, %r31, 63; add.u32 %r7, %r5, 1;
    mov.u32 %r1, arena; mad.lo.u32 %r1, %r5, 256, %r1;
    mad.lo.u32 %r2, %r6, 4, %r1; sub.s32 %r3, 63, %r6; mad.lo.u32 %r3, %r3, 4, %r1;
    mov.u32 %r8, 0; mov.u32 %r4, %r30;
LOOP:
    st.shared.b32 [%r2], %r4;
    bar.sync %r7, 64;
    ld.shared.b32 %r4, [%r3];
    bar.sync %r7, 64;
    add.u32 %r8, %r8, 1; setp.le.u32 %p1, %r8, %r5;
    @%p1 bra LOOP;
    mad.wide.u32 %rd1, %r30, 4, %rd20; st.global.u32 [%rd1], %r4;
"""


def test_teams_loop_on_barriers_of_their_own() -> None:
    out = np.zeros((2, 4, 64), "u4")
    run(TEAMS, out, grid=2, block=256, shared=1024, outside=ARENA)
    expected = np.arange(512, dtype="u4").reshape(2, 4, 64)
    expected[:, ::2] = expected[:, ::2, ::-1]  # team t turns the values round t + 1 times
    assert (out == expected).all()


def test_the_same_memory_given_twice_is_one_buffer() -> None:
    a = np.arange(32, dtype="f4")
    body = """
        mul.wide.u32 %rd1, %r30, 4; add.u64 %rd2, %rd20, %rd1; add.u64 %rd3, %rd21, %rd1;
        ld.global.f32 %f1, [%rd2]; add.f32 %f1, %f1, %f1; st.global.f32 [%rd3], %f1;
    """
    counts = run(body, a, a)
    assert (a == np.arange(32) * 2).all()
    assert (counts.distinct_read, counts.distinct_written) == ((128, 0), (128, 0))


def test_lanes_of_one_load_may_touch_different_buffers() -> None:
    a, b, out = np.arange(32, dtype="f4"), np.arange(32, dtype="f4") + 100, np.zeros(32, "f4")
    body = """
        setp.lt.u32 %p1, %r30, 10; selp.b64 %rd1, %rd20, %rd21, %p1;
        mul.wide.u32 %rd2, %r30, 4; add.u64 %rd1, %rd1, %rd2; add.u64 %rd3, %rd22, %rd2;
        ld.global.nc.f32 %f1, [%rd1]; st.global.f32 [%rd3], %f1;
    """
    counts = run(body, a, b, out)
    assert (out == np.where(np.arange(32) < 10, a, b)).all()
    assert counts.distinct_read == (40, 88, 0)


def test_comments_pragmas_and_locations_are_skipped() -> None:
    text = f"""{HEAD}
    .file 1 "k.py"
    .extern .func (.param .b32 r) unused (.param .b32 x)
    ;
    .common .global .align 8 .u64 environment;
    .visible .entry k(
        .param .u64 .ptr .global .align 16 k_0   // a comment {{ ; }}
    ) .reqntid 4, 1, 1
    {{ .reg .b64 %rd<2>; /* another
       one */
      .loc 1 2 3
      .pragma "nounroll"; ld.param.u64 %rd1, [k_0]; st.global.L1::no_allocate.u8 [%rd1+3], 5; ret; }}
    """
    out = np.zeros(4, "u1")
    assert run_ptx(text, "k", 1, 4, 0, [out]).instructions == 12
    assert out.tolist() == [0, 0, 0, 5]


def test_parameters_have_addresses() -> None:
    """NVVM for sm_100 selects a parameter's address, then loads the pointer from it."""
    a, b = np.zeros(64, "u4"), np.zeros(64, "u4")
    body = """
        setp.lt.u32 %p1, %r30, 10; mov.b64 %rd1, k_0; mov.b64 %rd2, k_1; selp.b64 %rd1, %rd1, %rd2, %p1;
        ld.param.b64 %rd3, [%rd1]; mad.wide.u32 %rd3, %r30, 4, %rd3; st.global.u32 [%rd3], 7;
    """
    run(body, a, b, block=64)
    assert (a == 7 * (np.arange(64) < 10)).all()
    assert (b == 7 * (np.arange(64) >= 10)).all()
