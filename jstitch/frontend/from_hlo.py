"""StableHLO that was HLO in XLA's own words, in JAX's.

    replica_groups=mesh['a'=2,'b'=3] {'b'}                     ->    replica_groups={{0,1,2},{3,4,5}}
    %1 = mhlo.copy %0                                          ->    %0
    %2 = stablehlo.add %1, %1 {result_layout = ...}            ->    %2 = stablehlo.add %0, %0

Groups by a mesh's axes lose the order of its devices when they become StableHLO. Layouts of what is in the
middle of a program are XLA's to choose again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from jstitch import _jax
from jstitch.frontend.mlir import ir, parse_module

COPY = "mhlo.copy"
LAYOUTS = ("result_layout", "xla_shape")
# mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a':(1)2,'b'}
_GROUPS = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? \{([^}]*)\}")
_SIZE = re.compile(r"'([^']+)'=(\d+)")
_AXIS = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")
_ORDER = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")

Part = tuple[str, int, int]
"""An axis, or a part of one: its name, how many parts stand before it, its size."""


def number_groups(text: str) -> str:
    """HLO whose groups of devices are said by numbers."""
    return _GROUPS.sub(lambda found: f"replica_groups={_numbered(*found.groups())}", text)


def _numbered(mesh: str, order: str | None, axes: str) -> str:
    sizes = {name: int(size) for name, size in _SIZE.findall(mesh)}
    parts = [
        (name, int(before or 1), int(size) if size else sizes[name])
        for name, before, size in _AXIS.findall(axes)
    ]
    groups = groups_of(sizes, _devices(order or ""), parts)
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups.tolist()) + "}"


def _devices(order: str) -> list[int]:
    """Numbers of a mesh's devices: a list, or a block of 0, 1, ... that is turned."""
    block = _ORDER.fullmatch(order)
    if block is None:
        return [int(n) for n in order.split(",") if n]
    shape = [int(n) for n in block[1].split(",")]
    turned = [int(n) for n in block[2].split(",")] if block[2] else range(len(shape))
    return [int(n) for n in np.arange(np.prod(shape)).reshape(shape).transpose(turned).flat]


def groups_of(sizes: Mapping[str, int], devices: Sequence[int], parts: Sequence[Part]) -> np.ndarray:
    """[groups, devices of one]. sizes: of the mesh's axes, major to minor. devices: their numbers, empty =
    0, 1, ... parts: along which the devices of a group differ, major to minor.
    """
    cuts = {name: {1, size} for name, size in sizes.items()}
    for name, before, size in parts:
        cuts[name] |= {before, before * size}
    places = [
        (name, before, after // before) for name, at in cuts.items() for before, after in pairwise(sorted(at))
    ]
    shape = [size for *_, size in places]
    inner = [n for part in parts for n, place in enumerate(places) if _is_inside(place, part)]
    outer = [n for n in range(len(places)) if n not in inner]
    numbers = np.array(devices or range(int(np.prod(shape, dtype=int)))).reshape(shape)
    each = int(np.prod([shape[n] for n in inner], dtype=int))
    return numbers.transpose([*outer, *inner]).reshape(-1, each)


def _is_inside(place: Part, part: Part) -> bool:
    """Whether a factor of an axis belongs to a part of it."""
    name, before, size = part
    return place[0] == name and before <= place[1] < before * size


def module_of_hlo(text: str, context: ir.Context) -> ir.Module:
    """Of HLO as XLA prints it."""
    module = parse_module(_jax.stablehlo_of_hlo(number_groups(text)), context)
    copies: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == COPY:
            copies.append(op)
        for name in LAYOUTS:
            if name in op.attributes:
                del op.attributes[name]
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for copy in copies:
        copy.result.replace_all_uses_with(copy.operands[0])
        copy.erase()
    return module
