"""A `jstitch.kernel` op as XLA's custom calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jstitch.codegen.backend import KernelCall
from jstitch.codegen.kernel_ir import Buffer
from jstitch.codegen.kernel_queries import array_type
from jstitch.frontend.constants import export_type
from jstitch.frontend.mlir import ir, stablehlo
from jstitch.ir.graph import Op
from jstitch.passes.cost.kernel_work import KernelWork
from jstitch.runtime.cpu_handler import LEAVES

CALL = "stablehlo.custom_call"
TYPED_FFI = 4  # stablehlo's api_version of typed FFI handlers
COST = 1024  # elements
IDENTITY = "jstitch."  # names of frontend attributes begin with it
STAND_IN = "jstitch.planned"
UNSET_TARGET = "AllocateBuffer"  # XLA:GPU's own: memory, and nothing done to it


def emit_kernel(op: Op, operands: list[ir.Value], leaves: bool = False) -> list[ir.Value]:
    """Write the kernel's calls at the current insertion point; its results.

    leaves: whether large ones are to leave the thread that calls them: see `leave_thread`.
    """
    more = {LEAVES: "1"} if leaves else {}
    kernel = op.attrs["kernel"]
    known: dict[Buffer, ir.Value] = dict(zip(kernel.args, operands, strict=True))
    for call in op.attrs["calls"]:
        written = _emit_call(
            replace(call, config={**call.config, **more}),
            [known[b] for b in call.operands],
            _identity(op, call),
        )
        known |= dict(zip(call.results, written, strict=True))
    return [known[b] for b in kernel.results]


def _identity(op: Op, call: KernelCall) -> dict[str, Any]:
    """What one of the kernel's calls says of itself in HLO, and so in profiles.

    ops: names of what it computes. launches: calls that make the kernel. bytes: read and written by this one.
    flops: of all of them. entry: its name on a GPU. Calls that are only compiled have nothing but ops.

    Nothing depends on where the user's code stands: see `exporter`.
    """
    ops = {"ops": ", ".join(dict.fromkeys(inner.name for inner in op.regions[0].walk()))}
    work: KernelWork | None = op.attrs.get("work")
    if work is None:
        return ops
    entry = {"entry": call.config["name"]} if "name" in call.config else {}
    traffic = op.attrs["traffic"].get(call.config.get("name"))
    return {
        **ops,
        **entry,
        "kernel": op.attrs["name"],
        "launches": len(op.attrs["calls"]),
        "bytes": work.nbytes if traffic is None else sum(traffic),
        "flops": work.flops,
    }


def part_results(values: Sequence[ir.Value], carried: int | None) -> list[ir.Value]:
    """What a loop's body may return: of a call that makes all that the loop carries, one behind a barrier.

    XLA takes the tuple of a call's results for the call itself, and then a loop's body that ends in a call
    for one that ends in a tuple: the call's operands are carried on unchanged, it concludes, and the call can
    leave the loop (while-loop-invariant-code-motion). A barrier costs a copy: of the smallest result.

    carried: how many values the loop carries; None where nobody knows.
    """
    places: dict[ir.Operation, dict[ir.Value, int]] = {}
    for n, value in enumerate(values):
        if isinstance(value.owner, ir.Block) or value.owner.operation.name != CALL:
            continue
        places.setdefault(value.owner.operation, {})[value] = n
    found = list(values)
    for call, returned in places.items():
        if 1 < len(call.results) == len(returned) and carried in (None, len(returned)):
            smallest = min(returned, key=_elements)
            found[returned[smallest]] = stablehlo.optimization_barrier([smallest])
    return found


def _elements(value: ir.Value) -> int:
    return math.prod(ir.RankedTensorType(value.type).shape)


def _emit_call(
    call: KernelCall, operands: Sequence[ir.Value], identity: Mapping[str, Any]
) -> Sequence[ir.Value]:
    """identity: for those who look for it in StableHLO, HLO or a profile."""
    said = {f"{IDENTITY}{key}": ir.StringAttr.get(str(value)) for key, value in identity.items()}
    results = [export_type(array_type(b)) for b in call.results]
    operands = [*operands, _emit_cost()] if call.beside else operands
    made = ir.Operation.create(
        CALL,
        results=results,
        operands=operands,
        attributes={
            "call_target_name": ir.StringAttr.get(call.target),
            "has_side_effect": ir.BoolAttr.get(False),
            "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), TYPED_FFI),
            "backend_config": _config(call.config),
            "operand_layouts": _layouts([v.type for v in operands]),
            "result_layouts": _layouts(results),
            "output_operand_aliases": _aliases(call),
            "mhlo.frontend_attributes": ir.DictAttr.get(said),
        },
    )
    return list(made.results)


def emit_stand_in(operands: Sequence[ir.Value], results: Sequence[ir.Value]) -> list[ir.Value]:
    """Of a call that was planned and not made: as opaque as its kernels would be to the call around it."""
    made = ir.Operation.create(
        CALL,
        results=[value.type for value in results],
        operands=operands,
        attributes={
            "call_target_name": ir.StringAttr.get(STAND_IN),
            "has_side_effect": ir.BoolAttr.get(False),
        },
    )
    return list(made.results)


def emit_unset(result: ir.Type, number: int) -> list[ir.Value]:
    """Memory as it comes. number: another for each, so that XLA does not make two of them one."""
    made = ir.Operation.create(
        CALL,
        results=[result],
        operands=[],
        attributes={
            "call_target_name": ir.StringAttr.get(UNSET_TARGET),
            "has_side_effect": ir.BoolAttr.get(False),
            "backend_config": ir.StringAttr.get(str(number)),
        },
    )
    return list(made.results)


def _config(config: Mapping[str, Any]) -> ir.DictAttr:
    """Texts as strings, NumPy integers as integers of their width."""

    def attribute(value: Any) -> ir.Attribute:
        if isinstance(value, str):
            return ir.StringAttr.get(value)
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(value.dtype.itemsize * 8), int(value))

    return ir.DictAttr.get({key: attribute(value) for key, value in config.items()})


def _aliases(call: KernelCall) -> ir.ArrayAttr:
    """Results written in the memory of an operand."""
    texts = []
    for result, operand in sorted(call.aliases.items()):
        where = f"[{result}]" if len(call.results) > 1 else "[]"
        texts.append(
            f"#stablehlo.output_operand_alias<output_tuple_indices = {where}, "
            f"operand_index = {operand}, operand_tuple_indices = []>"
        )
    return ir.ArrayAttr.get([ir.Attribute.parse(text) for text in texts])


def _emit_cost() -> ir.Value:
    """A product that makes the program dear enough for XLA:CPU to run it on another thread than its caller's.

    It does so from 1,000 floating-point operations on, of which it sees none in our calls.
    """
    kind = ir.RankedTensorType.get([COST], ir.F32Type.get())
    numbers = stablehlo.iota(kind, 0)
    product: ir.Value = stablehlo.multiply(numbers, numbers)
    return product


def _layouts(types: Sequence[ir.Type]) -> ir.ArrayAttr:
    """Row-major, minor-most dimension first, as XLA writes layouts."""
    return ir.ArrayAttr.get([_row_major(ir.RankedTensorType(kind).rank) for kind in types])


def _row_major(rank: int) -> ir.Attribute:
    order = np.arange(rank - 1, -1, -1, dtype=np.int64)
    return ir.DenseIntElementsAttr.get(order, type=ir.IndexType.get())
