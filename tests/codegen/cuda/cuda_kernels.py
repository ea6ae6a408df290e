"""Small CUDA sources for tests: their PTX, and what ptxas says about it.

source = elementwise((("exp({0})", "f32"),), ("f32",), 1000)
assemble(ptx(source, (9, 0)), (9, 0)).spills
run(source, [x, y])                              # by the interpreter
(y,) = run_elementwise((("exp({0})", "f32"),), [x])
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jstitch.codegen.cuda.ptx import run_ptx
from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.codegen.launch_ir import Parameter

needs_numba_cuda = pytest.mark.skipif(
    util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed"
)
# GPU generations, and a PTX version that their first drivers read
TARGETS = {(7, 5): "8.0", (8, 0): "8.0", (8, 9): "8.1", (9, 0): "8.0", (10, 0): "8.6", (12, 0): "8.7"}
BLOCK = 128
NUMPY: dict[str, np.dtype] = {
    "bool": np.dtype(bool),
    **{f"s{8 * n}": np.dtype(f"i{n}") for n in (1, 2, 4, 8)},
    **{f"u{8 * n}": np.dtype(f"u{n}") for n in (1, 2, 4, 8)},
    **{"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)},
    **{"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)},
    **{"f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn), "f8e5m2": np.dtype(ml_dtypes.float8_e5m2)},
}
DTYPES = {dtype: name for name, dtype in NUMPY.items()}


def kernel(
    lines: Sequence[str],
    parameters: Sequence[Parameter],
    grid: int = 1,
    block: int = BLOCK,
    shared: int = 0,
    index_bits: int = 32,
) -> CudaSource:
    """A source of one launch, whose parameters are called b0, b1, ..."""
    names = ", ".join(f"b{k}" for k in range(len(parameters)))
    text = "\n".join([f"def phase0({names}):", *(f"    {line}" for line in lines)]) + "\n"
    bits = 32 if index_bits == 32 else 64
    launch = Launch("phase0", grid, block, shared, bits, tuple(parameters), 1)  # type: ignore[arg-type]
    return CudaSource("test", text, (launch,))


def elementwise(
    results: Sequence[tuple[str, str]], operands: Sequence[str], size: int, index_bits: int = 32
) -> CudaSource:
    """result k [i] = expression k of operand 0, 1, ... at i; results: (expression, dtype)."""
    lines = [f"i = block() * {BLOCK} + thread()", f"if i < {size}:"]
    lines += [f"    x{k} = read_{dtype}(b{k}, i)" for k, dtype in enumerate(operands)]
    for k, (expression, dtype) in enumerate(results, len(operands)):
        value = expression.format(*(f"x{j}" for j in range(len(operands))))
        lines.append(f"    store_{dtype}(b{k}, i, {value})")
    parameters = [Parameter(f"b{k}", dtype, size, "read") for k, dtype in enumerate(operands)]
    for k, (_, dtype) in enumerate(results, len(operands)):
        parameters.append(Parameter(f"b{k}", dtype, size, "write"))
    return kernel(lines, parameters, grid=-(-size // BLOCK), index_bits=index_bits)


@functools.cache
def ptx(source: CudaSource, capability: tuple[int, int] = (9, 0), version: str = "") -> str:
    """The PTX of the source's only launch."""
    from jstitch.codegen.cuda.compile_kernel import compile_launch

    return compile_launch(source, source.launches[0], capability, version or TARGETS[capability])


@dataclass(frozen=True)
class Assembled:
    """What ptxas reports of a kernel, in bytes; a stack means arrays or spills in local memory."""

    registers: int
    stack: int
    spills: int


def find_ptxas() -> str | None:
    """On the path, or in the nvidia-cuda-nvcc wheel."""
    wheels = Path(sysconfig.get_paths()["purelib"], "nvidia").glob("*/bin/ptxas")
    return shutil.which("ptxas") or next(map(str, wheels), None)


def assemble(text: str, capability: tuple[int, int]) -> Assembled:
    """Run ptxas; the test is skipped where there is none, and fails with its message when it refuses."""
    program = find_ptxas()
    if program is None:
        pytest.skip("ptxas is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(text)
        command = [
            program,
            "-v",
            f"-arch=sm_{capability[0]}{capability[1]}",
            str(path),
            "-o",
            f"{folder}/out",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    stack, stores, loads = map(
        int,
        re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill", done.stderr)[0],
    )
    return Assembled(int(re.findall(r"Used (\d+) registers", done.stderr)[0]), stack, stores + loads)


def run(source: CudaSource, arrays: Sequence[np.ndarray], capability: tuple[int, int] = (9, 0)) -> None:
    """Execute the source's PTX on the arrays, one per parameter, in place."""
    launch = source.launches[0]
    text = ptx(source, capability)
    run_ptx(text, f"test_{launch.function}", launch.grid, launch.block, launch.shared_bytes, arrays)


def run_elementwise(
    results: Sequence[tuple[str, str]],
    inputs: Sequence[np.ndarray],
    capability: tuple[int, int] = (9, 0),
) -> list[np.ndarray]:
    """The arrays of the results; see elementwise."""
    arrays = [np.ascontiguousarray(a) for a in inputs]
    outs = [np.zeros(arrays[0].shape, NUMPY[dtype]) for _, dtype in results]
    source = elementwise(results, [DTYPES[a.dtype] for a in arrays], arrays[0].size)
    run(source, [*arrays, *outs], capability)
    return outs
