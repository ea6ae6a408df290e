"""Train the same model from the same state on the same batches under two jits, step by step in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jstitch.demo.corpus import Corpus
from jstitch.demo.model import ModelConfig, init_params, loss

Jit = Callable[..., Any]


@dataclass(frozen=True)
class State:
    """Parameters and optimiser state, donated from step to step."""

    params: Any
    optimizer: Any


jax.tree_util.register_dataclass(State, ["params", "optimizer"], [])


@dataclass(frozen=True)
class TrainingConfig:
    """A run: the model, `steps` batches of `batch` rows, AdamW with warm-up and clipping."""

    model: ModelConfig = field(default_factory=ModelConfig)
    steps: int = 100
    batch: int = 4
    learning_rate: float = 1e-3
    seed: int = 0

    def optimizer(self) -> Any:
        warm_up = optax.linear_schedule(0.0, self.learning_rate, transition_steps=20)
        decay = optax.adamw(warm_up, b2=0.95, eps=1e-6, weight_decay=0.1)
        return optax.chain(optax.clip_by_global_norm(1.0), decay)


@dataclass
class Side:
    """One of the two trainings: its compiled step, and what it has seen so far."""

    name: str
    step: Any
    state: State
    compile_seconds: float
    hlo: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def median_ms(self) -> float:
        """Of all steps but the first two, which still warm caches up."""
        return 1e3 * statistics.median(self.seconds[2:] or self.seconds)

    def advance(self, tokens: Array, key: Array) -> None:
        """One step, timed to the end."""
        start = time.perf_counter()
        self.state, value = self.step(self.state, tokens, key)
        jax.block_until_ready((self.state, value))  # type: ignore[no-untyped-call]
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(float(value))


def train_step(config: TrainingConfig, state: State, tokens: Array, key: Array) -> tuple[State, Array]:
    """One step of training: the new state, and the loss before it. Plain JAX and optax."""
    objective = partial(loss, config.model)
    value, gradients = jax.value_and_grad(objective)(state.params, tokens, key)
    updates, optimizer = config.optimizer().update(gradients, state.optimizer, state.params)
    return State(optax.apply_updates(state.params, updates), optimizer), value


def initial_state(config: TrainingConfig) -> State:
    params = init_params(config.model, jax.random.key(config.seed))
    return State(params, config.optimizer().init(params))


def prepare(name: str, jit: Jit, config: TrainingConfig) -> Side:
    """Compile the step under `jit` ahead of time."""
    state = initial_state(config)
    jitted = jit(partial(train_step, config), donate_argnums=0)
    tokens = jnp.zeros((config.batch, config.model.length + 1), jnp.int32)
    start = time.perf_counter()
    compiled = jitted.lower(state, tokens, jax.random.key(0)).compile()
    return Side(name, compiled, state, time.perf_counter() - start, str(compiled.as_text()))


def train(
    sides: tuple[Side, ...], config: TrainingConfig, corpus: Corpus, progress: Callable[[], None]
) -> None:
    """All steps, the sides in turn, who is first alternating; `progress` is called after each step."""
    for number in range(config.steps):
        tokens = jnp.asarray(corpus.batch(number, config.batch, config.model.length))
        key = jax.random.fold_in(jax.random.key(config.seed + 1), number)
        for side in sides if number % 2 == 0 else reversed(sides):
            side.advance(tokens, key)
        progress()
