"""`async_compile`: XLA's version first, the stitched one when it is there."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jstitch
from jstitch.frontend import lowering
from jstitch.frontend.background import Worker
from jstitch.frontend.swap import SwappingJit

OPTIONS = jstitch.CompileOptions(async_compile=True, tune="off", strict=True)
X = jnp.asarray(np.random.default_rng(0).standard_normal((64, 96)), jnp.float32)


def centre(x: Array, times: int = 1) -> Array:
    for _ in range(times):
        x = jnp.tanh(x - x.mean(-1, keepdims=True)) * 2
    return x


def stitched_kernels(since: int) -> int:
    return sum(record.kernels for record in jstitch.last_report(since))


def jit(f: Any, **settings: Any) -> Any:
    return jstitch.jit(f, options=OPTIONS, **settings)


class Gate:
    """Holds the worker until `open()`: what runs before is XLA's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.event = threading.Event()
        compile_now = SwappingJit._compile

        def held(jitted: SwappingJit, traced: Any) -> None:
            self.event.wait(60)
            compile_now(jitted, traced)

        monkeypatch.setattr(SwappingJit, "_compile", held)

    def open(self) -> None:
        self.event.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


def test_first_calls_are_xlas_and_later_ones_stitched(gate: Gate) -> None:
    since, f = jstitch.record_count(), jit(centre)
    first = f(X)
    assert not f.wait(0)
    np.testing.assert_array_equal(first, jax.jit(centre)(X))
    assert stitched_kernels(since) == 0
    gate.open()
    assert f.wait(60)
    assert stitched_kernels(since) == 1
    np.testing.assert_allclose(f(X), first, rtol=1e-5, atol=1e-6)
    assert stitched_kernels(since) == 1  # the call compiled nothing
    assert "background_seconds" in jstitch.last_report(since)[-1].details


def test_integers_are_the_same_bits_before_and_after() -> None:
    f = jit(lambda x: (x * 3 + 1).sum(-1) ^ 5)
    x = jnp.arange(4096, dtype=jnp.int32).reshape(64, 64)
    before = f(x)
    f.wait(60)
    np.testing.assert_array_equal(f(x), before)


def test_the_function_is_traced_once() -> None:
    calls = []

    def f(x: Array) -> Array:
        calls.append(threading.current_thread())
        return centre(x)

    jitted = jit(f)
    for _ in range(3):
        jitted(X)
    jitted.wait(60)
    jitted(X)
    assert calls == [threading.main_thread()]


def test_new_shapes_start_again(gate: Gate) -> None:
    gate.open()
    since, f = jstitch.record_count(), jit(centre)
    for rows in (64, 32, 16):
        f(X[:rows])
        assert f.wait(60)
    assert stitched_kernels(since) == 3
    np.testing.assert_allclose(f(X[:32]), centre(X[:32]), rtol=1e-5, atol=1e-6)
    assert stitched_kernels(since) == 3


def test_static_arguments() -> None:
    f = jit(centre, static_argnames="times")
    for times in (1, 2, 1):
        f(X, times=times)
        f.wait(60)
        np.testing.assert_allclose(f(X, times=times), centre(X, times), rtol=1e-5, atol=1e-6)


