"""Where ops run, read off the op table: what README and `jstitch ops` show."""

from __future__ import annotations

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops.definition import OpClass, OpDef
from jstitch.ir.types import DType, TensorType

LEFT = "left to XLA"
_INDEXED = "in kernels, as index arithmetic: nothing is moved"
_WHERE = {
    OpClass.LIGHT: "in kernels",
    OpClass.EXPENSIVE: "in kernels",
    OpClass.REDUCTION: "in kernels",
    OpClass.SHAPE: _INDEXED,
    OpClass.INDEX: _INDEXED,
    OpClass.CONSTANT: "in kernels when small or uniform, else an input",
    OpClass.CONTRACTION: LEFT,
    OpClass.CONTROL: "left to XLA; their regions are stitched",
}


def where_it_runs(definition: OpDef) -> str:
    """In a few words, for an op of the table."""
    return _WHERE.get(definition.op_class, LEFT) if _has_kernel_form(definition) else LEFT


def _has_kernel_form(definition: OpDef) -> bool:
    """Whether an elementwise op has an expression for some type; one that depends on attributes has."""
    if not definition.op_class.is_elementwise:
        return True
    if definition.is_of_complex:
        return True
    if definition.scalar is None:
        return False
    for dtype in (DType.F32, DType.S32, DType.BOOL):
        value = Value(TensorType((), dtype))
        try:
            if definition.scalar(Op(definition.name, (value,), (value,))) is not None:
                return True
        except KeyError:
            return True
    return False
