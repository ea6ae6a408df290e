"""Compile one loop around a vocabulary expression and run it on NumPy arrays.

loop = compile_loop("maximum({0}, {1})", ("f32", "f32"), "f32")
loop(a, b)          # array of the result's storage dtype
loop.assembly       # text
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numba
import numpy as np

from jstitch.codegen.cpu import math

NUMPY: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(bool),
    **{f"s{8 * n}": np.dtype(f"i{n}") for n in (1, 2, 4, 8)},
    **{f"u{8 * n}": np.dtype(f"u{n}") for n in (1, 2, 4, 8)},
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
NUMBA_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
POINTERS = 63  # the buffer number of the table of addresses


def compile_source(source: str, name: str = "kernel") -> Any:
    """The function `name(bufs, n)` of a source in the vocabulary, compiled as kernels are."""
    names = {**math.functions(), **{t: getattr(numba, t) for t in NUMBA_TYPES}}
    exec(source, names)
    options = {"fastmath": {"contract"}, "error_model": "numpy"}
    return numba.njit("void(int64, int64)", **options)(names[name])


def assembly(function: Any) -> str:
    """Instructions only: without directives and labels."""
    (text,) = function.inspect_asm().values()
    return "\n".join(line for line in text.splitlines() if re.match(r"\s+[a-z]", line))


@dataclass(frozen=True)
class Loop:
    """A compiled elementwise loop with one or several results."""

    function: Any
    results: tuple[str, ...]

    def all(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Every result, of the shape of the inputs."""
        arrays = [np.ascontiguousarray(a) for a in inputs]
        outs = [np.zeros(arrays[0].shape, NUMPY[result]) for result in self.results]
        run(self.function, outs[0].size, *arrays, *outs)
        return outs

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        """The only result."""
        (out,) = self.all(*inputs)
        return out

    @property
    def assembly(self) -> str:
        return assembly(self.function)


def run(function: Any, n: int, *arrays: np.ndarray) -> None:
    """Call a compiled kernel on the arrays' addresses."""
    addresses = np.array([a.ctypes.data for a in arrays], np.int64)
    function(addresses.ctypes.data, n)


def compile_loop(expression: str, operands: tuple[str, ...], result: str) -> Loop:
    """result[i] = expression of operand 0, 1, ... at i."""
    return compile_loops(((expression, result),), operands)


@functools.cache
def compile_loops(results: tuple[tuple[str, str], ...], operands: tuple[str, ...]) -> Loop:
    """Several (expression, result dtype) of the same operands in one loop: one compilation."""
    count = len(operands)
    lines = ["def kernel(bufs, n):"]
    lines += [f"    p{k} = load_s64(bufs, {k}, {POINTERS})" for k in range(count + len(results))]
    lines += ["    for i in range(n):"]
    lines += [f"        x{k} = load_{dtype}(p{k}, i, {k})" for k, dtype in enumerate(operands)]
    for k, (expression, dtype) in enumerate(results, count):
        value = expression.format(*(f"x{j}" for j in range(count)))
        lines += [f"        store_{dtype}(p{k}, i, {value}, {k})"]
    return Loop(compile_source("\n".join(lines)), tuple(dtype for _, dtype in results))


def run_separate_loops(jobs: Sequence[tuple[str, Sequence[np.ndarray], str]]) -> list[np.ndarray]:
    """Results of many (expression, inputs, result dtype) of one size: one function of many loops."""
    names = {dtype: name for name, dtype in NUMPY.items()}
    arrays: list[np.ndarray] = []
    outs: list[np.ndarray] = []
    lines = ["def kernel(bufs, n):"]
    for expression, inputs, result in jobs:
        first = len(arrays)
        outs.append(np.zeros(inputs[0].shape, NUMPY[result]))
        arrays += [*map(np.ascontiguousarray, inputs), outs[-1]]
        lines += [f"    p{k} = load_s64(bufs, {k}, {POINTERS})" for k in range(first, len(arrays))]
        values = [f"load_{names[a.dtype]}(p{first + k}, i, {k})" for k, a in enumerate(inputs)]
        store = f"store_{result}(p{len(arrays) - 1}, i, {expression.format(*values)}, {len(inputs)})"
        lines += ["    for i in range(n):", f"        {store}"]
    run(compile_source("\n".join(lines)), outs[0].size, *arrays)
    return outs
