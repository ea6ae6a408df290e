"""Groups of a collective by the numbers of their devices, where they are said by axes of a mesh.

    mesh @m = <["a"=2, "b"=3]>, axes = ["b"]    ->    replica_groups = dense<[[0, 1, 2], [3, 4, 5]]>

A module that is taken apart has no mesh that its ops could refer to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jstitch.frontend.mlir import ir, sdy, stablehlo

GROUPS = "replica_groups"
_PART = re.compile(r"\((\d+)\)(\d+)")

Part = tuple[str, int, int]
"""An axis, or a part of one: its name, how many parts stand before it, its size."""


def number_groups(module: ir.Module) -> None:
    """In place, in every collective of the module."""
    meshes = {
        op.attributes["sym_name"].value: sdy.MeshAttr(op.attributes["mesh"])
        for op in (view.operation for view in module.body.operations)
        if op.name == sdy.MeshOp.OPERATION_NAME
    }

    def number(op: Any) -> Any:
        if GROUPS in op.attributes and stablehlo.ReplicaGroupMeshAxesAttr.isinstance(op.attributes[GROUPS]):
            said = stablehlo.ReplicaGroupMeshAxesAttr(op.attributes[GROUPS])
            mesh = meshes[ir.FlatSymbolRefAttr(said.mesh).value]
            sizes = {str(a.name): int(a.size) for a in map(sdy.MeshAxisAttr, mesh.axes)}
            parts = [_part(stablehlo.AxisRefAttr(axis), sizes) for axis in said.axes]
            op.attributes[GROUPS] = ir.DenseIntElementsAttr.get(groups_of(sizes, list(mesh.device_ids), parts))
        return ir.WalkResult.ADVANCE

    with module.context, ir.Location.unknown():
        module.operation.walk(number)


def groups_of(sizes: Mapping[str, int], numbers: Sequence[int], parts: Sequence[Part]) -> np.ndarray:
    """[groups, devices of one] i64. sizes: of the mesh's axes, major to minor. numbers: of its devices,
    empty = 0, 1, ... parts: along which the devices of a group differ, major to minor.
    """
    cuts = {
        name: sorted({1, size, *(n for axis, before, own in parts if axis == name for n in (before, before * own))})
        for name, size in sizes.items()
    }
    places = [(name, before, after // before) for name, at in cuts.items() for before, after in zip(at, at[1:])]
    count = int(np.prod([size for *_, size in places], dtype=int))
    devices = np.array(numbers or range(count), np.int64).reshape([size for *_, size in places])
    inner = [n for part in parts for n, place in enumerate(places) if _is_inside(place, part)]
    outer = [n for n in range(len(places)) if n not in inner]
    each = int(np.prod([places[n][2] for n in inner], dtype=int))
    return np.ascontiguousarray(devices.transpose([*outer, *inner]).reshape(-1, each))


def _is_inside(place: Part, part: Part) -> bool:
    """Whether a factor of an axis belongs to a part of it."""
    name, before, size = part
    return place[0] == name and before <= place[1] < before * size


def _part(axis: Any, sizes: Mapping[str, int]) -> Part:
    if axis.sub_axis_info is None:
        return str(axis.name), 1, sizes[str(axis.name)]
    before, size = map(int, _PART.search(str(axis.sub_axis_info)).groups())  # type: ignore[union-attr]
    return str(axis.name), before, size

