"""What the ten programs share: training under two jits in turn, timing, comparing, and the command line.

make(jax.jit), make(jstitch.jit)   ->   the same losses, and the ratio of their times
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jstitch
from jstitch.demo.hlo import ProgramCost, program_cost
from jstitch.demo.report import largest_difference
from jstitch.runtime.race import Race

Jit = Callable[..., Any]
Row = dict[str, Any]
NAMES = ("gpt", "vit", "bert", "diffusion", "vae", "ppo", "neural_ode", "hmc", "gnn", "wave")
BLOCK = 4  # steps of one side in a row; the first one, right after the other side's, is not timed


@dataclass(frozen=True)
class Program:
    """step(state, *batch) -> (state, loss), jitted, its state donated. start(): a new state.

    batch: number of the step -> its arguments.
    """

    step: Any
    start: Callable[[], Any]
    batch: Callable[[int], tuple[Any, ...]]


def normal(random: np.random.Generator, scale: float, *shape: int) -> Array:
    """Weights to start from. By NumPy: nothing is compiled for each shape."""
    return jnp.asarray(scale * random.standard_normal(shape), jnp.float32)


def load(name: str) -> Callable[..., Program]:
    """`make` of one of NAMES."""
    make: Callable[..., Program] = importlib.import_module(f"examples.{name}").make
    return make


@dataclass
class Side:
    """A program's training under one jit: compiled, and what it has seen so far.

    rounds: seconds per step of each block. reasons: why calls, or parts of them, were left to XLA.
    """

    compiled: Any
    state: Any
    compile_seconds: float
    cost: ProgramCost
    reasons: tuple[str, ...]
    losses: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)

    def run(self, batches: Sequence[tuple[Any, ...]]) -> None:
        """A block of steps, each to its end."""
        times = [self._advance(batch) for batch in batches]
        self.rounds.extend([statistics.mean(times[1:])] if times[1:] else [])

    def _advance(self, batch: tuple[Any, ...]) -> float:
        start = time.perf_counter()
        self.state, loss = jax.block_until_ready(self.compiled(self.state, *batch))
        seconds = time.perf_counter() - start
        self.losses.append(float(loss))
        return seconds

    @property
    def milliseconds(self) -> float:
        return 1e3 * statistics.median(self.rounds) if self.rounds else float("nan")


def prepare(program: Program) -> Side:
    """Compiled for the shapes of its first batch."""
    state, since, start = program.start(), jstitch.record_count(), time.perf_counter()
    compiled = program.step.lower(state, *program.batch(0)).compile()
    seconds = time.perf_counter() - start
    records = jstitch.last_report(since)
    reasons = tuple(dict.fromkeys(record.reason for record in records if record.reason))
    return Side(compiled, state, seconds, program_cost(compiled.as_text()), reasons)


def train(program: Program, sides: Sequence[Side], steps: int) -> None:
    """All steps; blocks of the sides in turn, another one first each time."""
    for first in range(0, steps, BLOCK):
        batches = [program.batch(number) for number in range(first, min(first + BLOCK, steps))]
        turn = first // BLOCK % len(sides)
        for side in (*sides[turn:], *sides[:turn]):
            side.run(batches)


def measure(name: str, steps: int, small: bool = False, floor: bool = False) -> Row:
    """One program under `jax.jit` and `jstitch.jit`; with `floor`, under `jax.jit` once more.

    'complaint' is what the numerics rule objects to in the losses, None where they are equal by it.
    """
    from examples.reference import losses_differ, references

    make = load(name)
    plain = make(jax.jit, small)
    sides = [prepare(plain), prepare(make(jstitch.jit, small))]
    sides += [replace(sides[0], state=plain.start(), losses=[], rounds=[])] if floor else []
    train(plain, sides, steps)
    xla, ours = sides[:2]
    complaint = losses_differ(ours.losses, xla.losses, references(plain, xla.compiled, steps))
    return {
        "name": name,
        "steps": steps,
        "complaint": complaint,
        "largest difference": largest_difference(ours.losses, xla.losses),
        "losses": [ours.losses[0], ours.losses[-1]],
        **_ratios(sides),
        "xla": _facts(xla),
        "jstitch": {**_facts(ours), "stitched": len(ours.cost.stitched), "left to XLA": list(ours.reasons)},
    }


def _ratios(sides: Sequence[Side]) -> Row:
    """How many times faster than `jax.jit`, with the logarithm's standard error; `jax.jit` itself as well."""
    rounds = tuple(zip(*(side.rounds for side in sides), strict=True))
    names = ("ratio", "floor")[: len(sides) - 1]
    found = {name: Race(rounds).ratio(0, n) for n, name in enumerate(names, 1)} if rounds else {}
    return {name: {"value": ratio.value, "error": ratio.error} for name, ratio in found.items()}


def _facts(side: Side) -> Row:
    cost = side.cost
    return {
        "milliseconds": side.milliseconds,
        "kernels": len(cost.kernels),
        "bytes": cost.nbytes,
        "compile seconds": side.compile_seconds,
    }


def main(name: str) -> None:
    """`python -m examples.NAME` is `python -m examples NAME`."""
    from examples.command import command

    command([name, *sys.argv[1:]])
