"""Large calls leave threads that are not Python's: XLA's pool runs them, and tells XLA to go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runtime_kernels import call as call_in_place
from runtime_kernels import column_sum, random, run_python, softmax

from jstitch import _jax
from jstitch.runtime import cpu_handler, process_block, profile_watch, set_num_threads
from jstitch.runtime import ffi_layout as at

N = 256
call = partial(call_in_place, leaves=True)


@pytest.fixture(autouse=True, params=[2, 4], ids=["two threads", "threads"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every phase is large. The tests' other devices do nothing here."""
    monkeypatch.setattr(cpu_handler, "_has_one_device", lambda: True)
    old, old_work = set_num_threads(request.param), process_block.set_serial_ns(0)
    yield
    set_num_threads(old)
    process_block.set_serial_ns(*old_work)


def left() -> int:
    return int(process_block.process_block()[at.PROCESS_LEFT])


def program(programs: int = 8) -> Any:
    """Kernels between products: too much for XLA to run it on the thread that calls."""
    out = jax.ShapeDtypeStruct((N, N), jnp.float32)

    def f(x: Any, w: Any) -> Any:
        x = call(softmax(N, N, programs), out, x)
        for _ in range(3):
            x = call(softmax(N, N, programs), out, x @ w)
        total = call(column_sum(N, N, programs), jax.ShapeDtypeStruct((N,), jnp.float32), x)
        return x @ w, total

    return jax.jit(f)


def in_place(f: Any, *args: Any) -> Any:
    old = process_block.set_in_place(True)
    try:
        return jax.block_until_ready(f(*args))
    finally:
        process_block.set_in_place(old)


@pytest.mark.parametrize("programs", [1, 2, 8, 64])
def test_calls_leave_and_give_the_same_bits(programs: int) -> None:
    f, x, w = program(programs), random(N, N), random(N, N)
    before = left()
    expected = in_place(f, x, w)
    assert left() == before
    for _ in range(20):
        jax.tree.map(np.testing.assert_array_equal, f(x, w), expected)
    assert before < left() <= before + 20 * 4  # what comes after the first one may be on the pool's threads


def test_calls_stay_where_they_are_not_to_leave() -> None:
    f = jax.jit(
        lambda x, w: call_in_place(softmax(N, N), jax.ShapeDtypeStruct((N, N), jnp.float32), x @ w) @ w
    )
    before = left()
    jax.block_until_ready(f(random(N, N), random(N, N)))
    assert left() == before


def test_small_calls_stay() -> None:
    process_block.set_serial_ns(1 << 40)
    before = left()
    jax.block_until_ready(program()(random(N, N), random(N, N)))
    assert left() == before


def test_calls_stay_where_devices_wait_for_each_other() -> None:
    code = """
import jax, jax.numpy as jnp
from runtime_kernels import call, softmax
from jstitch.runtime import ffi_layout as at, process_block
process_block.set_serial_ns(0)
out = jax.ShapeDtypeStruct((256, 256), jnp.float32)
f = jax.jit(lambda x: call(softmax(256, 256), out, x @ x, leaves=True) @ x)
for device in jax.devices():
    jax.block_until_ready(f(jax.device_put(jnp.ones((256, 256)), device)))
print(process_block.process_block()[at.PROCESS_LEFT] > 0)
"""
    flags = {n: f"--xla_force_host_platform_device_count={n}" for n in (1, 2)}
    assert [run_python(code, XLA_FLAGS=flags[n]).strip() for n in flags] == ["True", "False"]


def test_loops_and_branches_wait_for_them() -> None:
    out = jax.ShapeDtypeStruct((N, N), jnp.float32)

    def f(x: Any, w: Any) -> Any:
        def turn(i: Any, x: Any) -> Any:
            made = [lambda x: call(softmax(N, N), out, x), lambda x: call(softmax(N, N, 3), out, x) + 1]
            return jax.lax.switch(i % 2, made, x @ w)

        return jax.lax.fori_loop(0, 9, turn, x)

    run, x, w = jax.jit(f), random(N, N), random(N, N)
    expected = in_place(run, x, w)
    for _ in range(20):
        np.testing.assert_array_equal(run(x, w), expected)


def test_many_threads_at_once() -> None:
    f, w = program(), random(N, N)
    xs = [random(N, N) + i for i in range(6)]
    expected = [in_place(f, x, w) for x in xs]
    failed: list[BaseException] = []

    def work(i: int) -> None:
        try:
            for _ in range(30):
                jax.tree.map(np.testing.assert_array_equal, f(xs[i], w), expected[i])
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed


def test_without_waiting_between_calls() -> None:
    f, w, x = program(), random(N, N), random(N, N)
    y = x
    for _ in range(50):
        y, _ = f(y, w)
    z = x
    for _ in range(50):
        z, _ = in_place(f, z, w)
    np.testing.assert_array_equal(y, z)


def test_calls_stay_while_a_profile_is_taken(tmp_path: Path) -> None:
    f, x, w = program(), random(N, N), random(N, N)
    jax.block_until_ready(f(x, w))
    before = left()
    with jax.profiler.trace(str(tmp_path)):
        profile_watch.note_profile()
        jax.block_until_ready(f(x, w))
    assert left() == before
    jax.block_until_ready(f(x, w))
    assert left() > before
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_a_profile_that_began_earlier_is_noted(tmp_path: Path) -> None:
    block = process_block.process_block()
    with jax.profiler.trace(str(tmp_path)):
        block[at.PROCESS_TRACED] = 0
        profile_watch.note_profile()
        assert block[at.PROCESS_TRACED] == 1
    profile_watch.note_profile()
    assert block[at.PROCESS_TRACED] == 0


def test_without_such_plugins_calls_leave_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_jax, "_lib", SimpleNamespace())
    with caplog.at_level("INFO", logger="jstitch"):
        profile_watch.watch_profiles([0] * len(profile_watch.SYMBOLS))
        profile_watch.note_profile()
    assert "profiles are not watched" in caplog.text
