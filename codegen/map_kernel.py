"""Change a kernel's lanes or nests one by one; what stays as it was is the same object.

map_lanes(kernel, lambda lane: map_nests(lane, unrolled))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from jstitch.codegen.kernel_ir import Kernel, Lane, Nest, Phase, Stage

Part = TypeVar("Part", Phase, Lane, Stage, Nest)
L = TypeVar("L", bound=Lane)


def map_lanes(kernel: Kernel, change: Callable[[Lane], Lane]) -> Kernel:
    """The kernel with every lane changed."""

    def changed(phase: Phase) -> Phase:
        lanes = _mapped(phase.lanes, change)
        return phase if lanes is phase.lanes else Phase(lanes)

    phases = _mapped(kernel.phases, changed)
    return kernel if phases is kernel.phases else replace(kernel, phases=phases)


def map_nests(lane: L, change: Callable[[Nest], Nest]) -> L:
    """The lane with every nest changed, in order."""

    def changed(stage: Stage) -> Stage:
        nests = _mapped(stage.nests, change)
        return stage if nests is stage.nests else replace(stage, nests=nests)

    stages = _mapped(lane.stages, changed)
    return lane if stages is lane.stages else replace(lane, stages=stages)


def _mapped(parts: tuple[Part, ...], change: Callable[[Part], Part]) -> tuple[Part, ...]:
    """The same tuple when every part stays."""
    found = tuple(change(part) for part in parts)
    return parts if all(a is b for a, b in zip(parts, found, strict=True)) else found
