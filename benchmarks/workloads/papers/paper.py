"""What a workload of the papers is: a step in plain JAX at the paper's sizes, and the same step at a tiny
size.

Paper ::= name, source, make: sizes -> Step, full sizes, tiny sizes
Step  ::= function, draw: arguments from random numbers, donate
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.workload import Arguments, Problem, Shape

Weights = dict[str, Array]
Loss = Callable[..., Array]


@dataclass(frozen=True)
class Step:
    """One function, and how its arguments are drawn: only on demand, so that full sizes cost nothing."""

    function: Callable[..., Any]
    draw: Callable[[], Arguments]
    donate: tuple[int, ...] = ()
    tolerance: float = 5e-5


@dataclass(frozen=True)
class Paper:
    """A workload that a paper evaluates. `full` are the paper's sizes, `tiny` ones run on a CPU."""

    name: str
    source: str
    make: Callable[..., Step]
    full: Mapping[str, int]
    tiny: Mapping[str, int]

    def shapes(self) -> Problem:
        """At the paper's sizes, with `jax.ShapeDtypeStruct`s as arguments: nothing is computed."""
        step = self.make(**self.full)
        return Problem(step.function, jax.eval_shape(step.draw), step.donate, tolerance=step.tolerance)

    def small(self) -> Problem:
        """At a tiny size, with numbers as arguments."""
        step = self.make(**self.tiny)
        return Problem(step.function, step.draw(), step.donate, tolerance=step.tolerance)


class Draw:
    """Random arguments, each from the next key."""

    def __init__(self) -> None:
        self.count = 0

    def key(self) -> Array:
        self.count += 1
        return jax.random.PRNGKey(self.count)

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        return scale * jax.random.normal(self.key(), shape)

    def integers(self, high: int, *shape: int) -> Array:
        return jax.random.randint(self.key(), shape, 0, high)

    def weights(self, shapes: Mapping[str, Shape]) -> Weights:
        """`*_scale` about one, `*_table` small, other vectors small, the rest by its number of inputs."""
        return {name: self.weight(name, shape) for name, shape in shapes.items()}

    def weight(self, name: str, shape: Shape) -> Array:
        if name.endswith("_scale"):
            return 1 + self.normal(*shape, scale=0.1)
        if len(shape) < 2 or name.endswith("_table"):
            return self.normal(*shape, scale=0.1)
        inputs = 1
        for extent in shape[:-1]:
            inputs *= extent
        return self.normal(*shape, scale=inputs**-0.5)

    def state(self, transform: optax.GradientTransformation, weights: Weights) -> Any:
        """An optimizer's state as after some steps: with a zero second moment the update would be a sign."""

        def fill(leaf: jax.ShapeDtypeStruct) -> Array:
            if not leaf.shape:
                return jnp.asarray(3, leaf.dtype)
            return 1e-3 + 0.01 * jnp.abs(self.normal(*leaf.shape))

        return jax.tree.map(fill, jax.eval_shape(transform.init, weights))


def training(
    loss: Loss,
    transform: optax.GradientTransformation,
    shapes: Mapping[str, Shape],
    batch: Callable[[Draw], Arguments],
    tolerance: float = 5e-5,
) -> Step:
    """`(weights, state, *batch) -> (weights, state, loss)`; weights and state are donated."""

    def step(weights: Weights, state: Any, *inputs: Any) -> tuple[Weights, Any, Array]:
        value, gradients = jax.value_and_grad(loss)(weights, *inputs)
        updates, state = transform.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    def draw() -> Arguments:
        numbers = Draw()
        weights = numbers.weights(shapes)
        return (weights, numbers.state(transform, weights), *batch(numbers))

    return Step(step, draw, donate=(0, 1), tolerance=tolerance)


def inference(
    function: Callable[..., Any], shapes: Mapping[str, Shape], batch: Callable[[Draw], Arguments]
) -> Step:
    """`(weights, *batch) -> results`; the weights are kept."""

    def draw() -> Arguments:
        numbers = Draw()
        return (numbers.weights(shapes), *batch(numbers))

    return Step(function, draw)
