"""Kernel -> Numba source for the CPU, by way of the Launch IR: a function for each phase."""

from __future__ import annotations

from dataclasses import dataclass

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cpu.check_phases import check_phases
from jstitch.codegen.cpu.launch_phases import launch_phases
from jstitch.codegen.global_names import global_names
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.codegen.print_launch import print_phase


@dataclass(frozen=True)
class Emitted:
    """The source, and what its slots are: operand and result numbers of the kernel, in slot order."""

    source: KernelSource
    operands: tuple[int, ...]
    results: tuple[int, ...]


def emit(kernel: Kernel) -> Emitted:
    """Source whose phase functions have the runtime's signature (see kernel_source).

    Raises CannotBuildError for phases that are not seen to keep to their memory.
    """
    made = launch_phases(kernel)
    if problems := check_phases(made):
        raise CannotBuildError(f"a phase that does not keep its order or its bounds: {problems[0]}")
    body = "".join(f"\n\n{print_phase(phase)}\n" for phase in made.phases).rstrip("\n")
    source = KernelSource(
        kernel.name,
        f"{_imports(body)}{body}\n",
        len(made.operands),
        len(made.results),
        kernel.scratch_bytes,
        kernel.arena_bytes,
        tuple(PhaseSource(phase.name, phase.programs, phase.alone_ns) for phase in made.phases),
    )
    return Emitted(source, made.operands, made.results)


def _imports(body: str) -> str:
    """Import lines for the names that the text uses."""
    wanted = global_names(body)
    lines = []
    for module, names in MODULES.items():
        if wanted & names:
            lines.append(f"from {module} import {', '.join(sorted(wanted & names))}\n")
    calls = wanted.difference(*MODULES.values())
    return "".join([*lines, f"from {MATH} import {', '.join(sorted(calls))}\n"])


MATH = "jstitch.codegen.cpu.math"
MODULES: dict[str, set[str]] = {
    "math": {"inf", "nan"},
    "numba": {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)},
}
"""What texts import, besides the functions of MATH."""
