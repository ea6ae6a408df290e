"""Draw programs: how large, of which type, which steps, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import jax
import numpy as np

from benchmarks.grammar import (
    contractions,
    endings,
    moves,
    norms,
    pieces,
    points,
    pointwise,
    sequences,
    spectra,
)
from benchmarks.grammar.program import Maker, Program, Step, split

SMALLEST, LARGEST = 256, 12_000_000  # elements
DTYPES = ("float32",) * 7 + ("bfloat16",) * 3 + ("float16",)
RANKS = (1, 2, 2, 2, 3, 3, 3, 4, 4)
FAMILIES: tuple[tuple[Maker, ...], ...] = (
    *(norms.MAKERS, norms.MAKERS, pointwise.MAKERS, pointwise.MAKERS, pointwise.MAKERS),
    *(moves.MAKERS, sequences.MAKERS, contractions.MAKERS),
    *(spectra.MAKERS, pieces.MAKERS, points.MAKERS),
)
ENDING = 0.4  # of programs end in a loss, a sum, or the step of an optimizer
MOST_STEPS = 5


def programs(seed: int) -> Iterator[Program]:
    """Without end; the same for the same seed."""
    number = 0
    while True:
        found = draw(Random(f"{seed}.{number}"), number)
        number += 1
        if found is not None:
            yield found


def draw(random: Random, seed: int) -> Program | None:
    """One, or none where what was drawn does not go together."""
    elements = round(2 ** random.uniform(np.log2(SMALLEST), np.log2(LARGEST)))
    shape, dtype = split(random, elements, random.choice(RANKS)), random.choice(DTYPES)
    steps = tuple(_steps(random, shape, dtype))
    wrapper = random.choice(("value", "value", "value and gradient", "value and gradient", "vmap", "turns"))
    found = Program(shape, dtype, steps, wrapper, seed)
    return found if steps and found.is_valid() and found.nbytes < 1 << 27 else None


def _steps(random: Random, shape: tuple[int, ...], dtype: str) -> Iterator[Step]:
    x = jax.ShapeDtypeStruct(shape, dtype)
    for _ in range(random.randint(1, MOST_STEPS)):
        step = random.choice(random.choice(FAMILIES))(random, x.shape, dtype)
        made = None if step is None else _shape(step, x)
        if step is None or made is None or made.size == 0 or not made.shape or made.size > 2 * LARGEST:
            continue
        yield step
        x = made
    if random.random() < ENDING:
        step = random.choice(endings.MAKERS)(random, x.shape, dtype)
        if step is not None and _shape(step, x) is not None:
            yield step


def _shape(step: Step, x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct | None:
    """What the step makes; None where it takes no such array."""
    extras = [jax.ShapeDtypeStruct(e.shape, e.dtype) for e in step.extras]
    try:
        return jax.eval_shape(step.apply, x, *extras)
    except (TypeError, ValueError, IndexError):
        return None
