"""What ptxas makes of PTX, and how well registers are estimated without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_kernels import kernel, needs_numba_cuda, ptx

from jstitch.codegen.cuda import resources
from jstitch.codegen.cuda.registers import estimate_registers
from jstitch.codegen.cuda.resources import Resources, ToolError, assemble, disassemble, find_tool
from jstitch.codegen.cuda.source import CudaSource
from jstitch.codegen.launch_ir import Parameter

needs_ptxas = pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")
needs_nvdisasm = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="nvdisasm is not installed")
ARCHS = {"sm_80": 2048, "sm_90": 2048, "sm_100": 2048, "sm_120": 1536}  # threads per SM

HEAD = """.version 8.7
.target sm_80
.address_size 64
"""
COPY = """.visible .entry copy(.param .u64 a, .param .u64 b)
.reqntid 256, 1, 1
{
	.reg .f32 %f<5>;
	.reg .b32 %r<2>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 16;
	add.s64 %rd4, %rd1, %rd3;
	ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd4];
	add.s64 %rd5, %rd2, %rd3;
	st.global.v4.f32 [%rd5], {%f1, %f2, %f3, %f4};
	ret;
}
"""


def straight(loads: int, limit: str = "") -> str:
    """PTX that loads so many values before it uses the first: volatile, so that no load can wait."""
    lines = [f"ld.volatile.global.f32 %f{i}, [%rd1+{4 * i}];" for i in range(loads)]
    lines += [f"st.volatile.global.f32 [%rd1+{4 * i}], %f{loads - 1 - i};" for i in range(loads)]
    body = "\n\t".join(lines)
    return (
        f"{HEAD}.visible .entry k(.param .u64 a)\n.reqntid 128, 1, 1\n{limit}{{\n"
        f"\t.reg .f32 %f<{loads}>;\n\t.reg .b64 %rd<2>;\n\tld.param.u64 %rd1, [a];\n\t{body}\n\tret;\n}}\n"
    )


@needs_ptxas
def test_the_report_is_read() -> None:
    found = assemble(HEAD + COPY, "sm_90")
    assert 8 <= found.registers <= 24
    assert found == Resources(found.registers, 0, 0, 0, 0, 0)
    shared = COPY.replace("\tld.param.u64 %rd1", "\t.shared .b8 s[640];\n\tbar.sync 0;\n\tld.param.u64 %rd1")
    shared = shared.replace("\tret;", "\tst.shared.f32 [s], %f1;\n\tret;")
    again = assemble(HEAD + shared, "sm_80")
    assert (again.shared_bytes, again.barriers) == (640, 1)


@needs_ptxas
def test_spills_are_seen() -> None:
    assert assemble(straight(100), "sm_90").spills == 0
    crowded = assemble(straight(100, ".maxnreg 32\n"), "sm_90")
    assert crowded.registers <= 32
    assert crowded.spill_stores >= 4 * 60
    assert crowded.spills == crowded.spill_stores + crowded.spill_loads


@needs_ptxas
def test_what_the_assembler_refuses_is_said() -> None:
    with pytest.raises(ToolError, match=r"(?s)ptxas.*nonsense"):
        assemble(HEAD + COPY.replace("mul.wide.u32", "nonsense.u32"), "sm_90")


def test_a_missing_tool_says_which_wheel_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources.sys, "path", [])
    monkeypatch.setenv("PATH", "")
    assert find_tool("ptxas") is None
    with pytest.raises(ToolError, match="pip install nvidia-cuda-nvcc"):
        assemble(HEAD + COPY, "sm_90")


def test_the_wheels_tool_comes_before_the_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, other = tmp_path / "site/nvidia/cu13/bin/ptxas", tmp_path / "bin/ptxas"
    for tool in (wheel, other):
        tool.parent.mkdir(parents=True)
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.setattr(resources.sys, "path", ["", str(tmp_path / "elsewhere")])
    assert find_tool("ptxas") == other
    monkeypatch.setattr(resources.sys, "path", ["", str(tmp_path / "site")])
    assert find_tool("ptxas") == wheel


@needs_ptxas
@needs_nvdisasm
def test_wide_accesses_are_counted_in_the_machine_code() -> None:
    found = disassemble(HEAD + COPY, "sm_90")
    assert (found.global_loads, found.wide_loads) == (1, 1)
    assert (found.global_stores, found.wide_stores) == (1, 1)
    assert (found.local_accesses, found.calls) == (0, 0)
    assert 8 <= found.instructions <= 40
    spilled = disassemble(straight(100, ".maxnreg 32\n"), "sm_90")
    assert (spilled.global_loads, spilled.wide_loads) == (100, 0)
    assert spilled.local_accesses > 50


LISTING = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R4.64] ;
        /*0020*/                   LDG.E R4, desc[UR4][R4.64] ;
        /*0030*/                   LDG.E.ENL2.256.CONSTANT R8, R4, desc[UR4][R4.64] ;
        /*0040*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0050*/              @UP0 CALL.REL.NOINC 0x90 ;
        /*0060*/                   STL [R1], R4 ;
        /*0070*/                   NOP ;
"""


def test_the_listing_is_read() -> None:
    found = resources._count(resources._INSTRUCTION.findall(LISTING))
    assert found == resources.Sass(
        instructions=7,
        global_loads=3,
        wide_loads=2,
        global_stores=1,
        wide_stores=1,
        local_accesses=1,
        calls=1,
    )


def close(estimate: int, registers: int) -> bool:
    return abs(estimate - registers) <= max(8, 0.2 * registers)


