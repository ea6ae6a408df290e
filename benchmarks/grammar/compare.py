"""Whether a program's results are right: as near to float64's as those of `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.check import WrongResultError, require_equal
from benchmarks.grammar.program import Program

TOLERANCES = {"float32": 1e-3, "bfloat16": 0.05, "float16": 0.01}
TIMES = 4.0  # as far from float64 as `jax.jit` is
UNITS = {"float32": 1e-5, "bfloat16": 0.02, "float16": 0.003}
"""Besides, of the largest number; of that of all results a tenth, as one that cancels is made of such."""


def require_right(program: Program, found: Any, expected: Any) -> None:
    """Raises WrongResultError where results differ, and by more than rounding can explain."""
    try:
        require_equal(found, expected, TOLERANCES[program.dtype], "jstitch.jit")
    except WrongResultError as error:
        if not _near(program, found, expected):
            raise error


def _near(program: Program, found: Any, expected: Any) -> bool:
    """Whether all numbers are as near to those of float64: cancelled ones may be noise in both."""
    exact = _exact(program)
    leaves = [jax.tree.leaves(x) for x in (found, expected, exact)]
    unit = UNITS[program.dtype]
    all_largest = max((_largest(np.asarray(c, np.float64)) for c in leaves[2]), default=0.0)
    for ours, theirs, right in zip(*leaves, strict=True):
        a, b, c = (np.asarray(x, np.float64) for x in (ours, theirs, right))
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return False
        finite = np.isfinite(a) & np.isfinite(c)
        x, y, z = a[finite], b[finite], c[finite]
        allowed = TIMES * _largest(y - z) + unit * max(_largest(z), _largest(y), all_largest / 10)
        if not _largest(x - z) <= allowed:
            return False
    return True


def _largest(x: np.ndarray) -> float:
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def _exact(program: Program) -> Any:
    args = [np.asarray(a) for a in program.args()]
    with jax.enable_x64(True):
        run: Callable[..., Any] = jax.jit(lambda *args: program(*args))
        return jax.device_get(run(*map(_widened, args)))


def _widened(a: np.ndarray) -> Any:
    is_float = jnp.issubdtype(a.dtype, jnp.floating)
    return jnp.asarray(a, jnp.float64) if is_float else jnp.asarray(a)