def test_donated_arguments() -> None:
    f = jit(lambda state: {"a": centre(state["a"])}, donate_argnums=0)
    expected = state = {"a": X + 0}
    state = {"a": X + 0}
    for _ in range(4):
        old, state, expected = state["a"], f(state), {"a": centre(expected["a"])}
        assert old.is_deleted()
        f.wait(60)
    np.testing.assert_allclose(state["a"], expected["a"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "x", [np.asarray(X), jax.device_put(X, jax.devices()[0])], ids=["numpy", "committed"]
)
def test_the_swap_compiles_nothing(x: Any, caplog: pytest.LogCaptureFixture) -> None:
    since, f = jstitch.record_count(), jit(centre)
    with jax.log_compiles():
        f(x)
        assert any("Finished XLA compilation of jit(centre)" in text for text in caplog.messages)
        f.wait(60)
        assert stitched_kernels(since) == 1
        caplog.clear()
        f(x)
    assert not caplog.messages


def python_files(f: Any, x: Any) -> set[str]:
    """The files whose Python code runs when f(x) is called."""
    files = set()
    sys.setprofile(lambda frame, event, _: files.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        f(x)
    finally:
        sys.setprofile(None)
    return files


def test_calls_after_the_swap_are_dispatched_without_python() -> None:
    f = jit(centre)
    for x in (X, X[:32]):
        f(x)
        assert f.wait(60)
        f(x)  # finds the executable
        assert not [file for file in python_files(f, x) if "pjit" in file or "pxla" in file]


def test_in_transformations_it_is_stitched_at_once() -> None:
    since, f = jstitch.record_count(), jit(centre)
    gradient = jax.jit(jax.grad(lambda x: f(x).sum()))(X)
    np.testing.assert_allclose(gradient, jax.grad(lambda x: centre(x).sum())(X), rtol=1e-4, atol=1e-5)
    assert stitched_kernels(since) >= 1
    np.testing.assert_allclose(jax.vmap(f)(X[:, None])[:, 0], centre(X), rtol=1e-5, atol=1e-6)


def test_its_other_methods_are_jits() -> None:
    f = jit(centre)
    assert f.__name__ == "centre"
    assert f.__wrapped__ is centre
    assert f.eval_shape(X).shape == X.shape
    assert "custom_call" in f.lower(X).as_text()
    np.testing.assert_allclose(f.trace(X).lower().compile()(X), centre(X), rtol=1e-5, atol=1e-6)
    with jax.disable_jit():
        np.testing.assert_allclose(f(X), centre(X), rtol=1e-5, atol=1e-6)
    f.clear_cache()
    np.testing.assert_allclose(f(X), centre(X), rtol=1e-5, atol=1e-6)


def test_a_failure_stays_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("seeded")

    monkeypatch.setattr(lowering, "rewrite", fail)
    since, f = jstitch.record_count(), jit(centre)
    for _ in range(3):
        np.testing.assert_array_equal(f(X), jax.jit(centre)(X))
        assert f.wait(60)
    reasons = [record.reason or "" for record in jstitch.last_report(since)]
    assert any("background compilation failed" in reason and "seeded" in reason for reason in reasons)


def test_the_users_errors_are_the_users() -> None:
    def bad(x: Array) -> Array:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        jit(bad)(X)
    assert raised.value.__context__ is None or "NewSignature" not in repr(raised.value.__context__)


def test_two_threads() -> None:
    f, wrong = jit(centre), []
    expected = {n: np.asarray(centre(X[:n])) for n in (8, 16, 24)}

    def call() -> None:
        for k in range(60):
            n = (8, 16, 24)[k % 3]
            if not np.allclose(f(X[:n]), expected[n], rtol=1e-5, atol=1e-6):
                wrong.append(n)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not wrong


def test_two_hundred_starts_and_stops() -> None:
    done = []
    for n in range(200):
        worker = Worker()
        for _ in range(3):
            worker.submit(lambda n=n: done.append(n))  # type: ignore[misc]
        stopper = threading.Thread(target=worker.close)
        stopper.start()
        stopper.join(10)
        assert not stopper.is_alive()
        assert not worker.submit(lambda: done.append(-1))
    assert -1 not in done


ENDS_EARLY = """
import jax.numpy as jnp, jstitch
f = jstitch.jit(lambda x: jnp.tanh(x - x.mean(-1, keepdims=True)) * 2,
                options=jstitch.CompileOptions(async_compile=True, tune="off"))
print(f(jnp.ones((64, 96))).shape)
"""


def test_the_process_ends_while_the_worker_compiles() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_EARLY], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "(64, 96)", "")
