"""The machine code of loops: packed instructions, no run-time alias checks, no calls."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cpu_loop import assembly, compile_loop, compile_source, run

from jstitch.codegen.cpu.processor import host_has

pytestmark = pytest.mark.skipif(not host_has("avx2"), reason="the instructions named here are AVX2's")

F32 = r"v\w+ps\b.*%[yz]mm"  # packed single precision
LOOPS = [
    *(
        (f"{name}({{0}})", ("f32",), "f32", F32)
        for name in ("exp", "log", "tanh", "erf", "logistic", "rsqrt")
    ),
    *(
        (f"{name}({{0}})", ("f32",), "f32", F32)
        for name in ("expm1", "log1p", "erf_inv", "sqrt", "floor", "sign")
    ),
    *(
        (f"{name}({{0}})", ("f32",), "f32", r"v\w+pd\b.*%[yz]mm")
        for name in ("sin", "cos", "tan", "atan", "cbrt")
    ),
    *(
        (f"{name}({{0}})", ("f64",), "f64", r"v\w+pd\b.*%[yz]mm")
        for name in ("exp", "log", "tanh", "logistic")
    ),
    ("pow_({0}, {1})", ("f32", "f32"), "f32", r"v\w+pd\b.*%[yz]mm"),
    ("atan2({0}, {1})", ("f32", "f32"), "f32", r"v\w+pd\b.*%[yz]mm"),
    ("maximum({0}, {1})", ("f32", "f32"), "f32", r"v(max|range)ps\b.*%[yz]mm"),
    ("{0} * float32(2.0)", ("bf16",), "bf16", r"vpmovzxwd.*%[yz]mm"),
    ("{0} * float32(2.0)", ("f16",), "f16", r"(vcvtph2ps|v(mul|add)ph).*%[yz]mm"),  # or AVX-512 FP16
    ("{0}", ("f32",), "f8e4m3fn", r"vpsrld.*%[yz]mm"),
    (
        "or_(shl({0}, uint32(13)), shr_logical({0}, uint32(19)))",
        ("u32",),
        "u32",
        r"vp(or|rol|ror|slld)\w*.*%[yz]mm",
    ),
    ("xor(iadd({0}, {1}), {1})", ("u32", "u32"), "u32", r"vpaddd.*%[yz]mm"),
    ("{0} < {1}", ("f32", "f32"), "bool", r"vcmp\w*ps.*%[yz]mm"),
    ("select({0}, {1}, float32(0.0))", ("bool", "f32"), "f32", r"v(pand|andps|movups|blend).*%[yz]mm"),
    ("convert_f32({0})", ("s32",), "f32", r"vcvtdq2ps.*%[yz]mm"),
    ("convert_s32({0})", ("f32",), "s32", r"vcvttps2dq.*%[yz]mm"),
    ("convert_f32({0})", ("s8",), "f32", r"vcvtdq2ps.*%[yz]mm"),
]


@pytest.mark.parametrize(
    ("expression", "operands", "result", "pattern"), LOOPS, ids=[f"{e}:{'-'.join(o)}" for e, o, *_ in LOOPS]
)
def test_loop_is_vectorised(expression: str, operands: tuple[str, ...], result: str, pattern: str) -> None:
    text = compile_loop(expression, operands, result).assembly
    assert re.search(pattern, text)
    assert not re.search(r"\bcall", text.partition("ret")[0]), "a call in the loop"


REDUCTION = """
def kernel(bufs, n):
    p = load_s64(bufs, 0, 9)
    q = load_s64(bufs, 1, 9)
    s = float32({start})
    for i in range(n):
        x = load_{dtype}(p, i, 0)
        s = {step}
    store_f32(q, 0, s, 1)
"""


@pytest.mark.parametrize(
    ("dtype", "start", "step", "pattern"),
    [
        ("f32", "0.0", "add_reassoc(s, x)", r"vaddps.*%[yz]mm"),
        ("bf16", "0.0", "add_reassoc(s, x)", r"vaddps.*%[yz]mm"),
        ("f32", "0.0", "add_reassoc(s, x * x)", r"vfmadd\w+ps.*%[yz]mm"),
        ("f32", "0.0", "add_reassoc(s, exp(x))", r"vaddps.*%[yz]mm"),
        ("f32", "1.0", "mul_reassoc(s, x)", r"vmulps.*%[yz]mm"),
        ("f32", "-1e39", "maximum(s, x)", r"v(max|range)ps.*%[yz]mm"),
        ("f32", "1e39", "minimum(s, x)", r"v(min|range)ps.*%[yz]mm"),
    ],
)
def test_reduction_is_vectorised(dtype: str, start: str, step: str, pattern: str) -> None:
    text = assembly(compile_source(REDUCTION.format(dtype=dtype, start=start, step=step)))
    assert re.search(pattern, text)


@pytest.mark.parametrize(("step", "function"), [("maximum(s, x)", np.max), ("add_reassoc(s, x)", np.sum)])
def test_reduction_propagates_nan(step: str, function: object) -> None:
    kernel = compile_source(REDUCTION.format(dtype="f32", start="0.0", step=step))
    x, out = np.ones(1000, np.float32), np.zeros(1, np.float32)
    run(kernel, 1000, x, out)
    assert out[0] == function(x)  # type: ignore[operator]
    x[777] = np.nan
    run(kernel, 1000, x, out)
    assert np.isnan(out[0])


def many_buffers(count: int, distinct: bool) -> str:
    """A third of the buffers is updated in place from the other two thirds."""
    third = count // 3
    lines = ["def kernel(bufs, n):"]
    lines += [f"    p{k} = load_s64(bufs, {k}, 999)" for k in range(count)]
    lines += ["    for i in range(n):"]
    for k in range(2 * third, count):
        a, b = k - 2 * third, k - third
        scopes = (a, b, k) if distinct else (0, 0, 0)
        loads = [f"load_f32(p{j}, i, {scope})" for j, scope in zip((a, b, k), scopes, strict=True)]
        lines += [f"        store_f32(p{k}, i, {loads[0]} * {loads[1]} + {loads[2]}, {scopes[2]})"]
    return "\n".join(lines)


def test_many_buffers_in_place_need_no_runtime_checks() -> None:
    count = 42
    kernel = compile_source(many_buffers(count, distinct=True))
    assert len(re.findall(r"vfmadd\w+ps.*%[yz]mm", assembly(kernel))) >= count // 3
    arrays = [np.full(1001, k, np.float32) for k in range(count)]
    run(kernel, 1001, *arrays)
    for k in range(28, 42):
        assert (arrays[k] == (k - 28) * (k - 14) + k).all()


def test_one_buffer_number_for_all_is_not_vectorised() -> None:
    """What the buffer numbers are for: the same loop, told nothing."""
    text = assembly(compile_source(many_buffers(42, distinct=False)))
    assert not re.search(r"vfmadd\w+ps.*%[yz]mm", text)
