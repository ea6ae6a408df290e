"""Kernels inside XLA programs: values, aliasing, threads, control flow, errors, foreign processes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runtime_kernels import (
    add_constant,
    call,
    column_sum,
    folder_with_handler,
    random,
    run_add,
    run_python,
    softmax,
)

from jstitch.codegen.cpu import build
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.runtime import cpu_handler, process_block, set_num_threads


@pytest.fixture(params=[1, 4], ids=["one thread", "threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run with this many threads at most, and every phase large enough to be parallel."""
    old, old_work = set_num_threads(request.param), process_block.set_serial_ns(0)
    yield request.param
    set_num_threads(old)
    process_block.set_serial_ns(*old_work)


def shape_of(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("programs", [1, 2, 8, 64])
def test_row_softmax(programs: int) -> None:
    x = random(128, 300)
    got = jax.jit(lambda x: call(softmax(128, 300, programs), shape_of(x), x))(x)
    np.testing.assert_allclose(got, jax.nn.softmax(x), rtol=2e-6)


@pytest.mark.usefixtures("threads")
def test_two_phases_share_scratch() -> None:
    x = random(512, 130)
    out = jax.ShapeDtypeStruct((130,), jnp.float32)
    run = jax.jit(lambda x: call(column_sum(512, 130), out, x))
    first = np.asarray(run(x))
    np.testing.assert_allclose(first, np.asarray(x, np.float64).sum(0), rtol=1e-5, atol=1e-4)
    for _ in range(50):
        np.testing.assert_array_equal(run(x), first)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("donate", [False, True])
def test_in_place_with_alias(donate: bool) -> None:
    source = add_constant(4096, 3.0)

    def f(x: Any) -> Any:
        return call(source, shape_of(x), x, input_output_aliases={0: 0})

    x = random(4096)
    expected = np.asarray(x) + 3
    pointer = x.unsafe_buffer_pointer()
    y = jax.jit(f, donate_argnums=(0,) if donate else ())(x)
    np.testing.assert_array_equal(y, expected)
    assert (y.unsafe_buffer_pointer() == pointer) == donate
    if not donate:
        np.testing.assert_array_equal(np.asarray(x) + 3, expected)


def test_large_results_and_scratch() -> None:
    x = random(1 << 21)
    np.testing.assert_array_equal(jax.jit(lambda x: run_add(add_constant(1 << 21, 1.0), x))(x), x + 1)
    wide = random(64, 40000)
    out = jax.ShapeDtypeStruct((40000,), jnp.float32)
    got = jax.jit(lambda x: call(column_sum(64, 40000, 64), out, x))(wide)  # 10 MB of scratch
    np.testing.assert_allclose(got, np.asarray(wide, np.float64).sum(0), rtol=1e-5, atol=1e-4)


def test_zero_size_results_never_reach_the_kernel() -> None:
    text = "def f(bufs, arena, program):\n    store_f32(0, 0, convert_f32(1.0), 1)\n"
    source = KernelSource("null", text, 1, 1, 0, 0, (PhaseSource("f", 1, 1),))
    x = jnp.zeros((0, 4), jnp.float32)
    assert jax.jit(lambda x: call(source, shape_of(x), x))(x).shape == (0, 4)


def test_scalars_and_several_results() -> None:
    text = """
def f(bufs, arena, program):
    x = load_f32(load_s64(bufs, 0, 0), 0, 1)
    store_f32(load_s64(bufs, 1, 0), 0, x + x, 2)
    store_f32(load_s64(bufs, 2, 0), 0, x * x, 3)
"""
    source = KernelSource("two", text, 1, 2, 0, 0, (PhaseSource("f", 1, 1),))
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    double, square = jax.jit(lambda x: call(source, (scalar, scalar), x))(jnp.float32(3))
    assert (float(double), float(square)) == (6.0, 9.0)


@pytest.mark.usefixtures("threads")
def test_scan_of_1000_steps() -> None:
    source = add_constant(4096, 1.0)
    final, _ = jax.jit(lambda x: jax.lax.scan(lambda c, _: (run_add(source, c), None), x, None, length=1000))(
        jnp.zeros(4096, jnp.float32)
    )
    np.testing.assert_array_equal(final, np.full(4096, 1000, np.float32))


@pytest.mark.usefixtures("threads")
def test_while_and_cond() -> None:
    one, two = add_constant(64, 1.0), add_constant(64, 2.0)

    def body(x: Any) -> Any:
        return jax.lax.cond(x[0] < 5, lambda x: run_add(one, x), lambda x: run_add(two, x), x)

    got = jax.jit(lambda x: jax.lax.while_loop(lambda x: x[0] < 10, body, x))(jnp.zeros(64, jnp.float32))
    np.testing.assert_array_equal(got, np.full(64, 11, np.float32))


def _mixed_program(index: int) -> tuple[Any, Any]:
    """A program of several kernels with matmuls between, and its NumPy result."""
    size = 64 + 32 * index
    shift = add_constant(size * size, float(index), programs=8)
    rows = softmax(size, size)
    sums = jax.ShapeDtypeStruct((size,), jnp.float32)

    def f(x: Any) -> Any:
        y = run_add(shift, (x @ x).reshape(-1)).reshape(size, size)
        z = call(rows, shape_of(y), y) @ x
        return call(column_sum(size, size), sums, z)

    x = random(size, size, seed=index)
    wide = np.asarray(x, np.float64)
    y = wide @ wide + index
    e = np.exp(y - y.max(1, keepdims=True))
    expected = (e / e.sum(1, keepdims=True) @ wide).sum(0)
    run = jax.jit(f)
    return lambda: run(x), expected


@pytest.mark.usefixtures("threads")
def test_four_python_threads() -> None:
    programs = [_mixed_program(i) for i in range(4)]
    first = [np.asarray(run()) for run, _ in programs]
    for got, (_, expected) in zip(first, programs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for i in range(200):
            which = (seed + i) % 4
            close = np.allclose(programs[which][0](), first[which], rtol=1e-5, atol=1e-5)
            if not close:
                wrong.append(which)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_several_threads_take_part() -> None:
    programs = 64
    text = """
def f(bufs, arena, program):
    x = load_s64(bufs, 0, 0)
    slow = convert_f32(0.0)
    for i in range(200000):
        slow = exp(load_f32(x, i % 64, 1) - slow)
    store_f32(arena, 0, slow, 3)
    store_s64(load_s64(bufs, 1, 0), program, arena, 2)
"""
    source = KernelSource("who", text, 1, 1, 0, 64, (PhaseSource("f", programs, 1 << 30),))
    out = jax.ShapeDtypeStruct((programs,), jnp.int64)
    with jax.enable_x64(True):
        run = jax.jit(lambda x: call(source, out, x))
        x = random(64)
        arenas = [np.unique(np.asarray(run(x))) for _ in range(3)]  # an arena belongs to one task
    limit = process_block.available_threads()
    assert max(len(a) for a in arenas) >= min(2, limit)
    assert all(len(a) <= limit and (a % 64 == 0).all() for a in arenas)


def test_every_device_of_the_host() -> None:
    source = softmax(64, 128)
    devices = jax.devices()
    run = jax.pmap(lambda x: call(source, shape_of(x), x), devices=devices)
    x = random(len(devices), 64, 128)
    for _ in range(20):
        np.testing.assert_allclose(run(x), jax.nn.softmax(x), rtol=2e-6)


@pytest.mark.parametrize("operands", [0, 3])
def test_wrong_number_of_operands_is_an_error(operands: int) -> None:
    source = add_constant(64, 1.0)
    x = random(64)
    with pytest.raises(jax.errors.JaxRuntimeError, match="another number of operands"):
        jax.block_until_ready(jax.jit(lambda x: call(source, shape_of(x), *[x] * operands))(x))


def test_one_operand_more_is_not_the_kernels() -> None:
    """It tells XLA what the call costs (`KernelCall.beside`)."""
    source = add_constant(64, 1.0)
    x, other = random(64), random(3)
    found = jax.jit(lambda x, other: call(source, shape_of(x), x, other))(x, other)
    np.testing.assert_array_equal(found, x + 1.0)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "KeyError"),
        ({"h": "0", "src": "not json"}, "jstitch: cannot build a kernel"),
        ({"h": "1", "src": '{"phases": []}'}, "expected the JSON of a KernelSource"),
    ],
)
def test_bad_attributes_are_a_compile_error(attributes: dict[str, str], message: str) -> None:
    build.register()
    x = random(64)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.jit(lambda x: jax.ffi.ffi_call(cpu_handler.TARGET, shape_of(x))(x, **attributes))(x)


