"""PPO: CartPole written in JAX; rollout, advantages, epochs and minibatches are one jitted step.

python -m examples.ppo
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from examples.common import Jit, Program, main, normal

Params = Any


@dataclass(frozen=True)
class Config:
    actors: int = 64
    steps: int = 128
    epochs: int = 4
    minibatches: int = 4
    width: int = 64


SMALL = Config(actors=4, steps=8, epochs=1, minibatches=2, width=8)


class Transition(NamedTuple):
    observation: Array
    action: Array
    log_probability: Array
    value: Array
    reward: Array
    done: Array


def cart_pole(state: Array, action: Array) -> Array:
    """The next state (position, speed, angle, angular speed) of a cart, pushed left (0) or right (1)."""
    _, v, angle, turning = state
    force = jnp.where(action == 1, 10.0, -10.0)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    push = (force + 0.05 * turning**2 * sine) / 1.1
    spin = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    slide = push - 0.05 * spin * cosine / 1.1
    return state + 0.02 * jnp.stack([v, slide, turning, spin])


def environment(state: Array, action: Array, key: Array) -> tuple[Array, Array, Array]:
    """Next state, reward, and whether it starts anew."""
    moved = cart_pole(state, action)
    done = (jnp.abs(moved[0]) > 2.4) | (jnp.abs(moved[2]) > 0.2095)
    fresh = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
    return jnp.where(done, fresh, moved), jnp.where(done, -1.0, 0.1), done


def init(random: np.random.Generator, width: int) -> Params:
    shapes = {"in": (4, width), "hidden": (width, width), "policy": (width, 2), "value": (width, 1)}
    scales = {"in": 0.5, "hidden": width**-0.5, "policy": 0.01, "value": width**-0.5}
    made = {name: normal(random, scales[name], *shape) for name, shape in shapes.items()}
    return made | {f"{name}_bias": jnp.zeros(shape[1]) for name, shape in shapes.items()}


def policy(params: Params, observation: Array) -> tuple[Array, Array]:
    """Log-probabilities of the actions, and the value of the state."""
    x = jnp.tanh(observation @ params["in"] + params["in_bias"])
    x = jnp.tanh(x @ params["hidden"] + params["hidden_bias"])
    logits = x @ params["policy"] + params["policy_bias"]
    return jax.nn.log_softmax(logits), (x @ params["value"] + params["value_bias"])[..., 0]


def rollout(params: Params, states: Array, key: Array, config: Config) -> tuple[Array, Transition]:
    def turn(states: Array, key: Array) -> tuple[Array, Transition]:
        choose, move = jax.random.split(key)
        logits, value = policy(params, states)
        action = jax.random.categorical(choose, logits)
        chosen = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        following, reward, done = jax.vmap(environment)(states, action, jax.random.split(move, len(states)))
        return following, Transition(states, action, chosen, value, reward, done)

    return jax.lax.scan(turn, states, jax.random.split(key, config.steps))


def advantages(taken: Transition, last: Array) -> Array:
    """Generalised advantage estimation."""

    def turn(carry: tuple[Array, Array], now: Transition) -> tuple[tuple[Array, Array], Array]:
        advantage, following = carry
        gain = now.reward + 0.99 * following * (1 - now.done) - now.value
        advantage = gain + 0.99 * 0.95 * (1 - now.done) * advantage
        return (advantage, now.value), advantage

    return jax.lax.scan(turn, (jnp.zeros_like(last), last), taken, reverse=True)[1]


def loss(params: Params, taken: Transition, advantage: Array, target: Array) -> Array:
    logits, value = policy(params, taken.observation)
    chosen = jnp.take_along_axis(logits, taken.action[:, None], 1)[:, 0]
    ratio = jnp.exp(chosen - taken.log_probability)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 0.8, 1.2) * advantage
    entropy = -jnp.sum(jnp.exp(logits) * logits, -1).mean()
    surrogate = -jnp.minimum(ratio * advantage, clipped).mean()
    return surrogate + 0.5 * jnp.square(value - target).mean() - 0.01 * entropy


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3, eps=1e-5))

    def minibatch(carry: Any, batch: Any) -> tuple[Any, Array]:
        params, moments = carry
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        updates, moments = optimizer.update(gradients, moments)
        return (optax.apply_updates(params, updates), moments), value

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, key: Array) -> tuple[Any, Array]:
        params, moments, states = state
        play, *shuffles = jax.random.split(key, 1 + config.epochs)
        states, taken = rollout(params, states, play, config)
        advantage = advantages(taken, policy(params, states)[1])
        data = jax.tree.map(
            lambda a: a.reshape(-1, *a.shape[2:]), (taken, advantage, advantage + taken.value)
        )

        def epoch(carry: Any, key: Array) -> tuple[Any, Array]:
            order = jax.random.permutation(key, config.actors * config.steps).reshape(config.minibatches, -1)
            return jax.lax.scan(minibatch, carry, jax.tree.map(lambda a: a[order], data))

        (params, moments), values = jax.lax.scan(epoch, (params, moments), jnp.stack(shuffles))
        return (params, moments, states), values.mean()

    def start() -> Any:
        params = init(np.random.default_rng(0), config.width)
        states = normal(np.random.default_rng(1), 0.03, config.actors, 4)
        return params, optimizer.init(params), states

    return Program(step, start, lambda number: (jax.random.fold_in(jax.random.key(2), number),))


if __name__ == "__main__":
    main("ppo")
