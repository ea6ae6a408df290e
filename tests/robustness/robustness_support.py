"""Shared by the robustness tests: a stitched function, and new processes to break things in."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jstitch

HERE = Path(__file__).parent
LENIENT = jstitch.CompileOptions(tune="off", strict=False)
STRICT = LENIENT.replace(strict=True)


def standardize(constant: float = 1.0) -> Callable[[Any, Any], Any]:
    """A function JAX has never seen: rows brought to mean 0 and variance 1."""

    def f(x: Any, w: Any) -> Any:
        y = jnp.tanh(x * w) + constant * x
        centred = y - y.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    return f


def arguments(rows: int = 16) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 64)).astype(np.float32), rng.normal(size=64).astype(np.float32)


def check(stitched: Callable[..., Any], plain: Callable[..., Any], *args: Any) -> None:
    np.testing.assert_allclose(stitched(*args), jax.jit(plain)(*args), rtol=2e-5, atol=2e-5)


@contextmanager
def our_warnings() -> Iterator[list[str]]:
    """The texts of the project's own warnings, every one of them."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(w.message) for w in caught if issubclass(w.category, jstitch.JstitchWarning)]


def run_python(code: str, *args: str, timeout: float = 300, **variables: str) -> str:
    """Run `code` in a new process that can import this file; its standard output."""
    paths = [str(HERE), str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout
