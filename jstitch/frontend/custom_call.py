"""A `jstitch.kernel` op as XLA's typed-FFI custom call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jstitch.frontend.constants import export_type
from jstitch.frontend.mlir import ir
from jstitch.ir.graph import Op, Value
from jstitch.runtime.cpu_handler import TARGET

TYPED_FFI = 4  # stablehlo's api_version of typed FFI handlers


def emit_kernel(op: Op, operands: list[ir.Value]) -> list[ir.Value]:
    """Write the custom call at the current insertion point; its results."""
    config = {key: ir.StringAttr.get(text) for key, text in op.attrs["config"].items()}
    inputs = [op.operands[k] for k in op.attrs["operands"]]
    outputs = [op.results[k] for k in op.attrs["results"]]
    call = ir.Operation.create(
        "stablehlo.custom_call",
        results=[export_type(v.type) for v in outputs],
        operands=[operands[k] for k in op.attrs["operands"]],
        attributes={
            "call_target_name": ir.StringAttr.get(TARGET),
            "has_side_effect": ir.BoolAttr.get(False),
            "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), TYPED_FFI),
            "backend_config": ir.DictAttr.get(config),
            "operand_layouts": _layouts(inputs),
            "result_layouts": _layouts(outputs),
            "output_operand_aliases": _aliases(op, len(outputs)),
        },
    )
    made = dict(zip(outputs, call.results, strict=True))
    return [made[v] for v in op.results]


def _aliases(op: Op, count: int) -> ir.ArrayAttr:
    """Results written in the memory of an operand."""
    pairs = op.attrs["aliases"]
    texts = []
    for slot, result in enumerate(op.attrs["results"]):
        if result in pairs:
            where = f"[{slot}]" if count > 1 else "[]"
            operand = op.attrs["operands"].index(pairs[result])
            texts.append(
                f"#stablehlo.output_operand_alias<output_tuple_indices = {where}, "
                f"operand_index = {operand}, operand_tuple_indices = []>"
            )
    return ir.ArrayAttr.get([ir.Attribute.parse(text) for text in texts])


def _layouts(values: Sequence[Value]) -> ir.ArrayAttr:
    """Row-major, minor-most dimension first, as XLA writes layouts."""
    return ir.ArrayAttr.get([_row_major(len(v.shape)) for v in values])


def _row_major(rank: int) -> ir.Attribute:
    order = np.arange(rank - 1, -1, -1, dtype=np.int64)
    return ir.DenseIntElementsAttr.get(order, type=ir.IndexType.get())