@pytest.mark.parametrize(("values", "at_least"), [(10, 10), (50, 50), (150, 150), (300, 255)])
def test_values_that_live_at_once_take_a_register_each(values: int, at_least: int) -> None:
    estimate = estimate_registers(straight(values))
    assert at_least <= estimate <= min(255, at_least + 12)


def test_what_is_shared_by_all_threads_or_known_takes_none() -> None:
    lines = "\n".join(f"\tmov.u32 %r{i}, {i};\n\tld.param.u64 %rd{i}, [a];" for i in range(50))
    uses = "\n".join(f"\tst.global.u32 [%rd{i}], %r{i};" for i in range(50))
    entry = f"{HEAD}.visible .entry k(.param .u64 a)\n.reqntid 128, 1, 1\n"
    registers = "\t.reg .b32 %r<50>;\n\t.reg .b64 %rd<50>;\n"
    nothing = estimate_registers(f"{entry}{{\n\tret;\n}}\n")
    assert estimate_registers(f"{entry}{{\n{registers}{lines}\n{uses}\n\tret;\n}}\n") == nothing


def test_values_live_around_a_loop() -> None:
    """20 accumulators that a loop adds to: live at its start, though each is used once in a turn."""
    start = "\n".join(f"\tmov.f32 %f{i}, 0f00000000;" for i in range(20))
    turn = "\n".join(f"\tadd.f32 %f{i}, %f{i}, 0f3F800000;" for i in range(20))
    stores = "\n".join(f"\tst.global.f32 [%rd1+{4 * i}], %f{i};" for i in range(20))
    text = (
        f"{HEAD}.visible .entry k(.param .u64 a)\n.reqntid 128, 1, 1\n{{\n\t.reg .f32 %f<20>;\n"
        f"\t.reg .pred %p<2>;\n\t.reg .b32 %r<3>;\n\t.reg .b64 %rd<2>;\n\tld.param.u64 %rd1, [a];\n"
        f"\tmov.u32 %r1, %tid.x;\n{start}\nL:\n{turn}\n\tadd.s32 %r1, %r1, -1;\n"
        f"\tsetp.ne.s32 %p1, %r1, 0;\n\t@%p1 bra L;\n{stores}\n\tret;\n}}\n"
    )
    assert 21 <= estimate_registers(text) <= 32


def rows(items: int, shared: bool = False) -> CudaSource:
    """A warp normalises a row that it keeps in registers: items values a thread, by vectors of four."""
    lines = [
        "row = block() * 4 + quotient(thread(), 32)",
        "lane = remainder_pos(thread(), 32)",
        f"x = registers_f32({items})",
        "acc = float32(0.0)",
        f"for k in unroll({items // 4}):",
        f"    v = read_f32x4(b0, row * {items * 32} + k * 128 + lane * 4)",
        "    for j in unroll(4):",
        "        x[k * 4 + j] = v[j]",
        "        acc = add_reassoc(acc, v[j])",
    ]
    lines += [f"acc = add_reassoc(acc, shuffle_xor(acc, {m}))" for m in (1, 2, 4, 8, 16)]
    if shared:
        lines += ["shared_store_f32(0, thread(), acc)", "barrier()", "acc = shared_load_f32(0, thread())"]
    lines += [
        f"for k in unroll({items}):",
        "    x[k] = exp(x[k] - acc)",
        f"for k in unroll({items // 4}):",
        f"    store_f32x4(b1, row * {items * 32} + k * 128 + lane * 4, x, k * 4)",
    ]
    size = 4096 * items * 32
    parameters = [Parameter("b0", "f32", size, "read"), Parameter("b1", "f32", size, "write")]
    return kernel(lines, parameters, grid=1024, shared=512 if shared else 0)


def column_sum(step: int) -> CudaSource:
    """Each thread sums 4 columns over rows, `step` rows at a time."""
    lines = [
        "c = (block() * 128 + thread()) * 4",
        "acc = registers_f32(4)",
        "for j in unroll(4):",
        "    acc[j] = float32(0.0)",
        f"for r in range(0, 4096, {step}):",
        f"    for s in unroll({step}):",
        "        v = read_f32x4(b0, (r + s) * 8192 + c)",
        "        for j in unroll(4):",
        "            acc[j] = acc[j] + v[j]",
        "store_f32x4(b1, c, acc, 0)",
    ]
    parameters = [Parameter("b0", "f32", 4096 * 8192, "read"), Parameter("b1", "f32", 8192, "write")]
    return kernel(lines, parameters, grid=16)


SOURCES = {
    **{f"rows of {32 * n}": rows(n) for n in (4, 8, 16, 32, 64)},
    "rows by the arena": rows(16, shared=True),
    **{f"columns, {n} rows a turn": column_sum(n) for n in (1, 4, 8)},
}


@needs_ptxas
@needs_numba_cuda
def test_estimates_are_near_what_ptxas_says() -> None:
    """Within 20% or 8 registers for 90% of kernels and architectures; none of them spills."""
    missed = []
    for name, source in SOURCES.items():
        text = ptx(source, (8, 0), "8.7")
        for arch, threads in ARCHS.items():
            found = assemble(text, arch)
            assert found.spills == 0, name
            estimate = estimate_registers(text, threads)
            if not close(estimate, found.registers):
                missed.append(f"{name} on {arch}: estimated {estimate}, found {found.registers}")
    assert len(missed) <= 0.1 * len(SOURCES) * len(ARCHS), "\n".join(missed)
