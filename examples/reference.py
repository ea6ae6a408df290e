"""What the losses of both sides are held against: float64, and `jax.jit` from starts a rounding away.

losses_differ(found, expected, references(program, compiled, steps))   ->   None, or what is wrong
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jstitch.frontend.importer import import_module
from jstitch.frontend.probe import as_function, make_program
from jstitch.inspection.lowered import lower_function
from jstitch.inspection.numerics import program_difference
from jstitch.inspection.reference import NEARBY, widen

if TYPE_CHECKING:
    from examples.common import Program

Losses = np.ndarray


def losses_differ(found: Sequence[float], expected: Sequence[float], known: Sequence[Losses]) -> str | None:
    """What the rule of docs/numerics.md objects to in the losses `found`, next to jax.jit's.

    known: `references`. An error may be twice those of jax.jit, from the same start and from the others.
    """
    ours, xla = (np.asarray(losses, np.float32) for losses in (found, expected))
    return program_difference(ours, xla, *known)


def references(program: Program, compiled: Any, steps: int) -> list[Losses]:
    """(steps,) losses in float64, then those of jax.jit's `compiled` from NEARBY other starts."""
    random = np.random.default_rng(0)
    starts = [jax.tree.map(lambda a: _nudged(a, random), program.start()) for _ in range(NEARBY)]
    return [_exact_losses(program, steps), *(_losses(program, compiled, start, steps) for start in starts)]


def _nudged(array: Any, random: np.random.Generator) -> Any:
    """Every float is one of its neighbours."""
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return array
    side = np.where(random.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    return jnp.asarray(np.nextafter(np.asarray(array), side))


def _losses(program: Program, compiled: Any, state: Any, steps: int) -> Losses:
    losses = []
    for number in range(steps):
        state, loss = compiled(state, *program.batch(number))
        losses.append(float(loss))
    return np.array(losses, np.float32)


def _exact_losses(program: Program, steps: int) -> Losses:
    """The step as a program of its own, with all floats in float64 and the same random numbers."""
    start, losses = program.start(), []
    module, _ = lower_function(program.step, (start, *program.batch(0)), {}, "cpu")
    step = jax.jit(as_function(make_program(widen(import_module(module)))))
    state = _arrays(start)
    for number in range(steps):
        batch = _arrays(program.batch(number))
        with jax.enable_x64(True):
            *state, loss = step(*state, *batch)
        losses.append(float(loss))
    return np.array(losses)


def _arrays(tree: Any) -> list[Any]:
    """The leaves, floats in float64, random keys as their numbers."""
    return [_array(leaf) for leaf in jax.tree.leaves(tree)]


def _array(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return array.astype(np.float64) if array.dtype.kind == "f" else array
