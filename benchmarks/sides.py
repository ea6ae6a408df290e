"""The functions that are compared: `jax.jit`, and what is measured against it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import jax

import jstitch
from benchmarks.workload import Problem


class Side(enum.Enum):
    """JSTITCH is the subject. JAX against itself shows how far from 1.00 mere noise goes."""

    JSTITCH = "jstitch"
    JAX = "jax"


def jax_jit(problem: Problem) -> Callable[..., Any]:
    return jax.jit(problem.function, donate_argnums=problem.donate)


def subject_jit(
    problem: Problem, side: Side, options: jstitch.CompileOptions | None = None
) -> Callable[..., Any]:
    if side is Side.JAX:
        return jax_jit(problem)
    return jstitch.jit(problem.function, donate_argnums=problem.donate, options=options)
