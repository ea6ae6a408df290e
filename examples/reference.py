"""The losses of a program in float64: what the losses of both sides are held against.

losses_differ(found, expected, exact_losses(program, steps))   ->   None, or what is wrong
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jstitch.frontend.importer import import_module
from jstitch.frontend.probe import as_function, make_program
from jstitch.inspection.lowered import lower_function
from jstitch.inspection.numerics import program_difference
from jstitch.inspection.reference import NEARBY, widen

if TYPE_CHECKING:
    from examples.common import Program

Arrays = list[np.ndarray]
HALF_ULP = 2.0**-24  # of float32


def losses_differ(found: Sequence[float], expected: Sequence[float], exact: Sequence[Any]) -> str | None:
    """What the rule of docs/numerics.md objects to in the losses `found`, next to jax.jit's.

    Their errors may be twice those of jax.jit and of the float64 runs whose start differs by a rounding.
    """
    ours, xla = (np.asarray(losses, np.float32) for losses in (found, expected))
    return program_difference(ours, xla, *exact)


def exact_losses(program: Program, steps: int) -> list[np.ndarray]:
    """(steps,) losses in float64: from the program's start, then from starts that differ by a rounding."""
    example = program.start(), *program.batch(0)
    module, _ = lower_function(program.step, example, {}, "cpu")
    with jax.enable_x64(True):
        step = jax.jit(as_function(make_program(widen(import_module(module)))))
        starts = _starts(_arrays(example[0]))
    batches = [_arrays(program.batch(number)) for number in range(steps)]
    with jax.enable_x64(True):
        return [_train(step, start, batches) for start in starts]


def _starts(start: Arrays) -> Iterator[Arrays]:
    yield start
    random = np.random.default_rng(0)
    for _ in range(NEARBY):
        yield [a * (1 + random.uniform(-HALF_ULP, HALF_ULP, a.shape)) if _wide(a) else a for a in start]


def _train(step: Any, state: Arrays, batches: Sequence[Arrays]) -> np.ndarray:
    losses = []
    for batch in batches:
        *state, loss = step(*state, *batch)
        losses.append(float(loss))
    return np.array(losses)


def _arrays(tree: Any) -> Arrays:
    """The leaves, floats in float64, random keys as their numbers."""
    return [_array(leaf) for leaf in jax.tree.leaves(tree)]


def _array(leaf: Any) -> np.ndarray:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _wide(array: np.ndarray) -> bool:
    return array.dtype == np.float64
