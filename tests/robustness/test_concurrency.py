"""Several threads, forked and spawned processes: stitched functions give the same results everywhere."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from robustness_support import STRICT, arguments, run_python, standardize

import jstitch


def _two_threads(calls: int) -> None:
    functions = [standardize(0.5), lambda x, w: jax.nn.softmax(x * w, axis=-1) - jnp.exp(-x).sum()]
    stitched = [jstitch.jit(f, options=STRICT) for f in functions]
    args = arguments()
    expected = [np.asarray(jax.jit(f)(*args)) for f in functions]
    first = [np.asarray(f(*args)) for f in stitched]
    wrong: list[Any] = []
    start = threading.Barrier(2)

    def run(which: int) -> None:
        start.wait()
        try:
            for _ in range(calls):
                found = np.asarray(stitched[which](*args))
                if not np.array_equal(found, first[which]):
                    wrong.append(found)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for found, want in zip(first, expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def test_two_threads_call_two_functions_1000_times() -> None:
    _two_threads(1_000)


@pytest.mark.slow
def test_two_threads_call_two_functions_10000_times() -> None:
    _two_threads(10_000)


def test_two_threads_compile_at_once() -> None:
    args = arguments()
    constants = [float(i % 4) / 7 for i in range(16)]
    found: dict[int, Any] = {}

    def run(which: int) -> None:
        for i in range(which, len(constants), 2):
            found[i] = jstitch.jit(standardize(constants[i]), options=STRICT)(*args)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, constant in enumerate(constants):
        np.testing.assert_allclose(found[i], jax.jit(standardize(constant))(*args), rtol=2e-5, atol=2e-5)


def test_options_survive_pickling() -> None:
    options = jstitch.CompileOptions(tune="off", print_after=("cse",), arena_bytes=4096)
    again = pickle.loads(pickle.dumps(options))
    assert again == options
    assert hash(again) == hash(options)


CHILDREN = """
import multiprocessing
import sys
import jax, numpy as np
import jstitch
from robustness_support import STRICT, arguments, standardize

def work(constant):
    f = standardize(constant)
    args = arguments()
    since = jstitch.record_count()
    found = jstitch.jit(f, options=STRICT)(*args)
    np.testing.assert_allclose(found, jax.jit(f)(*args), rtol=2e-5, atol=2e-5)
    return jstitch.stitch_count(since)

if __name__ == "__main__":
    found = []
    if sys.platform == "linux":  # before XLA runs here: JAX allows no fork after
        found = multiprocessing.get_context("fork").Pool(2).map(work, [0.25, 0.75])
    found.append(work(0.25))
    found += multiprocessing.get_context("spawn").Pool(1).map(work, [0.25])
    assert found and set(found) == {1}, found
    print("all stitched")
"""


def test_forked_and_spawned_children(tmp_path: Path) -> None:
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    code = f"import subprocess, sys; subprocess.run([sys.executable, {str(script)!r}], check=True)"
    assert run_python(code) == "all stitched\n"
