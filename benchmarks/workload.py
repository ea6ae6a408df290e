"""What a benchmark is: a plain JAX function and its arguments at three working-set sizes.

Workload ::= name, make: shapes -> Problem, shapes of each Size
Problem  ::= function, args, donate, carry
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

Arguments = tuple[Any, ...]
Shape = tuple[int, ...]


class Size(enum.Enum):
    """Where the working set lives: ~0.5 MB, ~8-16 MB, >= 64 MB."""

    L2 = "l2"
    L3 = "l3"
    DRAM = "dram"


@dataclass(frozen=True)
class Problem:
    """One function with its arguments.

    `donate` are the argument numbers given away at each call; `carry(args, output)` then makes the
    arguments of the next call. `tolerance` bounds the largest difference to `jax.jit` in each output,
    relative to that output's largest magnitude, for float32 (narrower floats add their own epsilon).
    """

    function: Callable[..., Any]
    args: Arguments
    donate: tuple[int, ...] = ()
    carry: Callable[[Arguments, Any], Arguments] | None = None
    tolerance: float = 5e-5

    @cached_property
    def io_bytes(self) -> int:
        """Bytes of all arguments and all results."""
        outputs = jax.eval_shape(self.function, *self.args)
        return tree_bytes(self.args) + tree_bytes(outputs)

    def fresh_args(self) -> Arguments:
        """The arguments in new device buffers, which may be donated."""
        fresh: Arguments = jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), self.args)
        return fresh

    def next_args(self, args: Arguments, output: Any) -> Arguments:
        return args if self.carry is None else self.carry(args, output)


@dataclass(frozen=True)
class Workload:
    """A named function at three sizes.

    `torch`, where given, takes the problem's arguments and returns the same step in PyTorch (see twins.py).
    """

    name: str
    make: Callable[..., Problem]
    shapes: Mapping[Size, Shape]
    torch: Callable[[Arguments], Callable[[], Any]] | None = field(default=None, repr=False)

    def problem(self, size: Size) -> Problem:
        return self.make(*self.shapes[size])


def tree_bytes(tree: Any) -> int:
    """Bytes of all array leaves (or of their shapes and dtypes)."""
    return sum(leaf.size * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def sizes(l2: Shape, l3: Shape, dram: Shape) -> dict[Size, Shape]:
    return {Size.L2: l2, Size.L3: l3, Size.DRAM: dram}


def normal(shape: Shape, seed: int = 0, scale: float = 1.0, dtype: Any = np.float32) -> jax.Array:
    """Normal random numbers that do not depend on the JAX version."""
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * np.float32(scale)
    return jax.numpy.asarray(values, dtype=dtype)
