"""Every form that the fast front end lowers means what Numba's own front end says it means.

One text holds a function per form; both sides compile it once, and each function runs on the same memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from jstitch.codegen.cpu import math
from jstitch.codegen.cpu.compile_kernel import compile_kernel
from jstitch.codegen.cpu.lower_text import Unsupported, lower_text
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.codegen.parse_text import functions_of
from jstitch.runtime.machine_code import compile_modules
from jstitch.runtime.native_object import load_objects
from jstitch.runtime.numba_compiler import NativeFunction, compile_functions

TYPES = "boolean int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
KNOWN = {**math.functions(), **{n: getattr(numba, n) for n in TYPES}, "inf": np.inf, "nan": np.nan}
LOADS = ("    f = load_f32(x, 3, 0)\n", "    i = load_s32(x, 4, 0)\n", "    u = load_u8(x, 201, 0)\n")
START = "(bufs, arena, program):\n    x = load_s64(bufs, 0, 0)\n    y = load_s64(bufs, 1, 0)\n" + "".join(
    LOADS
)

# value, and the type it is stored as
EXPRESSIONS = {
    "int literal": ("7", "s64"),
    "large literal": ("9223372036854775807", "s64"),
    "smallest literal": ("-9223372036854775808", "s64"),
    "float literal": ("0.1", "f64"),
    "negative zero": ("-0.0", "f64"),
    "typed negative zero": ("float32(-0.0)", "f32"),
    "bool literals": ("and_(True, xor(i > 0, False))", "bool"),
    "infinity": ("-inf", "f64"),
    "typed nan": ("float32(nan)", "f32"),
    "float of an int literal": ("float32(3)", "f32"),
    "float of a bool": ("float32(True)", "f32"),
    "rounded literal": ("float32(16777217)", "f32"),
    "int of a bool literal": ("int32(True)", "s32"),
    "bool of an int literal": ("boolean(6)", "bool"),
    "bool of zero": ("boolean(0)", "bool"),
    "literal that wraps": ("int64(int8(300))", "s64"),
    "negative unsigned": ("uint8(-1)", "u8"),
    "largest unsigned": ("uint64(18446744073709551615)", "u64"),
    "widened": ("int64(i)", "s64"),
    "widened unsigned": ("int64(u)", "s64"),
    "narrowed": ("int8(i)", "s8"),
    "other sign": ("uint32(i)", "u32"),
    "int of a comparison": ("int32(i < 3)", "s32"),
    "ints add to 64 bits": ("i + i", "s64"),
    "mixed signs": ("i - int64(u)", "s64"),
    "literal of the other side": ("3 - program", "s64"),
    "int times float": ("i * 0.5", "f64"),
    "int by int": ("i / 7", "f64"),
    "int by zero": ("i / program", "f64"),
    "float by zero": ("f / float32(0.0)", "f32"),
    "float by literal": ("f / 3.0", "f64"),
    "narrow float arithmetic": ("f * f - f + float32(1.5)", "f32"),
    "minus float": ("-f", "f32"),
    "minus int": ("-i", "s64"),
    "minus minus": ("--f", "f32"),
    "compare ints": ("i <= 5", "bool"),
    "compare mixed": ("i != f", "bool"),
    "compare nan": ("float32(nan) == float32(nan)", "bool"),
    "compare nan not equal": ("float32(nan) != f", "bool"),
    "compare bools": ("(i > 0) == (f > 0.0)", "bool"),
    "compare unsigned": ("u >= uint8(200)", "bool"),
    "compare with a negative": ("int64(u) > -1", "bool"),
    "nested calls": ("select(i > 0, maximum(f, exp(f)), minimum(f, float32(0.5)))", "f32"),
    "index of an index": ("load_s32(x, quotient(i * i + 40, 11), 0)", "s32"),
}
STATEMENTS = {
    "docstring and pass": '"""Text."""\n    pass\n    store_s64(y, 0, 1, 1)',
    "a name for a literal": "k = 5\n    store_s64(y, k, k + k, 1)",
    "a name twice": "k = 5\n    k = k + 1\n    store_s64(y, 0, k, 1)",
    "a copy is not an alias": "k = 5\n    n = k\n    k = k + 1\n    store_s64(y, 0, n * 100 + k, 1)",
    "a name per block": (
        "for r in range(0, 4):\n        v = r * r\n        store_s64(y, r, v, 1)\n"
        "    v = f + f\n    store_f32(y, 20, v, 1)"
    ),
    "a name per branch": (
        "if i > 0:\n        v = f * f\n        store_f32(y, 0, v, 1)\n"
        "    else:\n        v = -f\n        store_f32(y, 1, v, 1)"
    ),
    "carried out of a loop": "k = 1\n    for r in range(0, 5):\n        k = k * 2\n    store_s64(y, 0, k, 1)",
    "carried out of branches": (
        "v = float32(0.0)\n    for r in range(0, 9):\n        if r < 4:\n            v = v + f\n"
        "        elif r < 7:\n            v = v - float32(2.0)\n        else:\n            v = v * v\n"
        "    store_f32(y, 0, v, 1)"
    ),
    "carried bool": (
        "v = i > 0\n    for r in range(0, 3):\n        v = xor(v, r != 1)\n    store_bool(y, 3, v, 1)"
    ),
    "assigned twice inside a loop": (
        "for r in range(0, 4):\n        v = r\n        v = v + 10\n        store_s64(y, r, v, 1)"
    ),
    "inner then outer": (
        "for q in range(0, 3):\n        for r in range(0, 2):\n            v = r + q\n"
        "            store_s64(y, q * 2 + r, v, 1)\n        v = 100 + q\n        store_s64(y, 8 + q, v, 1)"
    ),
    "one loop variable for two loops": (
        "for r in range(0, 2):\n        store_s64(y, r, r, 1)\n    for r in range(5, 7):\n"
        "        store_s64(y, r, -r, 1)"
    ),
    "bounds from data": (
        "k = 0\n    for r in range(int64(u) - int64(u), 6 - program):\n        k = k + r\n"
        "    store_s64(y, 0, k, 1)"
    ),
    "bounds are read once": (
        "k = 3\n    for r in range(0, k):\n        k = k + 1\n    store_s64(y, 0, k, 1)"
    ),
    "backwards is empty": "k = 1\n    for r in range(9, 2):\n        k = 7\n    store_s64(y, 0, k, 1)",
    "triangle": (
        "k = 0\n    for q in range(0, 9):\n        for r in range(q, 9):\n            k = k + r * q\n"
        "    store_s64(y, 0, k, 1)"
    ),
    "if on an int": "if i:\n        store_s64(y, 0, 1, 1)\n    else:\n        store_s64(y, 0, 2, 1)",
    "if on zero": "if program:\n        store_s64(y, 0, 1, 1)\n    else:\n        store_s64(y, 0, 2, 1)",
    "if on a float": "if f:\n        store_s64(y, 0, 1, 1)",
    "if on nan": "if float32(nan):\n        store_s64(y, 0, 1, 1)\n    else:\n        store_s64(y, 0, 2, 1)",
    "if on a literal": "if True:\n        store_s64(y, 0, 1, 1)\n    else:\n        store_s64(y, 0, 2, 1)",
    "if without else": "if i < -100:\n        store_s64(y, 0, 1, 1)\n    store_s64(y, 1, 1, 1)",
    "a name that hides infinity": "inf = 3.0\n    store_f64(y, 0, inf, 1)",
    "a long loop": "for r in range(0, 64):\n        v = load_f32(x, r, 0)\n"
    + "".join(f"        v = v * v + float32({k}.5)\n" for k in range(12))
    + "        store_f32(y, r, v, 1)",
}
# what Python and Numba know, and this front end leaves to Numba
REFUSED = {
    "while": "k = 0\n    while k < 5:\n        store_s64(y, k, k, 1)\n        k = k + 1",
    "augmented": "k = 1\n    k += 2\n    store_s64(y, 0, k, 1)",
    "annotated": "k: int = 3\n    store_s64(y, 0, k, 1)",
    "two targets": "k = n = 2\n    store_s64(y, 0, k + n, 1)",
    "tuple": "k, n = 1, 2\n    store_s64(y, 0, k + n, 1)",
    "one bound": "for r in range(3):\n        store_s64(y, r, r + 1, 1)",
    "step": "for r in range(0, 9, 2):\n        store_s64(y, r, r + 1, 1)",
    "else of a loop": "for r in range(0, 2):\n        pass\n    else:\n        store_s64(y, 0, 1, 1)",
    "break": "for r in range(0, 9):\n        store_s64(y, r, 1, 1)\n        if r > 3:\n            break",
    "continue": (
        "for r in range(0, 9):\n        if r > 3:\n            continue\n        store_s64(y, r, 1, 1)"
    ),
    "return": "store_s64(y, 0, 1, 1)\n    return",
    "early return": "store_s64(y, 0, 1, 1)\n    if i > 0:\n        return\n    store_s64(y, 1, 1, 1)",
    "conditional expression": "store_s64(y, 0, 1 if i > 0 else 2, 1)",
    "chained comparison": "store_bool(y, 0, 0 < i < 5, 1)",
    "and": "store_bool(y, 0, i > 0 and f > 0, 1)",
    "not": "store_bool(y, 0, not i > 0, 1)",
    "plus": "store_f32(y, 0, +f, 1)",
    "power": "store_s64(y, 0, i ** 2, 1)",
    "floor division": "store_s64(y, 0, i // 2, 1)",
    "remainder": "store_s64(y, 0, i % 3, 1)",
    "bitwise": "store_s64(y, 0, (i & 3) | (i << 2), 1)",
    "built-in call": "store_s32(y, 0, abs(i), 1)",
    "conversion of a float": "store_s32(y, 0, int32(f), 1)",
    "conversion of a fraction": "store_s32(y, 0, int32(2.5), 1)",
    "conversion between floats": "store_f64(y, 0, float64(f), 1)",
    "read after its loop": "for r in range(0, 3):\n        v = r\n    store_s64(y, 0, v, 1)",
    "loop variable after its loop": "for r in range(0, 3):\n        pass\n    store_s64(y, 0, r, 1)",
    "assigned in both branches": (
        "if i > 0:\n        v = 1\n    else:\n        v = 2\n    store_s64(y, 0, v, 1)"
    ),
    "loop variable assigned": "for r in range(0, 3):\n        store_s64(y, r, r, 1)\n        r = r + 1",
    "loop over a used name": (
        "r = 5\n    for r in range(0, 3):\n        store_s64(y, r, r, 1)\n    store_s64(y, 4, r, 1)"
    ),
    "argument assigned": "program = program + 2\n    store_s64(y, 0, program, 1)",
    "two types of one name": "k = 1\n    k = f\n    store_f32(y, 0, k, 1)",
    "narrow bounds": "for r in range(int32(1), int32(4)):\n        store_s32(y, int64(r), r, 1)",
    "unsigned bounds": "for r in range(uint64(0), uint64(3)):\n        store_s64(y, int64(r), 1, 1)",
}
# what nobody compiles
WRONG = {
    "walrus": "store_s64(y, 0, (k := 3) + k, 1)",
    "unknown name": "v = nothing",
    "unknown call": "v = nothing(f)",
    "too few arguments": "v = exp()",
    "too many arguments": "v = exp(f, f)",
    "keyword": "v = exp(a=f, b=f)",
    "types of no operator": "v = f + None",
    "scope from data": "v = load_f32(x, 0, i)",
    "bound that is a float": "for r in range(0, f):\n        pass",
    "literal of no type": "v = 99999999999999999999999 + i",
    "converts nothing": "v = float32()",
    "converts two": "v = int32(1, 2)",
    "text": "v = 'text'",
    "subscript": "v = x[0]",
    "attribute": "v = x.real.imag.y",
    "a global": "store_f64(y, 0, f * LIMIT, 1)",
}


def text_of(bodies: dict[str, str]) -> str:
    functions = (f"def f{n}{START}    {body}\n" for n, body in enumerate(bodies.values()))
    return "LIMIT = 2.5\n" + "\n".join(functions)


def memory() -> NDArray[np.float32]:
    """f = 0.75, i = -23, u = 250, and floats around them."""
    x = np.linspace(-1.0, 1.0, 64, dtype=np.float32)
    x[3] = 0.75
    x[4] = np.array([-23], np.int32).view(np.float32)[0]
    x.view(np.uint8)[201] = 250
    return x


def run(address: int) -> bytes:
    x, y = memory(), np.zeros(256, np.uint8)
    bufs = (ctypes.c_int64 * 2)(x.ctypes.data, y.ctypes.data)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(address)(ctypes.addressof(bufs), 0, 0)
    return y.tobytes()


def by_numba(bodies: dict[str, str], tag: str) -> list[bytes]:
    known = dict(KNOWN)
    exec(text_of(bodies), known)
    symbols = [f"jstitch_forms_{tag}_{n}" for n in range(len(bodies))]
    natives = [NativeFunction(s, known[f"f{n}"], 3) for n, s in enumerate(symbols)]
    return [run(a) for a in load_objects([compile_functions(natives, symbols)], symbols)]


def by_python(body: str) -> bytes:
    """The body run as Python: loads read from `memory()`, stores write into zeros."""
    y = np.zeros(256, np.uint8)

    def store(dtype: str) -> Callable[..., None]:
        def write(base: object, index: int, value: object, scope: int) -> None:
            y.view(dtype)[index] = value

        return write

    stores = {"store_s32": "i4", "store_s64": "i8", "store_f32": "f4", "store_f64": "f8", "store_bool": "?"}
    known: dict[str, Any] = {
        **{name: store(dtype) for name, dtype in stores.items()},
        **{"load_s64": lambda *_: None, "load_f32": lambda *_: 0.75},
        **{"load_s32": lambda *_: -23, "load_u8": lambda *_: 250},
        **{"int32": int, "int64": int, "uint64": int, "float64": float, "float32": float},
    }
    exec(text_of({"": body}), known)
    known["f0"](0, 0, 0)
    return y.tobytes()


LOWERED = {
    **{name: f"store_{kind}(y, 5, {value}, 1)" for name, (value, kind) in EXPRESSIONS.items()},
    **STATEMENTS,
}


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    return dict(zip(LOWERED, by_numba(LOWERED, "numba"), strict=True))


@pytest.fixture(scope="module")
def lowered() -> dict[str, bytes]:
    functions = {f"jstitch_forms_ours_{n}": f"f{n}" for n in range(len(LOWERED))}
    data = compile_modules([lower_text(functions_of(text_of(LOWERED)), KNOWN, functions)])
    return dict(zip(LOWERED, map(run, load_objects(data, list(functions))), strict=True))


@pytest.mark.parametrize("name", LOWERED)
def test_same_bytes_as_numba(name: str, lowered: dict[str, bytes], expected: dict[str, bytes]) -> None:
    assert lowered[name] == expected[name]


@pytest.fixture(scope="module")
def refused() -> dict[str, bytes]:
    """The refused forms, compiled as a kernel is: by Numba, since lower_text refuses the whole text."""
    phases = tuple(PhaseSource(f"f{n}", 1, 1) for n in range(len(REFUSED)))
    text = text_of(REFUSED).replace("LIMIT = 2.5", "from numba import float32, float64, int32, int64, uint64")
    symbols = [f"jstitch_forms_refused_{n}" for n in range(len(REFUSED))]
    data = compile_kernel(KernelSource("refused", text, 2, 0, 0, 0, phases), symbols)
    return dict(zip(REFUSED, map(run, load_objects(data, symbols)), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_numba_compiles_what_is_refused(name: str, refused: dict[str, bytes]) -> None:
    """Against plain Python, with NumPy for memory."""
    assert refused[name] == by_python(REFUSED[name])


@pytest.mark.parametrize("name", [*REFUSED, *WRONG])
def test_refusals(name: str) -> None:
    text = text_of({name: (REFUSED | WRONG)[name]})
    with pytest.raises(Unsupported):
        lower_text(functions_of(text), KNOWN | {"LIMIT": 2.5}, {"jstitch_forms_refused": "f0"})
