"""Statements of CUDA kernel text: what they compute (as PTX), what PTX they become, what is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from cuda_kernels import TARGETS, assemble, kernel, needs_numba_cuda, ptx, run

from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.codegen.launch_ir import Mode, Parameter
from jstitch.errors import UnsupportedError
from tests.codegen.cuda.simulated import LAYER_NORM

pytestmark = needs_numba_cuda
ROWS, COLUMNS = 64, 768


def norm() -> CudaSource:
    """Layer norm of ROWS x COLUMNS."""
    sizes = [ROWS * COLUMNS, COLUMNS, COLUMNS, ROWS * COLUMNS]
    modes: list[Mode] = ["read", "read", "read", "write"]
    pairs = enumerate(zip(sizes, modes, strict=True))
    given = [Parameter(f"b{k}", "f32", size, mode) for k, (size, mode) in pairs]
    launch = Launch("phase0", ROWS // 8, 256, 0, 32, tuple(given), ROWS * COLUMNS)
    return CudaSource("test", LAYER_NORM, (launch,))


@pytest.mark.parametrize("capability", TARGETS)
def test_layer_norm(capability: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    g, h = random.normal(size=(2, COLUMNS)).astype(np.float32)
    y = np.zeros_like(x)
    run(norm(), [x, g, h, y], capability)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * g + h
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    found = assemble(ptx(norm(), capability), capability)
    assert (found.stack, found.spills) == (0, 0)


def test_layer_norm_is_good_ptx() -> None:
    text = ptx(norm())
    assert text.count("ld.global.nc.v4.f32") == 18
    assert text.count("st.global.v4.f32") == 6
    for part in (
        "mad.lo.s32",
        "mul.wide.s32",
        "+2560]",
        ".reqntid 256, 1, 1",
        ".visible .entry test_phase0(",
    ):
        assert part in text
    for part in ("NumbaEnv", "\0", ".local", ".maxntid", "//"):
        assert part not in text


def test_ptx_is_the_same_in_every_process() -> None:
    script = (
        "import hashlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_cuda_lower_text import norm, ptx\n"
        "print(hashlib.sha256(ptx(norm()).encode()).hexdigest())"
    )
    folder = __file__.rpartition("/")[0]
    runs = [
        subprocess.run(
            [sys.executable, "-c", script, folder], capture_output=True, text=True, check=True, env=None
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1] != ""


def one(lines: list[str], x: np.ndarray, index_bits: int = 32, out: str = "s64") -> np.ndarray:
    """The 64 results of 64 threads; t is the thread, v its element of x."""
    head = ["t = thread()", "v = read_s32(b0, t)"]
    both = [Parameter("x", "s32", 64, "read"), Parameter("y", out, 64, "write")]
    y = np.zeros(64, {"s64": np.int64, "s32": np.int32, "f32": np.float32}[out])
    run(kernel([*head, *lines], both, block=64, index_bits=index_bits), [x, y])
    return y


X = np.random.default_rng(1).integers(-100, 100, 64, np.int32)
T = np.arange(64)


@pytest.mark.parametrize("index_bits", [32, 64])
def test_index_arithmetic(index_bits: int) -> None:
    lines = [
        "c = clamp_index(int64(v) * 3 - 1, 0, 63)",
        "n = remainder_pos(t * 7 + 3, 5) * quotient(t, 4) - c",
        "store_s64(b1, t, int64(n))",
    ]
    expected = (T * 7 + 3) % 5 * (T // 4) - np.clip(X.astype(np.int64) * 3 - 1, 0, 63)
    np.testing.assert_array_equal(one(lines, X, index_bits), expected)


def test_wide_arithmetic_in_a_narrow_kernel() -> None:
    """An s64 operand widens an index; the clamp brings it back."""
    lines = ["w = int64(v) * 4000000000 + t", "if int64(1) != int64(2):", "    store_s64(b1, t, w)"]
    np.testing.assert_array_equal(one(lines, X), X.astype(np.int64) * 4000000000 + T)


def test_divergent_loops_and_branches() -> None:
    lines = [
        "n = int64(0)",
        "for i in range(t, 64, 3):",
        "    if v < int32(0):",
        "        n = n - i",
        "    elif v == int32(7):",
        "        pass",
        "    else:",
        "        for j in range(0, remainder_pos(i, 4)):",
        "            n = n + j + 1",
        "store_s64(b1, t, n)",
    ]
    x = np.where(T % 5 == 0, 7, X).astype(np.int32)
    expected = [
        sum(-i if v < 0 else 0 if v == 7 else (i % 4) * (i % 4 + 1) // 2 for i in range(t, 64, 3))
        for t, v in zip(range(64), x.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(one(lines, x), expected)


def test_a_name_may_be_assigned_in_both_arms_first() -> None:
    lines = ["if v < int32(0):", "    n = ineg(v)", "else:", "    n = v", "store_s32(b1, t, n)"]
    np.testing.assert_array_equal(one(lines, X, out="s32"), np.abs(X))


def test_registers_keep_their_values_across_loops() -> None:
    lines = [
        "x = registers_s32(4)",
        "for k in unroll(4):",
        "    x[k] = v",
        "for i in range(0, 3):",
        "    for k in unroll(4):",
        "        if v != int32(3):",
        "            x[k] = iadd(x[k], convert_s32(i * k))",
        "store_s32(b1, t, isub(x[3], x[1]))",
    ]
    np.testing.assert_array_equal(one(lines, X, out="s32"), np.where(X == 3, 0, 6))


def test_elements_of_a_loaded_vector_may_be_assigned() -> None:
    lines = [
        "w = read_s32x2(b0, quotient(t, 2) * 2)",
        "if v > int32(0):",
        "    w[1] = v",
        "store_s32(b1, t, w[1])",
    ]
    expected = np.where(X > 0, X, X.reshape(-1, 2)[:, 1].repeat(2))
    np.testing.assert_array_equal(one(lines, X, out="s32"), expected)


def test_an_array_may_change_between_copies() -> None:
    lines = [
        "a = registers_s32(1)",
        "a[0] = v",
        "for k in unroll(3):",
        "    n = registers_s32(1)",
        "    n[0] = iadd(a[0], int32(1))",
        "    a = n",
        "store_s32(b1, t, a[0])",
    ]
    np.testing.assert_array_equal(one(lines, X, out="s32"), X + 3)


def test_branches_known_when_unrolled_leave_no_trace() -> None:
    lines = [
        "n = v",
        "for k in unroll(4):",
        "    if remainder_pos(k, 2) == 1:",
        "        n = iadd(n, v)",
        "store_s32(b1, t, n)",
    ]
    np.testing.assert_array_equal(one(lines, X, out="s32"), X * 3)


def test_a_name_may_stand_for_one_of_several_parameters() -> None:
    """As where equal lanes share their code."""
    lines = ["if block() < 1:", "    source = b0", "else:", "    source = b1", "t = thread()"]
    lines += ["store_f32(b2, block() * 64 + t, read_f32(source, t))"]
    names: list[tuple[str, Mode]] = [("x", "read"), ("y", "read"), ("z", "write")]
    x, y, z = np.arange(64, dtype=np.float32), -np.ones(64, np.float32), np.zeros(128, np.float32)
    run(kernel(lines, [Parameter(n, "f32", 64, mode) for n, mode in names], grid=2, block=64), [x, y, z])
    np.testing.assert_array_equal(z, np.concatenate([x, y]))


def test_literals() -> None:
    lines = ["n = select(v < int32(0), float32(-inf), float32(1e-05)) + float32(nan) * float32(0.0)"]
    assert np.isnan(one([*lines, "store_f32(b1, t, n)"], X, out="f32")).all()
    lines = ["n = select(v < int32(0), -float32(inf), float32(-1.5))", "store_f32(b1, t, n)"]
    np.testing.assert_array_equal(one(lines, X, out="f32"), np.where(X < 0, -np.inf, np.float32(-1.5)))


REFUSED = {
    "while v < 3:\n    pass": "a statement of kernel text",
    "n = v ** 2": r"\+ - \* / of floats",
    "n = unknown(v)": "a function of the vocabulary",
    "n = exp(v)": "f32 or f64 in exp",
    "n = iadd(v)": "2 arguments of iadd",
    "n = iadd(v, float32(1.0))": "operands of one type",
    "n = 0.5": "an expression",
    "n = w": "a name that is assigned before",
    "n = 1\nn = v": "n to stay index",
    "x = registers_f32(4)\nx[t] = float32(1.0)": "an index of x known when unrolled",
    "x = registers_f32(4)\nn = x[4]": "within 0..3",
    "x = registers_f32(4)\nn = x + v": "a scalar",
    "x = registers_f32(t)": "a positive number",
    "if v:\n    pass": "bool in a condition",
    "if t < 3:\n    x = registers_f32(1)\nn = x[0]": "a name that is assigned before|an array",
    "for k in unroll(t):\n    pass": "a constant",
    "for k in range(0, 4, 0):\n    pass": "a positive step",
    "for k in range(0, 4):\n    k = 3": "a loop variable",
    "for k in [1, 2]:\n    pass": "a statement of kernel text",
    "n = shuffle_xor(v, 3)": "a constant m",
    "barrier_team(16, 64)": "from 1 to 15",
    "barrier_team(1, 48)": "a constant multiple of 32",
    "n = read_f32(v, t)": "a parameter of the function",
    "n = store_s32(b1, t, v)": "a value",
    "store_s32(b1, t, float32(1.0))": "s32 in store_s32",
    "n = bitcast_f64(v)": "a scalar of 64 bits",
    "n = quotient(3, 0)": "a >= 0 and k > 0",
    "n = int32(1.5)": "an integer in s32",
    "n = float32(v)": "a literal",
}


@pytest.mark.parametrize("body", REFUSED)
def test_refusals_quote_the_line(body: str) -> None:
    lines = ["t = thread()", "v = read_s32(b0, t)", *body.splitlines()]
    both = [Parameter("x", "s32", 64, "read"), Parameter("y", "s32", 64, "write")]
    with pytest.raises(UnsupportedError, match=REFUSED[body]) as caught:
        ptx(kernel(lines, both))
    assert "line " in caught.value.where


def test_gpus_and_drivers_that_are_too_old() -> None:
    with pytest.raises(UnsupportedError, match=r"compute capability"):
        ptx(norm(), (5, 0), "8.0")
    with pytest.raises(UnsupportedError, match=r"reads PTX 8.7"):
        ptx(norm(), (12, 0), "8.0")


def test_errors_come_without_the_compilers_frames() -> None:
    """Numba's own frames and its wrapping exceptions say nothing about kernel text."""
    with pytest.raises(UnsupportedError) as caught:
        ptx(kernel(["n = exp(1)"], [Parameter("x", "f32", 1, "read")]))
    assert caught.value.__cause__ is None
    assert not [entry for entry in caught.traceback if "numba" in str(entry.path)]


def test_numpy_without_an_alias_that_numba_cuda_names() -> None:
    script = (
        "import numpy\n"
        "if hasattr(numpy, 'row_stack'): del numpy.row_stack\n"
        "import jstitch.codegen.cuda.compile_kernel\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_launch_of_nothing() -> None:
    broken = replace(norm(), launches=(replace(norm().launches[0], function="phase7"),))
    with pytest.raises(KeyError, match="phase7"):
        ptx(broken)
