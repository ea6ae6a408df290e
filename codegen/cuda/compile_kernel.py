"""One launch of a CudaSource -> PTX, by a Numba CUDA kernel. Importing this module imports numba.cuda.

The kernel's body is one intrinsic that writes all of its LLVM IR: Numba's front end sees a single call, its
back end (libNVVM, libdevice) compiles the rest. Parameters are read by name, and declared in the text of the
entry afterwards: Numba would spend seconds on a signature of several hundred. The same source, launch and
toolchain give the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

if not hasattr(np, "row_stack"):  # NumPy 2.5 removed it; numba-cuda 0.30 still names it at import
    np.row_stack = np.vstack  # type: ignore[attr-defined,unused-ignore]

from numba import cuda
from numba.core import types
from numba.cuda.cudadrv.error import CCSupportError, CudaSupportError
from numba.cuda.extending import intrinsic

from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.lower_text import lower_function
from jstitch.codegen.cuda.ptx_text import (
    MANY,
    RESIDENT,
    entry_name,
    finish,
    parameter,
    parse_version,
    with_resident,
)
from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.codegen.cuda.spills import without_spills
from jstitch.device_spec import held_by_shared
from jstitch.errors import UnsupportedError

_numba: Any = types
Pair = tuple[int, int]
SMALL_PARAMETERS = 4096  # bytes; more of them need the version of PTX
LARGE_PARAMETERS = (8, 1)
_BYTES, _WORD = ir.IntType(8).as_pointer(), ir.IntType(64)
# the first PTX version with each architecture
_FIRST_VERSION = {
    **{(7, 5): (6, 3), (8, 0): (7, 0), (8, 6): (7, 1), (8, 7): (7, 4), (8, 9): (7, 8), (9, 0): (7, 8)},
    **{(10, 0): (8, 6), (12, 0): (8, 7), (10, 3): (8, 8), (12, 1): (8, 8)},
}


def compile_launch(source: CudaSource, launch: Launch, capability: tuple[int, int], ptx_version: str) -> str:
    """PTX for GPUs of that compute capability and drivers that read that PTX version ("8.0").

    Raises UnsupportedError for text outside the contract and for GPUs that the installed toolchain or the
    PTX version does not know, KeyError for a launch of a function that the text does not define.
    """
    _check_version(capability, ptx_version)
    problems: list[Exception] = []
    large = 8 * len(launch.parameters) > SMALL_PARAMETERS
    version = max(parse_version(ptx_version), LARGE_PARAMETERS) if large else parse_version(ptx_version)
    body = _body(source, launch, (capability, version), problems)

    def kernel() -> None:
        body()

    options = {"device": False, "output": "ptx", "abi": "numba", "launch_bounds": launch.block}
    try:
        text, _ = cuda.compile(kernel, types.void(), cc=capability, **options)
    except (CCSupportError, CudaSupportError) as error:
        raise _unsupported(capability, error) from error
    except Exception:
        if not problems:
            raise
        raise problems[0].with_traceback(None) from None
    entry = entry_name(source.name, launch.function)
    text = finish(text, entry, launch.block, version, len(launch.parameters))
    if len(launch.parameters) > MANY:
        return with_resident(text, RESIDENT)
    if held := held_by_shared(capability, launch.block, launch.shared_bytes):
        return with_resident(text, max(1, held // 2))  # as many registers again as all of them could have
    return without_spills(text, launch.block, capability)


def _check_version(capability: tuple[int, int], ptx_version: str) -> None:
    first = _FIRST_VERSION.get(capability, (0, 0))
    if parse_version(ptx_version) < first:
        raise UnsupportedError(
            f"a driver that reads PTX {first[0]}.{first[1]} for compute capability {_dotted(capability)}",
            f"one that reads PTX {ptx_version}",
            hint="install a newer NVIDIA driver",
        )


def _unsupported(capability: tuple[int, int], error: Exception) -> UnsupportedError:
    return UnsupportedError(
        "a CUDA toolchain for the GPU's compute capability",
        f"{_dotted(capability)}: {error}",
        hint="pip install 'jstitch[cuda]'; CUDA 13 supports GPUs from compute capability 7.5",
    )


def _dotted(pair: tuple[int, int]) -> str:
    return f"{pair[0]}.{pair[1]}"


def _body(source: CudaSource, launch: Launch, device: tuple[Pair, Pair], problems: list[Exception]) -> Any:
    """The intrinsic; what goes wrong inside is kept, because Numba wraps it. device: its
    compute capability and PTX version."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        own = Builder(builder.block, *device, launch.index_bits)
        try:
            pointers = [_pointer(own, k) for k in range(len(launch.parameters))]
            lower_function(own, source.text, launch.function, pointers)
        except Exception as error:
            problems.append(error)
            raise
        builder.position_at_end(own.block)
        return context.get_dummy_value()

    return intrinsic(lambda typing: (types.void(), write))


def _pointer(builder: Builder, number: int) -> Any:
    load = ir.InlineAsm(ir.FunctionType(_WORD, []), f"ld.param.u64 $0, [{parameter(number)}];", "=l")
    return builder.inttoptr(builder.call(load, []), _BYTES)
