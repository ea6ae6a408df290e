"""A stitched call that is a part of somebody's program for several devices.

    %y = stablehlo.tanh %x                      %y = stablehlo.tanh %x
                                         ==>    %z = stablehlo.custom_call @CustomSPMDPartitioning(%x)
                                                sdy.sharding_group %y, %z

XLA's partitioner decides how %x and %y are divided, as if nothing were stitched; %z is divided as %y, which
nobody reads. Then it asks for the call's program of one device. That is asked of XLA in turn (partition.py),
with %x and %z divided so: it has XLA's own collectives, and is stitched as what is in a `shard_map`.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from jstitch import _jax
from jstitch.frontend.call import Call
from jstitch.frontend.divide import check_local, find_axes, read, said
from jstitch.frontend.importer import import_ops
from jstitch.frontend.mlir import func, ir, parse_module, sdy, stablehlo, walk
from jstitch.frontend.outline import outline
from jstitch.frontend.partition import make_devices, make_whole, partition
from jstitch.frontend.probe import JIT, NAME, Program, as_function, make_program
from jstitch.frontend.shardings import Axes, Placed, UnknownShardingError, devices_of, make_mesh, placed
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.context import Context
from jstitch.runtime.report import note, recording
from jstitch.runtime.versions import toolchain

FUNCTION = func.FuncOp.OPERATION_NAME
API_VERSION = 2  # of custom calls that the partitioner takes
FEW = 2  # ops: XLA makes one kernel of one, too
MOST = 256  # programs of one device that are kept
_locals: dict[bytes, Program] = {}
_lock = threading.Lock()
FIRST_GROUP = 2**32  # numbers of groups of values; JAX counts from 0
_groups: WeakKeyDictionary[Any, Iterator[int]] = WeakKeyDictionary()
"""The next ones in each module that is being lowered: in all processes the same."""
_STITCHED = (OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.REDUCTION)


@dataclass(frozen=True)
class _Part:
    """A call as XLA's partitioner asks for it. name: of the call, with the transformations around it."""

    program: Program
    axes: Axes
    name: str
    where: str
    context: Context
    platform: str

    @property
    def identity(self) -> str:
        told = (toolchain(), self.context.options, self.axes, self.name, self.where, self.platform)
        return hashlib.sha256(repr(told).encode() + self.program.code).hexdigest()

    def __call__(self, mesh: Any, args: Sequence[Any], results: Sequence[Any]) -> Any:
        """The mesh, what each device is to run, and how results and arguments are divided.

        args, results: shapes of the whole arrays, with the shardings that XLA has chosen.
        """
        try:
            ins, outs = ([_evenly(a) for a in both] for both in (args, results))
            run = self._divided(ins, outs)
        except Exception as error:
            self._tell(error)
            run = as_function(self.program)
            ins, outs = ([Placed(self.axes, ((),) * len(a.shape)) for a in both] for both in (args, results))
        return mesh, run, tuple(p.on(mesh) for p in outs), tuple(p.on(mesh) for p in ins)

    def _divided(self, ins: Sequence[Placed], outs: Sequence[Placed]) -> Callable[..., Any]:
        """The program of one device, stitched. Raises what `partition` raises."""
        local = self._local(ins, outs)
        shardings = tuple(map(str, (*ins, *outs)))
        divided = said(self.axes, ins, outs)
        about = {"where": self.where, "devices": dict(self.axes), "shardings": shardings, "divided": divided}
        function = as_function(local)
        function.__name__ = self.name
        return partial(_run, Call(function, self.context.options, about), function)

    def _local(self, ins: Sequence[Placed], outs: Sequence[Placed]) -> Program:
        """The program of one device. Layers are alike: each is asked for once."""
        whole = parse_module(self.program.code)
        text = whole.operation.get_asm(enable_debug_info=False)
        spec = self.context.profile.machine.device
        key = hashlib.sha256(repr((text, self.axes, ins, outs, self.platform, spec)).encode()).digest()
        known = _locals.get(key)
        if known is not None:
            return known
        with whole.context:
            local = partition(whole, self.axes, ins, outs, self.platform, spec, whole.context)
            made = make_program(local.graph)
        with _lock:
            _locals[key] = made
            if len(_locals) > MOST:
                del _locals[next(iter(_locals))]
        return made

    def _tell(self, error: Exception) -> None:
        """XLA has no other way to go on than with whole arrays."""
        if self.context.options.strict and not isinstance(error, UnknownShardingError):
            raise error
        with recording(self.name):
            note(reason=f"automatic SPMD partitioning: {error}", where=self.where)


