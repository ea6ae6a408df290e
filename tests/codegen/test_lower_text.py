"""The fast front end computes what Numba's own computes, and refuses what it does not know."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest
from numba import float32, int32, int64
from numpy.typing import NDArray

from jstitch.codegen.cpu import math
from jstitch.codegen.cpu.compile_kernel import compile_kernel
from jstitch.codegen.cpu.lower_text import Unsupported, lower_text
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.codegen.parse_text import functions_of
from jstitch.runtime.machine_code import compile_modules
from jstitch.runtime.native_object import load_objects
from jstitch.runtime.numba_compiler import NativeFunction, compile_functions

HEAD = "def phase0(bufs, arena, program):\n    x = load_s64(bufs, 0, 0)\n    y = load_s64(bufs, 1, 0)\n"
ELEMENTS = 64

BODIES = {
    "elementwise": """
    for r in range(0, 64):
        v0 = load_f32(x, r, 1)
        v1 = select(v0 > float32(0.5), tanh(v0), -v0 / float32(3.0))
        store_f32(y, r, maximum(v1, float32(-inf)) - v0 * float32(1e-3), 2)
""",
    "two nests with the same names": """
    for r in range(0, 32):
        v0 = load_f32(x, r, 1)
        store_f32(y, r, v0 + v0, 2)
    for r in range(32, 64):
        v0 = load_f32(x, 63 - r, 1)
        store_f32(y, r, exp(v0) - v0, 2)
""",
    "accumulator": """
    lo = quotient(program * 64, 1)
    for q in range(lo, 8):
        acc = float32(0.0)
        for i in range(0, 8):
            acc = acc + load_f32(x, q * 8 + i, 1)
        store_f32(y, q, acc, 2)
""",
    "branches": """
    if program < 1:
        k = int64(load_s32(x, 3, 1)) - int64(load_s32(x, 3, 1)) + 5
        store_f32(y, k, float32(nan), 2)
    elif program < 2:
        store_f32(y, 0, float32(1.0), 2)
    else:
        store_f32(y, 1, float32(2.0), 2)
""",
    "empty loop": """
    for r in range(5, 2):
        store_f32(y, r, float32(1.0), 2)
""",
    "carried over branches": """
    best = int32(-7)
    for r in range(0, 64):
        v = load_s32(x, r, 1)
        best = select(v >= best, v, best)
    store_s32(y, 0, best, 2)
    store_bool(y, 17, and_(best != int32(3), True), 2)
""",
}


def names() -> dict[str, object]:
    extra = {"float32": float32, "int32": int32, "int64": int64, "inf": np.inf, "nan": np.nan}
    return {**math.functions(), **extra}


def run(data: Sequence[bytes], symbol: str) -> NDArray[np.uint32]:
    x = np.linspace(0.0, 1.0, ELEMENTS, dtype=np.float32)
    y = np.zeros(ELEMENTS, np.uint32)
    bufs = (ctypes.c_int64 * 2)(x.ctypes.data, y.ctypes.data)
    (address,) = load_objects(data, [symbol])
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(address)(ctypes.addressof(bufs), 0, 0)
    return y


@pytest.mark.parametrize("name", BODIES)
def test_same_bits_as_numba(name: str) -> None:
    text = HEAD + BODIES[name]
    known = names()
    exec(text, known)
    fast, slow = (f"jstitch_test_{side}_{list(BODIES).index(name)}" for side in ("fast", "slow"))
    ours = run(compile_modules([lower_text(functions_of(text), known, {fast: "phase0"})]), fast)
    numbas = run([compile_functions([NativeFunction(slow, known["phase0"], 3)], [slow])], slow)  # type: ignore[arg-type]
    np.testing.assert_array_equal(ours, numbas)
    assert ours.any() == (name != "empty loop")


@pytest.mark.parametrize(
    "body",
    [
        "    while program < 3:\n        program = program + 1\n",
        "    v = unknown(x)\n",
        "    v = x if program else y\n",
        "    v = 1\n    v = float32(2.0)\n",
        "    v = load_f32(x, 0, program)\n",
        "    for r in range(0, 3):\n        v = r\n    store_s64(y, 0, v, 2)\n",
        "    v = exp(x)\n",
        "    v = x ** 2\n",
    ],
)
def test_refusals(body: str) -> None:
    with pytest.raises(Unsupported):
        lower_text(functions_of(HEAD + body), names(), {"jstitch_test_refused": "phase0"})


def test_numba_compiles_what_is_refused() -> None:
    body = "    k = 0\n    while k < 5:\n        store_s64(y, k, k + 1, 2)\n        k = k + 1\n"
    text = "from jstitch.codegen.cpu.math import load_s64, store_s64\n" + HEAD + body
    source = KernelSource("while", text, 1, 1, 0, 0, (PhaseSource("phase0", 1, 5),))
    y = run(compile_kernel(source, ["jstitch_test_while"]), "jstitch_test_while")
    assert y[:10].tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]


def test_equal_kernels_of_two_names_are_one() -> None:
    first, second = (KernelSource(n, HEAD, 1, 1, 0, 0, (PhaseSource("phase0", 1, 5),)) for n in "ab")
    assert first.digest == second.digest
    assert KernelSource.from_payload(first.payload).name == "a"


@pytest.mark.parametrize(("trips", "loops"), [(1, 0), (2, 1)])
def test_a_loop_of_one_turn_is_none(trips: int, loops: int) -> None:
    """LLVM would write what it adds to a sum as a sum of its own, and make no vectors of the loop before."""
    body = f"    acc = int32(0)\n    for i in range(5, {5 + trips}):\n        acc = iadd(acc, int32(3))\n"
    body += "        store_s32(y, i, acc, 1)\n"
    text = lower_text(functions_of(HEAD + body), names(), {f"jstitch_test_turns_{trips}": "phase0"})
    assert str(text).count(" phi ") == loops
