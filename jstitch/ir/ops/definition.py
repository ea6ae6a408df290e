"""What the project knows about an op: one `OpDef`, in one table, `OPS`.

Importer, verifier, interpreter, passes, cost models, emitters, tools and tests read it. An op that is not in
the table, or not for these types, is opaque: it stays XLA's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from jstitch.ir.expr import Formula
from jstitch.ir.graph import Op
from jstitch.ir.index import Case, Index
from jstitch.ir.schedule import Schedule
from jstitch.ir.types import DType

Arrays = tuple[np.ndarray, ...]


class OpClass(enum.Enum):
    """The classes every algorithm speaks of."""

    LIGHT = "light elementwise"
    EXPENSIVE = "expensive elementwise"
    REDUCTION = "reduction"
    SHAPE = "shape"
    INDEX = "index"
    CONSTANT = "constant"
    CONTRACTION = "contraction"
    CONTROL = "control"  # while, case, if: their regions are frames of their own
    OPAQUE = "opaque"

    @property
    def is_elementwise(self) -> bool:
        return self in (OpClass.LIGHT, OpClass.EXPENSIVE)


@dataclass(frozen=True)
class OpDef:
    """One op. Unset fields mean "no kernel can hold it" (contractions, control) or "not applicable".

    name: StableHLO's name (`stablehlo.add`, `chlo.erf`).
    op_class: see OpClass; decides which passes look at the op.
    reference: (op, operand arrays) -> result arrays, in NumPy: the oracle.
    attrs: Graph attribute name -> codec name in the importer/exporter (`i64`, `dims`, `bool`, ...).
    scalar: elementwise only. (op) -> the kernel expression of its operands' elements, valid for the operand
        types of this op; None when no kernel has it.
    result_dtype: elementwise only. The result has its operands' element type, is bool, or has one of its own.
    cases: shape and index ops. (op, result index) -> where the element comes from: the first Case whose
        conditions hold; the last one has none. A Dynamic atom names an operand by its number.
    position: iota only. (op, result index) -> the element's value.
    part: of ops that take complex numbers apart, which of the two parts they take. parts: whether the op
        makes a complex number of two.
    identity: ops that combine a reduction only. The value that changes nothing, for an element type.
    reassociated: the function that computes it on floats, free to be vectorised where it accumulates.
    in_place: XLA writes the result in the first operand's memory; a kernel would copy all of it.
    flops: arithmetic per element. cpi: cycles per instruction class, relative to an add. cpu_cpi: the same
        of the CPU backend's form where it differs much, measured on 8 lanes of float32 (AVX2). reduced_cpi:
        of XLA:CPU's form in what its sums read, where that is much faster than ours (Machine.reads_vectors).
    domain: the interval test inputs are drawn from, where the op is smooth.
    propagate: schedule propagation (propagation.py); None: the rule of the op's class.
    """

    name: str
    op_class: OpClass
    reference: Callable[..., Arrays] | None = None
    attrs: Mapping[str, str] = field(default_factory=dict)
    scalar: Callable[[Op], Formula | None] | None = None
    result_dtype: Literal["operands", "bool", "own"] = "operands"
    cases: Callable[[Op, tuple[Index, ...]], tuple[Case, ...]] | None = None
    position: Callable[[Op, tuple[Index, ...]], Index] | None = None
    part: int | None = None
    parts: bool = False
    identity: Callable[[DType], float | int | bool] | None = None
    reassociated: str | None = None
    in_place: bool = False
    flops: float = 1.0
    cpi: float = 1.0
    cpu_cpi: float | None = None
    reduced_cpi: float | None = None
    domain: tuple[float, float] = (-4.0, 4.0)
    propagate: Callable[[Op, Schedule], tuple[Schedule | None, ...] | str] | None = None

    @property
    def is_of_complex(self) -> bool:
        """Whether it reads or writes complex numbers by parts, and computes nothing."""
        return self.parts or self.part is not None

    @property
    def is_polynomial(self) -> bool:
        """Whether many instructions compute it, as many for one number as for a vector of them."""
        return self.op_class is OpClass.EXPENSIVE and self.flops > OWN


OWN = 2.0  # flops of what processors have instructions of their own for: square roots
OPS: dict[str, OpDef] = {}


def define(definition: OpDef) -> OpDef:
    """Add one op to the table. Raises ValueError when the name is already there."""
    if definition.name in OPS:
        raise ValueError(f"Op '{definition.name}' is defined twice.")
    OPS[definition.name] = definition
    return definition