def divide_part(
    ops: Sequence[Any],
    args: Sequence[ir.Value],
    results: Sequence[ir.Value],
    ctx: Any,
    context: Context,
    name: str,
    where: str,
    platform: str,
) -> list[Any]:
    """New results of the operations, by a call at the end of the block that is stitched once XLA divides it.

    Raises UnknownShardingError, with the reason, for what is better left to XLA.
    """
    module = ctx.module_context.module
    imported = import_ops(ops, args, results, module)
    graph, values = imported.graph, list(imported.values.values())
    check_local(graph)
    if sum(map(_is_stitched, graph.walk())) < FEW:
        raise UnknownShardingError("there are no ops that can be stitched together")
    axes = _mesh_of(module)
    if devices_of(axes) != _jax.count_devices(ctx.module_context.axis_context):
        raise UnknownShardingError(f"its mesh {dict(axes)} is not that of the program's devices")
    program = make_whole(outline(ops, values, results, module, NAME))
    mesh = make_mesh(axes, make_devices(devices_of(axes), platform, context.profile.machine.device))
    part = _Part(program, axes, name, where, context, platform)
    note(divided="when XLA divides the program around it")
    target = _jax.add_partitioner(ctx, part.identity, part, mesh, (len(values), len(results)))
    new = _emit(target, part.identity, values, [v.type for v in results])
    groups = _groups.setdefault(module, itertools.count(FIRST_GROUP))
    for pair in zip(results, new, strict=True):
        group = next(groups)
        for value in pair:
            sdy.ShardingGroupOp(value, group)
    return new


def _emit(target: str, identity: str, values: Sequence[ir.Value], types: Sequence[ir.Type]) -> list[ir.Value]:
    """identity: twice, since JAX may leave the configuration out of the key of its persistent cache."""
    call = stablehlo.CustomCallOp(
        types,
        values,
        call_target_name=ir.StringAttr.get(target),
        has_side_effect=ir.BoolAttr.get(False),
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), API_VERSION),
        called_computations=ir.ArrayAttr.get([]),
        backend_config=ir.StringAttr.get(identity),
    )
    told = ir.DictAttr.get({"jstitch.part": ir.StringAttr.get(identity)})
    call.operation.attributes["mhlo.frontend_attributes"] = told
    return list(call.results)


def _run(call: Call, function: object, *values: Any) -> Any:
    """function: what is called, which the call itself holds weakly."""
    return JIT(call, inline=_jax.INLINE_EARLY)(*values)


def _evenly(array: Any) -> Placed:
    """As XLA chose to divide it, if parts are equal, else over fewer axes."""
    found = placed(array.sharding, len(array.shape))
    sizes, dimensions = dict(found.axes), []
    for size, axes in zip(array.shape, found.dimensions, strict=True):
        while size % math.prod(sizes[axis] for axis in axes):
            axes = axes[:-1]
        dimensions.append(axes)
    return Placed(found.axes, tuple(dimensions))


def _is_stitched(op: Any) -> bool:
    return lookup(op.name).op_class in _STITCHED


def _mesh_of(module: ir.Module) -> Axes:
    """Of the program's arguments, or else of what stands in it so far."""
    functions = [view.operation for view in module.body.operations if view.operation.name == FUNCTION]
    found = [read(attributes) for f in functions for attributes in _attributes(f)]
    return find_axes((op for f in functions for op in walk(f)), found)


def _attributes(function: ir.Operation) -> Iterator[dict[str, ir.Attribute]]:
    for kind in ("arg_attrs", "res_attrs"):
        if kind in function.attributes:
            for each in ir.ArrayAttr(function.attributes[kind]):
                yield {named.name: named.attr for named in ir.DictAttr(each)}
