"""Programs drawn at random: steps one after another on an array, and what is made of all of them.

    float32[37,1025] | layer norm over 1 | gelu | cross entropy        in value and gradient

A step is something that people write: a norm, a mask, a look-up, a recurrence. What is slow can be made
smaller: a program without one of its steps, or without its gradient, is a program, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Extra:
    """An argument that a step has besides the array: a weight, labels in [0, high), a mask, a random key."""

    shape: Shape
    dtype: str = "float32"
    high: int = 2

    def value(self, numbers: np.random.Generator) -> np.ndarray:
        if self.dtype == "uint32":
            return numbers.integers(0, 1 << 32, self.shape, np.uint32)
        if self.dtype in ("int32", "bool"):
            return numbers.integers(0, self.high, self.shape).astype(self.dtype)
        return numbers.standard_normal(self.shape, np.float32).astype(self.dtype)

    @property
    def is_float(self) -> bool:
        return self.dtype not in ("int32", "bool", "uint32")


@dataclass(frozen=True)
class Step:
    """What is done to an array. apply: (array, extras) -> array."""

    name: str
    apply: Callable[..., Array]
    extras: tuple[Extra, ...] = ()

    def __str__(self) -> str:
        return self.name


Maker = Callable[[Random, Shape, str], Step | None]
"""What draws a step for an array of that shape and dtype; None where there is none."""


@dataclass(frozen=True)
class Program:
    """steps on an array; wrapper: a name of WRAPPERS, what is made of it."""

    shape: Shape
    dtype: str
    steps: tuple[Step, ...]
    wrapper: str = "value"
    seed: int = 0

    def __str__(self) -> str:
        kind = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        made = "" if self.wrapper == "value" else f"    in {self.wrapper}"
        return " | ".join([kind, *map(str, self.steps)]) + made

    @property
    def extras(self) -> tuple[Extra, ...]:
        return tuple(extra for step in self.steps for extra in step.extras)

    @property
    def arguments(self) -> tuple[Extra, ...]:
        """The array, with a dimension more where the wrapper maps over one, and all extras."""
        lead = (MAPPED,) if self.wrapper == "vmap" else ()
        return Extra((*lead, *self.shape), self.dtype), *self.extras

    def args(self) -> tuple[Any, ...]:
        numbers = np.random.default_rng(self.seed)
        return tuple(jnp.asarray(extra.value(numbers)) for extra in self.arguments)

    @property
    def shapes(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Of the arguments."""
        return tuple(jax.ShapeDtypeStruct(extra.shape, extra.dtype) for extra in self.arguments)

    def __call__(self, *args: Array) -> Any:
        return WRAPPERS[self.wrapper](self)(*args)

    def forward(self, x: Array, *extras: Array) -> Array:
        rest = list(extras)
        for step in self.steps:
            own, rest = rest[: len(step.extras)], rest[len(step.extras) :]
            x = step.apply(x, *own)
        return x

    def smaller(self) -> Iterator[Program]:
        """Without its wrapper, or without one of its steps, the last first."""
        if self.wrapper != "value":
            yield replace(self, wrapper="value")
        for n in reversed(range(len(self.steps))):
            if len(self.steps) > 1:
                yield replace(self, steps=(*self.steps[:n], *self.steps[n + 1 :]))

    @property
    def nbytes(self) -> int:
        """Of all arguments."""
        return sum(a.size * a.dtype.itemsize for a in self.shapes)

    def is_valid(self) -> bool:
        """Whether it can be traced: what is left of it without a step may not be."""
        try:
            jax.eval_shape(self, *self.shapes)
        except (TypeError, ValueError, IndexError):
            return False
        return True


MAPPED = 3  # arrays that vmap gets
TURNS = 3


def _value(program: Program) -> Callable[..., Any]:
    return program.forward


def _gradient(program: Program) -> Callable[..., Any]:
    """Of a loss that weighs all results, by everything that is a float.

    Weights differ along each dimension: the sum of what a norm leaves along one would be rounding alone.
    """
    floats = (0, *(n + 1 for n, extra in enumerate(program.extras) if extra.is_float))

    def loss(*args: Array) -> Array:
        out = program.forward(*args)
        weighed = out.astype(jnp.float32)
        for dim, size in enumerate(out.shape):
            others = [d for d in range(out.ndim) if d != dim]
            weighed *= jnp.expand_dims(jnp.cos(jnp.arange(size, dtype=jnp.float32)), others)
        return jnp.sum(weighed)

    return jax.value_and_grad(loss, floats)


def _mapped(program: Program) -> Callable[..., Any]:
    return jax.vmap(program.forward, (0, *(None for _ in program.extras)))


def _turns(program: Program) -> Callable[..., Any]:
    """Again and again, as layers that share their weights; what has another shape comes out as it is."""

    def run(x: Array, *extras: Array) -> Array:
        shape = jax.eval_shape(program.forward, x, *extras)
        if (shape.shape, shape.dtype) != (x.shape, x.dtype):
            return program.forward(x, *extras)
        return jax.lax.fori_loop(0, TURNS, lambda _, y: program.forward(y, *extras), x)

    return run


WRAPPERS: dict[str, Callable[[Program], Callable[..., Any]]] = {
    "value": _value,
    "value and gradient": _gradient,
    "vmap": _mapped,
    "turns": _turns,
}


def odd(random: Random, most: int, least: int = 1) -> int:
    """A size up to `most`: odd ones preferred, and those that people like."""
    most = max(least, most)
    liked = [n for n in (8, 16, 32, 64, 128, 256, 512, 768, 1024, 2048, 4096) if least <= n <= most]
    if liked and random.random() < 0.4:
        return random.choice(liked)
    drawn = round(2 ** random.uniform(np.log2(least), np.log2(most)))
    return min(most, max(least, drawn | 1)) if random.random() < 0.7 else max(least, min(most, drawn))


def split(random: Random, elements: int, rank: int) -> Shape:
    """A shape of about so many elements."""
    shape: list[int] = []
    for left in range(rank, 0, -1):
        most = (
            max(1, round(elements ** (1 / left) * 2 ** random.uniform(-2.5, 2.5))) if left > 1 else elements
        )
        shape.append(max(1, odd(random, max(1, min(most, elements)), max(1, min(most, elements) // 3))))
        elements = max(1, elements // shape[-1])
    random.shuffle(shape)
    return tuple(shape)


def axes_of(random: Random, rank: int) -> tuple[int, ...]:
    """Of a sum: mostly the last, or some next to each other."""
    if random.random() < 0.5:
        return (rank - 1,)
    first = random.randrange(rank)
    return tuple(range(first, random.randint(first + 1, rank)))


def wide(x: Array) -> Array:
    """Narrow floats as f32."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def expand(v: Array, axes: Sequence[int], rank: int) -> Array:
    """A vector over `axes`, to be broadcast with an array of that rank."""
    return v.reshape([v.shape[axes.index(d)] if d in axes else 1 for d in range(rank)])
