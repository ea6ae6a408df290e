"""JAX's own tests with `jax.jit` replaced by `jstitch.jit`: a share of them, where they are at hand.

JAX_TESTS=<folder> pytest tests/transform/test_jax_own.py

The folder holds JAX's test files by version, and a plugin `swap_jit` that replaces the decorator. Whole
files are run by hand (docs/jax-tests.md says which tests fail, and why); these are quick, and none may fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

FOLDER = Path(os.environ.get("JAX_TESTS", "")).absolute() / jax.__version__

SHARE = {
    "aot": "lower or compile",
    "debug_nans": "jit",
    "checkify": "jit and (nan or div or index or all_errors or assert)",
    "mutable_array": "free or grad or scan or vmap",
    "jet": "jit or exp or log1p",
    "custom_api": "optimize_remat or pytree or closure",
    "api": "cache or traceback_filtering or static or donate or attributes",
    "export": "poly_export or basic or donation or grad",
    "lax_control_flow": "while_loop_jit or fori or cond_basic",
}
"""By file: which of its tests."""

ONCE = ("mutable_array", "jet", "export", "custom_api", "aot")  # long, and of parts that the versions share

EXPECTED = {
    "test_eval_shape_trace_cache_share",  # jax.eval_shape is not replaced: it has no trace of ours to share
}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="JAX_TESTS names no folder with tests of this version of JAX")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.once if name in ONCE else ()) for name in SHARE]
)
def test_jax_passes_its_own_tests(name: str) -> None:
    choice = f"({SHARE[name]}) and not ({' or '.join(EXPECTED)})"
    settings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[2]), str(FOLDER.parent))),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_GENERATED_CASES": "1",
        "SWAP": "1",
    }
    command = (sys.executable, "-m", "pytest", "-p", "swap_jit", "-p", "no:cacheprovider", "-q", "-k", choice)
    done = subprocess.run(
        [*command, f"{FOLDER.name}/{name}_test.py"],
        cwd=FOLDER.parent,
        env=settings,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
