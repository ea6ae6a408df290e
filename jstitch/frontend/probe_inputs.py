"""Random arguments for a graph that is to be timed: of the right types, and positions inside what they index.

%2 = gather %table : tensor<50257x768xf32>, %ids      ->      ids uniform in [0, 50257)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.index import Atom, Clamp, Dynamic, FloorDiv, Index, Mod, Var, var
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.types import DType, TensorType

LOW, HIGH = 0.1, 1.0  # floats: safe to divide by, to take roots and logarithms of; never denormal
COUNT = 16  # signed integers that index nothing
_BLOCK = 1 << 20  # random elements; longer arrays repeat them
_ALIGN = 64  # JAX takes such memory as it is, without a copy


@dataclass(frozen=True)
class Argument:
    """A tensor to make. below: integers are less than this; None = any bits of an unsigned type."""

    type: TensorType
    below: int | None


def describe_arguments(graph: Graph) -> tuple[Argument, ...]:
    """Of a graph whose inputs are tensors."""
    limits = _limits(graph)
    return tuple(Argument(v.tensor, limits.get(v, _default(v.tensor.dtype))) for v in graph.inputs)


def make_arguments(arguments: Sequence[Argument], device: Any, seed: int = 0) -> list[Any]:
    """New arrays on the device. The same for equal `arguments` and seeds, in every process."""
    random = np.random.default_rng(seed)
    return [jax.device_put(_array(a, random), device) for a in arguments]


def _default(dtype: DType) -> int | None:
    return None if dtype.is_unsigned else COUNT


def _array(argument: Argument, random: np.random.Generator) -> NDArray[Any]:
    type_ = argument.type
    memory = np.empty(type_.nbytes + _ALIGN, np.uint8)
    start = -memory.ctypes.data % _ALIGN
    flat = memory[start : start + type_.nbytes].view(type_.dtype.numpy)
    block = _elements(argument, min(type_.size, _BLOCK), random)
    for at in range(0, type_.size, _BLOCK):
        flat[at : at + _BLOCK] = block[: type_.size - at]
    return flat.reshape(type_.shape)


def _elements(argument: Argument, count: int, random: np.random.Generator) -> NDArray[Any]:
    dtype = argument.type.dtype
    if dtype is DType.BOOL:
        return random.integers(0, 2, count).astype(np.bool_)
    if dtype.is_integer:
        limit = 1 << (8 * dtype.itemsize - dtype.is_signed)
        below = limit if argument.below is None else min(argument.below, limit)
        return random.integers(0, max(below, 1), count, np.uint64).astype(dtype.numpy)
    floats = random.uniform(LOW, HIGH, count)
    return (floats + 1j * floats if dtype.is_complex else floats).astype(dtype.numpy)


# -- positions -------------------------------------------------------------------------------------------


def _limits(graph: Graph) -> dict[Value, int]:
    """Exclusive upper bounds of the integers that end up as positions: the smallest that any use asks for."""
    found: dict[Value, int] = {}
    frames = [graph, *(region for op in graph.walk() for region in op.regions)]
    producers = {v: op for frame in frames for v, op in frame.producers().items()}
    for op in (op for frame in frames for op in frame.ops):
        for number, limit in _positions(op).items():
            for value in _sources(op.operands[number], producers):
                found[value] = min(limit, found.get(value, limit))
    return found


def _positions(op: Op) -> Mapping[int, int]:
    """Number of an operand that holds positions -> how many there are."""
    definition = lookup(op.name)
    if definition.op_class is OpClass.INDEX and definition.cases is not None:
        index = tuple(var(Var(f"i{d}", n)) for d, n in enumerate(op.result.shape))
        cases = definition.cases(op, index)
        found: dict[int, int] = {}
        for number, limit in (p for case in cases for e in case.index for p in _clamped(e)):
            found[number] = max(limit, found.get(number, limit))
        return found
    written = op.attrs.get("scattered_dims_to_operand_dims")
    if written:
        shape = op.operands[0].shape
        return {(len(op.operands) - 1) // 2: max(shape[d] for d in written)}
    return {}


def _clamped(index: Index) -> Iterator[tuple[int, int]]:
    for atom, _ in index.terms:
        yield from _clamped_atom(atom)


def _clamped_atom(atom: Atom) -> Iterator[tuple[int, int]]:
    match atom:
        case Clamp(of, _, hi):
            reads = (a.operand for a, _ in of.terms if isinstance(a, Dynamic))
            yield from ((operand, hi + 1) for operand in reads if isinstance(operand, int))
        case FloorDiv(of, _) | Mod(of, _):
            yield from _clamped(of)


def _sources(value: Value, producers: Mapping[Value, Op]) -> Iterator[Value]:
    """Values that nothing makes and that `value` is computed from."""
    todo, seen = [value], {value}
    while todo:
        op = producers.get(v := todo.pop())
        if op is None:
            yield v
        else:
            new = [u for u in op.uses if u not in seen and isinstance(u.type, TensorType)]
            new = [u for u in new if u.tensor.dtype.is_integer]
            seen.update(new)
            todo += new
