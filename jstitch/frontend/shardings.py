"""Shardings as Shardy writes them and as JAX's public API takes them.

    #sdy.sharding<mesh<["d"=4, "m"=2]>, [{"d"}, {}]>    <->    Placed((("d", 4), ("m", 2)), (("d",), ()))

A dimension is divided over the axes that stand in its braces, the major one first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jstitch.frontend.mlir import ir, sdy

Axes = tuple[tuple[str, int], ...]
"""Names and sizes of a mesh's axes, major to minor; its devices are numbered in this order."""


class UnknownShardingError(Exception):
    """A sharding that is not said in these words; the program stays XLA's."""


@dataclass(frozen=True)
class Placed:
    """How an array is divided. dimensions: the axes over which each of its dimensions is."""

    axes: Axes
    dimensions: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"({', '.join('*'.join(axes) or '-' for axes in self.dimensions)})"

    def on(self, mesh: Mesh) -> NamedSharding:
        spec = [axes or None for axes in self.dimensions]
        return NamedSharding(mesh, PartitionSpec(*spec))  # type: ignore[no-untyped-call]

    def over(self, axes: Axes) -> Placed:
        """The same of a whole array, which is on any mesh of the devices. Raises UnknownShardingError."""
        if self.axes == axes or (not any(self.dimensions) and devices_of(self.axes) == devices_of(axes)):
            return Placed(axes, self.dimensions)
        raise UnknownShardingError(f"an array is on mesh {dict(self.axes)}, others on {dict(axes)}")

    def shard(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of one device's part. Raises UnknownShardingError where parts are not equal."""
        sizes = dict(self.axes)
        parts = [math.prod(sizes[axis] for axis in axes) for axes in self.dimensions]
        if len(parts) != len(shape) or any(size % n for size, n in zip(shape, parts, strict=True)):
            raise UnknownShardingError(f"an array of {list(shape)} is not divided evenly by {self}")
        return tuple(size // n for size, n in zip(shape, parts, strict=True))


def devices_of(axes: Axes) -> int:
    return math.prod(size for _, size in axes)


def make_mesh(axes: Axes, devices: Sequence[Any]) -> Mesh:
    return Mesh(np.array(devices).reshape([size for _, size in axes]), [name for name, _ in axes])


def read_sharding(attribute: Any) -> Placed | None:
    """Of an argument or a result; None where it says nothing, or where there is one value for everybody.

    Raises UnknownShardingError for parts of axes, partial sums, meshes with an order of devices of their own.
    """
    sharding = sdy.TensorShardingAttr(attribute)
    axes = read_mesh(sharding.mesh_or_ref)
    if not axes:
        return None
    dimensions = []
    for dimension in map(sdy.DimensionShardingAttr, sharding.dimension_shardings):
        refs = [sdy.AxisRefAttr(ref) for ref in dimension.axes]
        if not dimension.is_closed or any(ref.sub_axis_info is not None for ref in refs):
            raise UnknownShardingError(f"sharding {attribute} is left to XLA in part")
        dimensions.append(tuple(str(ref.name) for ref in refs))
    if list(sharding.unreduced_axes):
        raise UnknownShardingError(f"sharding {attribute} has sums that nobody added up")
    return Placed(axes, tuple(dimensions))


def read_mesh(attribute: Any) -> Axes:
    """Raises UnknownShardingError for a mesh by name, or with devices in an order of its own."""
    if not sdy.MeshAttr.isinstance(attribute):
        raise UnknownShardingError(f"mesh {attribute} stands elsewhere")
    mesh = sdy.MeshAttr(attribute)
    if list(mesh.device_ids):
        raise UnknownShardingError(f"mesh {attribute} has its devices in another order than the program's")
    return tuple((str(axis.name), int(axis.size)) for axis in map(sdy.MeshAxisAttr, mesh.axes))


def placed(sharding: Any, rank: int) -> Placed:
    """Of JAX's own object. Raises UnknownShardingError where it is not one of a mesh."""
    if not isinstance(sharding, NamedSharding):
        raise UnknownShardingError(f"XLA chose {sharding}, which no mesh axes say")
    entries = [*sharding.spec, *[None] * (rank - len(sharding.spec))]
    if any(entry is PartitionSpec.UNCONSTRAINED for entry in entries):
        raise UnknownShardingError(f"{sharding} is left to XLA in part")
    dimensions = tuple((e,) if isinstance(e, str) else tuple(e or ()) for e in entries)
    return Placed(tuple((str(k), v) for k, v in sharding.mesh.shape.items()), dimensions)


def write_shardings(shardings: Sequence[Placed]) -> Any:
    """The attribute of a list of values, in the current context."""
    return sdy.TensorShardingPerValueAttr.get([_write(s) for s in shardings])


def _write(sharding: Placed) -> Any:
    mesh = sdy.MeshAttr.get([sdy.MeshAxisAttr.get(name, size) for name, size in sharding.axes])
    dimensions = [
        sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(axis) for axis in axes], is_closed=True)
        for axes in sharding.dimensions
    ]
    return sdy.TensorShardingAttr.get(mesh, dimensions)


def manual_region(
    args: Sequence[ir.Value],
    results: Sequence[ir.Type],
    placed_args: Sequence[Placed],
    placed_results: Sequence[Placed],
) -> tuple[Any, ir.Block]:
    """An operation at the insertion point that runs its block on each device's parts, and that block.

    What the block computes is to be returned from it by `sdy.ReturnOp`. results: types of whole arrays.
    """
    axes = next(p.axes for p in (*placed_args, *placed_results))  # a program may have results only
    names = [ir.StringAttr.get(name) for name, _ in axes]
    region = sdy.ManualComputationOp(
        results,
        args,
        write_shardings(placed_args),
        write_shardings(placed_results),
        sdy.ManualAxesAttr.get(names),
    )
    types = [_part(value.type, p) for value, p in zip(args, placed_args, strict=True)]
    block = ir.Block.create_at_start(region.body, types, [ir.Location.unknown()] * len(types))
    return region, block


def _part(whole: ir.Type, sharding: Placed) -> ir.Type:
    kind = ir.RankedTensorType(whole)
    return ir.RankedTensorType.get(sharding.shard(kind.shape), kind.element_type)
