"""An operand of a product of matrices: which of its dimensions are rows, which are contracted.

dot_general %q [b, m, k], %k [b, n, k]     ->     Side(%q, batch (0,), contracted (2,)), free (1,)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.device_spec import DeviceSpec
from jstitch.ir.graph import Op, Value
from jstitch.ir.types import HALVES, DType
from jstitch.passes.base.tensor_cores import TENSOR_CORES

PRODUCT = "stablehlo.dot_general"
SIDES = ("lhs", "rhs")
HIGHEST = "precision HIGHEST"
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Side:
    """An operand of a product: its dimensions by role, in the order in which both sides pair them."""

    value: Value
    batch: tuple[int, ...]
    contracted: tuple[int, ...]

    @classmethod
    def of(cls, op: Op, number: int) -> Side:
        name = SIDES[number]
        batch, contracted = (op.attrs[f"{name}_{kind}_dimensions"] for kind in ("batching", "contracting"))
        return cls(op.operands[number], tuple(batch), tuple(contracted))

    @property
    def paired(self) -> tuple[int, ...]:
        return (*self.batch, *self.contracted)

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(d for d in range(self.value.tensor.rank) if d not in self.paired)

    @property
    def leads(self) -> bool:
        """Whether batch dimensions are first, but for those of one element."""
        large = [d for d, n in enumerate(self.value.shape) if n > 1]
        return sorted(large, key=lambda d: d not in self.batch) == large

    @property
    def ends_in_sums(self) -> bool:
        """Whether elements that are summed are beside each other."""
        large = [d for d, n in enumerate(self.value.shape) if n > 1]
        return bool(large) and large[-1] in self.contracted

    def shape(self, dims: Sequence[int]) -> Shape:
        return tuple(self.value.shape[d] for d in dims)

    def size(self, dims: Sequence[int]) -> int:
        return math.prod(self.shape(dims))


def by_size(op: Op) -> tuple[Side, Side]:
    """A product's operands, the one with more elements of its own first: a matrix, and vectors."""
    left, right = Side.of(op, 0), Side.of(op, 1)
    return (left, right) if left.size(left.free) >= right.size(right.free) else (right, left)


def is_product(op: Op, device: DeviceSpec | None) -> bool:
    """Whether kernels can make it, summed in f32: on a CPU of f32 or bf16, on a GPU of two of one type."""
    if op.name != PRODUCT or not all(v.tensor.size for v in op.operands):
        return False
    types = [v.tensor.dtype for v in op.operands]
    made = {*types, op.result.tensor.dtype}
    as_they_are = _algorithm(op) in (None, _sums_in_f32(*(t.value for t in types)))
    if device is None:
        return made <= {DType.F32, DType.BF16} and as_they_are
    alike = len(set(types)) == 1 and made <= {*types, DType.F32}
    if not alike or device.capability < TENSOR_CORES:
        return False
    if types[0] is DType.F32:
        return may_round(op, device)
    return types[0] in HALVES and as_they_are


def may_round(op: Op, device: DeviceSpec) -> bool:
    """Whether a product of f32 may be one of tf32: where XLA's library would make it one, too.

    XLA does that unless the highest precision, or an algorithm, is asked for.
    """
    if algorithm := _algorithm(op):
        return algorithm == _sums_in_f32("tf32", "tf32")
    return device.tf32 and HIGHEST not in op.attrs.get("precision_config", "")


def _algorithm(op: Op) -> str | None:
    return op.attrs.get("algorithm") or None


def _sums_in_f32(left: str, right: str) -> str:
    """The algorithm that kernels have: operands of these types, and one sum."""
    return (
        f"#stablehlo.dot_algorithm<lhs_precision_type = {left}, rhs_precision_type = {right},"
        " accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1,"
        " num_primitive_operations = 1, allow_imprecise_accumulation = false>"
    )
