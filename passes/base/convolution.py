"""What a convolution's attributes say, by the roles of its dimensions.

[8, 56, 56, 32] with [3, 3, 1, 32]      32 groups of one feature, 9 terms for each element of the result
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.ir.graph import Op, Value
from jstitch.ir.types import DType

CONVOLUTION = "stablehlo.convolution"


@dataclass(frozen=True, eq=False)
class Convolution:
    """One op. Dimensions are (batch, feature, *spatial); of kernels (output feature, input feature, ...)."""

    op: Op

    def _dims(self, batch: str, feature: str, spatial: str) -> tuple[int, ...]:
        attrs = self.op.attrs
        return (attrs[batch], attrs[feature], *attrs[spatial])

    @functools.cached_property
    def left(self) -> tuple[int, ...]:
        """Dimensions of the operand."""
        return self._dims("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions")

    @functools.cached_property
    def kernel(self) -> tuple[int, ...]:
        """Dimensions of the kernel."""
        names = "kernel_output_feature_dimension", "kernel_input_feature_dimension"
        return self._dims(*names, "kernel_spatial_dimensions")

    @functools.cached_property
    def out(self) -> tuple[int, ...]:
        """Dimensions of the result."""
        return self._dims("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions")

    def sizes(self, v: Value, dims: Sequence[int]) -> tuple[int, ...]:
        return tuple(v.shape[d] for d in dims)

    @property
    def window(self) -> tuple[int, ...]:
        return self.sizes(self.op.operands[1], self.kernel[2:])

    @property
    def places(self) -> tuple[int, ...]:
        """Of the window in the operand: the result's spatial sizes."""
        return self.sizes(self.op.result, self.out[2:])

    @property
    def features(self) -> int:
        """Of the operand, that a feature of the result is made of."""
        return self.op.operands[1].shape[self.kernel[1]]

    @property
    def groups(self) -> int:
        return int(self.op.attrs.get("feature_group_count", 1))

    @property
    def batch_groups(self) -> int:
        return int(self.op.attrs.get("batch_group_count", 1))

    @property
    def multiplier(self) -> int:
        """Features of the result that are made of the same ones of the operand."""
        return self.op.operands[1].shape[self.kernel[0]] // (self.groups * self.batch_groups)

    def each(self, name: str) -> tuple[int, ...]:
        """A number for each spatial dimension: strides or dilations."""
        return tuple(self.op.attrs.get(name) or (1,) * len(self.window))

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        return tuple(self.op.attrs.get("padding") or ((0, 0),) * len(self.window))

    @property
    def reversed(self) -> tuple[bool, ...]:
        return tuple(self.op.attrs.get("window_reversal") or (False,) * len(self.window))

    @property
    def terms(self) -> int:
        """Multiplications for an element of the result."""
        return self.features * math.prod(self.window)

    @property
    def makes_floats(self) -> bool:
        """Of floats, that there are any elements, and that none is narrowed before it is multiplied."""
        values = (*self.op.operands, self.op.result)
        floats = all(v.tensor.size > 0 and v.tensor.dtype.is_float for v in values)
        return floats and all(v.tensor.dtype.itemsize <= self.compute.itemsize for v in values)

    @property
    def compute(self) -> DType:
        """What kernels add up in."""
        return self.op.result.tensor.dtype.compute