def test_thread_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1 thread, found 0"):
        set_num_threads(0)


SAVE = """
import sys
from pathlib import Path
import jax
from jax import export
from runtime_kernels import add_constant, run_add
source = add_constant(64, 41.0)
spec = jax.ShapeDtypeStruct((64,), "float32")
checks = [export.DisabledSafetyCheck.custom_call("jstitch")]
made = export.export(jax.jit(lambda x: run_add(source, x)), disabled_checks=checks)(spec)
Path(sys.argv[1]).write_bytes(made.serialize())
"""
LOAD = """
import sys
from pathlib import Path
import numpy as np
from jax import export
from jstitch.codegen.cpu import build
build.register()
made = export.deserialize(bytearray(Path(sys.argv[1]).read_bytes()))
assert (np.asarray(made.call(np.ones(64, np.float32))) == 42).all()
"""


def test_export_runs_in_a_new_process_without_a_kernel_cache(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    program = str(tmp_path / "program")
    run_python(SAVE, program, JSTITCH_CACHE_DIR=folder_with_handler(tmp_path / "one"))
    run_python(LOAD, program, JSTITCH_CACHE_DIR=folder_with_handler(tmp_path / "two"))


PERSIST = """
import sys
import jax
import numpy as np
from jax import monitoring
from runtime_kernels import add_constant, call
from jstitch.codegen.cpu import build
events = []
monitoring.register_event_listener(lambda name, **_: events.append(name))
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
source = add_constant(64, 5.0)
build.register()
attributes = {"h": source.digest, "src": source.payload}  # not built here: instantiation has to do it
f = jax.jit(lambda x: jax.ffi.ffi_call("jstitch", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, **attributes))
assert (np.asarray(f(np.zeros(64, np.float32))) == 5).all()
print(any(name.endswith("cache_hits") for name in events))
"""


def test_jax_persistent_compilation_cache_in_a_new_process(tmp_path: Path) -> None:
    folder = str(tmp_path / "xla")
    assert run_python(PERSIST, folder, JSTITCH_CACHE_DIR=folder_with_handler(tmp_path / "one")) == "False\n"
    assert run_python(PERSIST, folder, JSTITCH_CACHE_DIR=folder_with_handler(tmp_path / "two")) == "True\n"


FORK = """
import os, sys, threading, time, warnings
import numpy as np
import jax
from runtime_kernels import add_constant, softmax, run_add
from jstitch.codegen.cpu import build
warnings.simplefilter("ignore")
source = add_constant(1 << 20, 1.0)
f = jax.jit(lambda x: run_add(source, x))
x = jax.numpy.zeros(1 << 20, "float32")
f(x).block_until_ready()
stop = False
def compile_for_ever():
    i = 0
    while not stop:
        build.build(add_constant(64, float(i)))
        i += 1
thread = threading.Thread(target=compile_for_ever, daemon=True)
thread.start()
time.sleep(0.05)
child = os.fork()
if child == 0:
    ok = (np.asarray(f(x)) == 1).all()  # the pool's threads do not exist here
    os._exit(0 if ok else 3)
stop = True
deadline = time.time() + 60
while time.time() < deadline:
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid:
        break
    time.sleep(0.01)
else:
    os.kill(child, 9)
    sys.exit("the forked child hangs")
thread.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
def test_forked_child_runs_kernels() -> None:
    run_python(FORK)


EXIT = """
import jax
from runtime_kernels import softmax, call
x = jax.numpy.ones((1024, 512), "float32")
f = jax.jit(lambda x: call(softmax(1024, 512), jax.ShapeDtypeStruct(x.shape, x.dtype), x @ x.T @ x))
for _ in range(10):
    x = f(x)
"""


def test_exit_with_work_in_flight() -> None:
    run_python(EXIT)
