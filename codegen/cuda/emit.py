"""Kernel -> text of CUDA kernels, by way of the Launch IR: a function for each launch."""

from __future__ import annotations

from dataclasses import dataclass

from jstitch.codegen.cuda.check_launch import check_launch
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.index_bits import index_bits
from jstitch.codegen.cuda.launch_kernel import Launches, launch_kernel
from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.codegen.global_names import global_names
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.launch_ir import LaunchCode
from jstitch.codegen.print_launch import print_launch


@dataclass(frozen=True)
class Emitted:
    """A kernel's launches, and the source that says the same."""

    made: Launches
    source: CudaSource


def emit(kernel: Kernel, arena_bytes: int) -> Emitted:
    """Launches and text of a kernel. arena_bytes: shared memory that a CTA may have. Raises NoRoom."""
    made = launch_kernel(kernel, arena_bytes)
    for code in made.codes:
        if problems := check_launch(code):
            raise NoRoom(f"a launch that does not keep its order or its bounds: {problems[0]}")
    texts = [print_launch(code) for code in made.codes]
    body = "".join(f"\n\n{text}\n" for text in texts).rstrip("\n")
    launches = tuple(_launch(code, text) for code, text in zip(made.codes, texts, strict=True))
    return Emitted(made, CudaSource(kernel.name, f"{_imports(body)}{body}\n", launches))


def _imports(body: str) -> str:
    return f"from jstitch.codegen.cuda.math import {', '.join(sorted(global_names(body)))}\n"


def _launch(code: LaunchCode, text: str) -> Launch:
    """text: of its function."""
    return Launch(
        code.name,
        code.grid,
        code.block,
        code.shared_bytes,
        index_bits(text, code.grid, code.block),
        code.parameters,
        code.work,
        code.bytes_read,
        code.bytes_written,
    )
