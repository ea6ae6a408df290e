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
    config = {key: ir.StringAttr.get(str(op.attrs[key])) for key in ("h", "src")}
    call = ir.Operation.create(
        "stablehlo.custom_call",
        results=[export_type(v.type) for v in op.results],
        operands=operands,
        attributes={
            "call_target_name": ir.StringAttr.get(TARGET),
            "has_side_effect": ir.BoolAttr.get(False),
            "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), TYPED_FFI),
            "backend_config": ir.DictAttr.get(config),
            "operand_layouts": _layouts(op.operands),
            "result_layouts": _layouts(op.results),
        },
    )
    return list(call.results)


def _layouts(values: Sequence[Value]) -> ir.ArrayAttr:
    """Row-major, minor-most dimension first, as XLA writes layouts."""
    return ir.ArrayAttr.get([_row_major(len(v.shape)) for v in values])


def _row_major(rank: int) -> ir.Attribute:
    order = np.arange(rank - 1, -1, -1, dtype=np.int64)
    return ir.DenseIntElementsAttr.get(order, type=ir.IndexType.get())
