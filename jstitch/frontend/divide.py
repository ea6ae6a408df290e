"""A program for several devices with kernels: what each device computes, stitched, in a manual computation.

    %y = stablehlo.tanh %x          %y = sdy.manual_computation(%x) in_shardings=[<{"d"}, {}>] ... {
                               ==>      %1 = stablehlo.custom_call @kernel(%part)
                                        sdy.return %1
                                    }

XLA's partitioner has divided the program already (partition.py): what is in the computation has the shapes
of the parts, and its collectives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from jstitch.codegen.backend import Backend
from jstitch.frontend.custom_call import STAND_IN
from jstitch.frontend.importer import Imported, import_ops
from jstitch.frontend.mlir import ir, sdy, walk
from jstitch.frontend.outline import outline
from jstitch.frontend.partition import partition
from jstitch.frontend.probe import NAME
from jstitch.frontend.rewrite import rewrite_imported
from jstitch.frontend.shardings import (
    Axes,
    Placed,
    UnknownShardingError,
    devices_of,
    manual_region,
    read_sharding,
)
from jstitch.frontend.source import Source
from jstitch.ir.graph import Graph
from jstitch.passes.base.context import Context
from jstitch.runtime.report import note

SHARDING = "sdy.sharding"
EFFECT, TARGET = "has_side_effect", "call_target_name"
Attributes = Mapping[str, ir.Attribute]


def rewrite_divided(
    ops: Sequence[Any],
    args: Sequence[ir.Value],
    results: Sequence[ir.Value],
    module: Any,
    context: Context,
    name: str,
    backend: Backend,
    *,
    platform: str,
    arguments: Sequence[Attributes],
    returned: Sequence[Attributes],
    donated: Mapping[int, int | None],
    own: Collection[int] | None,
) -> list[Any] | None:
    """New results of a whole program, from operations at the end of the block; None leaves it as it is.

    arguments, returned: attributes of the program's arguments and results. donated, own: as `rewrite`'s
    `donated` and `arguments`.
    """
    imported = import_ops(ops, args, results, module)
    values = list(imported.values.values())
    try:
        check_local(imported.graph)
        ins = [read(attributes) for attributes in arguments]
        outs = [read(attributes) for attributes in returned]
        axes = find_axes(ops, [*ins, *outs])
        ins, outs = ([None if s is None else s.over(axes) for s in both] for both in (ins, outs))
        ins += [None] * (len(values) - len(ins))
        spec = context.profile.machine.device
        whole = outline(ops, values, results, module, NAME)
        local = partition(whole, axes, ins, outs, platform, spec, module.context)
        region, block = manual_region(values, [v.type for v in results], local.arguments, local.results)
    except UnknownShardingError as error:
        note(reason=f"automatic SPMD partitioning: {error}")
        return None
    shardings = tuple(map(str, (*local.arguments, *local.results)))
    note(devices=dict(axes), shardings=shardings, divided=said(axes, local.arguments, local.results))
    parts = Imported(local.graph, dict(zip(local.graph.inputs, block.arguments, strict=True)))
    with ir.InsertionPoint(block):
        new = rewrite_imported(
            parts,
            lambda: str(region),
            module,
            context,
            name,
            backend,
            donated=donated,
            arguments=own,
            divided=True,
        )
        if new is not None:
            sdy.ReturnOp(new)
    if new is None:
        region.operation.erase()
        return None
    return list(region.results)


def said(axes: Axes, arguments: Sequence[Placed], results: Sequence[Placed]) -> str:
    """Over which devices, and how, in words."""
    named = ", ".join(f"{name}={size}" for name, size in axes)
    ins, outs = (", ".join(map(str, placed)) for placed in (arguments, results))
    return f"over {devices_of(axes)} devices ({named}): {ins} -> {outs}"


def check_local(graph: Graph) -> None:
    """Raises UnknownShardingError for what one device does for all of them, calls of the host, and for calls
    that nobody made.
    """
    for kept in (op.source.operation for op in graph.walk() if isinstance(op.source, Source)):
        for op in walk(kept):
            target = str(op.attributes[TARGET]) if TARGET in op.attributes else ""
            effect = EFFECT in op.attributes and ir.BoolAttr(op.attributes[EFFECT]).value
            if effect or "callback" in target:
                raise UnknownShardingError(f"the host is called in the middle of it, by {op.name}")
            if STAND_IN in target:
                raise UnknownShardingError("a call in it is planned and not made")


def read(attributes: Attributes) -> Placed | None:
    return read_sharding(attributes[SHARDING]) if SHARDING in attributes else None


def find_axes(ops: Iterable[Any], shardings: Sequence[Placed | None]) -> Axes:
    """The one mesh of a program: of its arguments and results, or else of constraints in it.

    Whole arrays are on any.
    """
    placed = [s for s in shardings if s is not None]
    divided = {s.axes for s in placed if any(s.dimensions)}
    known = divided or {s.axes for op in ops if (s := _constraint(op)) is not None}
    known = known or {s.axes for s in placed[:1]}
    if len(known) != 1:
        raise UnknownShardingError(f"the program's arrays are on {len(known)} meshes, not on one")
    return known.pop()


def _constraint(op: Any) -> Placed | None:
    attributes = op.operation.attributes
    if op.operation.name != sdy.ShardingConstraintOp.OPERATION_NAME:
        return None
    return read_sharding(attributes["sharding"])
