"""StableHLO that was HLO in XLA's own words, in JAX's.

    %1 = mhlo.copy %0                                          ->    %0
    %2 = stablehlo.add %1, %1 {result_layout = ...}            ->    %2 = stablehlo.add %0, %0

Layouts of what is in the middle of a program are XLA's to choose again.
"""

from __future__ import annotations

from typing import Any

from jstitch import _jax
from jstitch.frontend.mlir import ir, parse_module

COPY = "mhlo.copy"
LAYOUTS = ("result_layout", "xla_shape")


def module_of_hlo(text: str, context: ir.Context) -> ir.Module:
    """Of HLO as XLA prints it."""
    module = parse_module(_jax.stablehlo_of_hlo(text), context)
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
