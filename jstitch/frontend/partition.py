"""What each of several devices computes: asked of XLA's partitioner, before anything is stitched.

    f: x f32[64, 32] over "d", 4 devices       ->     x f32[16, 32], w f32[32, 48], and between them
       w f32[32, 48]                                  the collectives that XLA puts there

The program is compiled once as it is. XLA prints what its partitioner leaves of it, the program of one
device; that is read back, and planned like any other program. So collectives are XLA's own, kernels have the
shapes of the parts, and no pattern can ask for a collective that XLA would not have needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jstitch.device_spec import DeviceSpec
from jstitch.frontend.constants import import_type
from jstitch.frontend.from_hlo import module_of_hlo
from jstitch.frontend.importer import entry_function, import_module
from jstitch.frontend.measure import apart
from jstitch.frontend.mlir import ir, module_bytes
from jstitch.frontend.probe import JIT, Program, as_function
from jstitch.frontend.shardings import (
    Axes,
    Placed,
    UnknownShardingError,
    devices_of,
    make_mesh,
    placed,
)
from jstitch.ir.graph import Graph
from jstitch.ir.types import TensorType
from jstitch.xla.compile import device_mesh

PASS = "spmd-partitioning"  # XLA's name of it
OPTIONS: Mapping[str, Any] = {
    "xla_dump_hlo_as_text": True,
    "xla_dump_large_constants": True,
    "xla_dump_hlo_pass_re": PASS,
}
QUICKLY: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True},
    "cuda": {"xla_gpu_autotune_level": 0, "xla_backend_optimization_level": 0},
}


@dataclass(frozen=True)
class Local:
    """The program of one device. arguments, results: how the arrays are divided that it has parts of."""

    graph: Graph
    axes: Axes
    arguments: tuple[Placed, ...]
    results: tuple[Placed, ...]


def partition(
    whole: ir.Module,
    axes: Axes,
    arguments: Sequence[Placed | None],
    results: Sequence[Placed | None],
    platform: str,
    spec: DeviceSpec | None,
    context: ir.Context,
) -> Local:
    """The program of one device. whole: the program, as a function `NAME` of arrays. None: where XLA chooses.
    spec: of GPUs that need not be here.

    Opaque ops of the graph that is returned live in `context`. Raises UnknownShardingError, with the reason,
    for what is not to be divided so, and what XLA raises when it cannot compile the program.
    """
    mesh = make_mesh(axes, make_devices(devices_of(axes), platform, spec))
    program = make_whole(whole)
    with tempfile.TemporaryDirectory(prefix="jstitch-partition-") as folder:
        ins, outs = apart(lambda _: _compile(program, mesh, arguments, results, platform, folder))
        text = _dumped(Path(folder))
    local = import_module(module_of_hlo(text, context))
    found = Local(
        Graph(local.inputs[:-1], local.ops, local.outputs),
        axes,
        tuple(placed(s, len(t.shape)) for s, t in zip(ins, program.arguments, strict=True)),
        tuple(placed(s, len(t.shape)) for s, t in zip(outs, program.results, strict=True)),
    )
    _check(found, program)
    return found


def make_whole(whole: ir.Module) -> Program:
    """Its public function `NAME`. Raises UnknownShardingError for what is not all arrays."""
    function = entry_function(whole)
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    types = [import_type(t) for t in (*kind.inputs, *kind.results)]
    tensors = tuple(t for t in types if isinstance(t, TensorType))
    if len(tensors) < len(types):
        raise UnknownShardingError("the program has arguments or results that are not arrays")
    count = len(kind.inputs)
    return Program(module_bytes(whole), tensors[:count], tensors[count:])


def make_devices(count: int, platform: str, spec: DeviceSpec | None) -> Sequence[Any]:
    """Any that XLA compiles for: which ones changes nothing of a program's parts."""
    try:
        found = jax.devices(platform)
    except RuntimeError:
        found = []
    here = [d for d in found if d.process_index == jax.process_index()]
    for devices in (here, found):
        if len(devices) >= count:
            return devices[:count]
    if platform == "cuda" and spec is not None:
        return list(device_mesh(spec, count).devices.flat)
    raise UnknownShardingError(f"there are {len(found)} devices, the program is for {count}")


def _compile(
    program: Program,
    mesh: jax.sharding.Mesh,
    arguments: Sequence[Placed | None],
    results: Sequence[Placed | None],
    platform: str,
    folder: str,
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Shardings of arguments and results. One more argument says where the program is to run."""
    everywhere = NamedSharding(mesh, PartitionSpec())  # type: ignore[no-untyped-call]
    function = as_function(program)
    avals = [
        jax.ShapeDtypeStruct(t.shape, t.dtype.numpy, sharding=None if s is None else s.on(mesh))  # type: ignore[no-untyped-call]
        for t, s in zip(program.arguments, arguments, strict=True)
    ]
    last = jax.ShapeDtypeStruct((), np.int32, sharding=everywhere)  # type: ignore[no-untyped-call]
    jitted: Any = JIT(
        lambda *args: function(*args[:-1]),
        out_shardings=[None if s is None else s.on(mesh) for s in results],
        keep_unused=True,
    )
    options = {"xla_dump_to": folder, **OPTIONS, **QUICKLY[platform]}
    compiled = jitted.lower(*avals, last).compile(compiler_options=options)
    return compiled.input_shardings[0][:-1], compiled.output_shardings


def _dumped(folder: Path) -> str:
    found = sorted(folder.glob(f"*.after_{PASS}.*.txt"))
    if len(found) != 1:
        raise UnknownShardingError(f"XLA printed {len(found)} partitioned programs, not one")
    return found[0].read_text()


def _check(local: Local, program: Program) -> None:
    """Parts are what the shardings say. Raises UnknownShardingError."""
    values = (*local.graph.inputs, *local.graph.outputs)
    whole = (*program.arguments, *program.results)
    for value, sharding, kind in zip(values, (*local.arguments, *local.results), whole, strict=True):
        if sharding.axes != local.axes or sharding.shard(kind.shape) != value.tensor.shape:
            raise UnknownShardingError(f"{kind} divided by {sharding} is not {value.type}")
