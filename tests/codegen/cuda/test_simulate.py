"""Kernel text in the simulator: launches, branches, loops, barriers and shuffles against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from jstitch.codegen.cuda.simulate import simulate
from jstitch.codegen.cuda.simulate_error import SimulationError
from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.codegen.launch_ir import Parameter
from tests.codegen.cuda.simulated import LAYER_NORM, REDUCTION, TEAMS, floats, run, source, zeros


def test_layer_norm_of_the_emitters_form() -> None:
    rows, width = 80, 768
    x, g, h, y = floats(rows, width), floats(width, seed=1), floats(width, seed=2), zeros(rows * width)
    modes = {"b0": "read", "b1": "read", "b2": "read", "b3": "write"}
    sizes = (x.size, width, width, y.size)
    parameters = tuple(
        Parameter(name, "f32", n, mode)  # type: ignore[arg-type]
        for (name, mode), n in zip(modes.items(), sizes, strict=True)
    )
    launch = Launch("phase0", rows // 8, 256, 0, 32, parameters, 0)
    counts = simulate(CudaSource("k", LAYER_NORM, (launch,)), {0: [x.ravel(), g, h, y]})
    wide = x.astype(np.float64)
    deviation = wide - wide.mean(1, keepdims=True)
    expected = deviation / np.sqrt((deviation**2).mean(1, keepdims=True) + 1e-5) * g + h
    np.testing.assert_allclose(y.reshape(rows, width), expected, atol=5e-6)
    assert counts.bytes_written == y.nbytes
    assert counts.bytes_read == 3 * y.nbytes
    (found,) = counts.launches
    assert found.distinct_read == {"b0": x.size, "b1": width, "b2": width, "b3": 0}
    assert found.distinct_written == {"b0": 0, "b1": 0, "b2": 0, "b3": y.size}
    assert found.vector_accesses == 4 * y.size // 4


def test_launches_run_in_order() -> None:
    text = (
        "def one(x, y):\n    store_f32(y, thread(), read_f32(x, thread()) * float32(2))\n"
        "def two(y, z):\n    store_f32(z, thread(), read_f32(y, 31 - thread()))\n"
    )
    first = (Parameter("x", "f32", 32, "read"), Parameter("y", "f32", 32, "write"))
    second = (Parameter("y", "f32", 32, "read"), Parameter("z", "f32", 32, "write"))
    launches = (Launch("one", 1, 32, 0, 32, first, 0), Launch("two", 1, 32, 0, 32, second, 0))
    x, y, z = floats(32), zeros(32), zeros(32)
    counts = simulate(CudaSource("k", text, launches), [[x, y], [y, z]])
    np.testing.assert_array_equal(z, 2 * x[::-1])
    assert [launch.function for launch in counts.launches] == ["one", "two"]


def test_branches_of_lanes_and_of_ctas() -> None:
    y = zeros(40 * 32, np.int32)
    body = """
    i = block() * 32 + thread()
    v = int32(0)
    if block() < 1:
        v = int32(1)
    elif block() == 7:
        if thread() < 5:
            v = int32(2)
        else:
            v = int32(3)
    elif thread() < 3:
        v = int32(4)
    store_s32(y, i, v)
    """
    run(body, {"y": ("write", y)}, grid=40)
    thread, cta = np.arange(y.size) % 32, np.arange(y.size) // 32
    rest = np.where(thread < 3, 4, 0)
    expected = np.where(cta < 1, 1, np.where(cta == 7, np.where(thread < 5, 2, 3), rest))
    np.testing.assert_array_equal(y, expected)


def test_values_made_in_branches_may_be_read_after_them() -> None:
    y = zeros(40 * 32, np.int32)
    body = """
    x = registers_s32(1)
    if block() < 3:
        v = int32(1)
        x[0] = int32(5)
    else:
        v = int32(2)
        x[0] = int32(6)
    store_s32(y, block() * 32 + thread(), imul(v, x[0]))
    """
    run(body, {"y": ("write", y)}, grid=40)
    np.testing.assert_array_equal(y, np.where(np.arange(y.size) < 96, 5, 12))


def test_registers_that_a_branch_changes() -> None:
    y = zeros(40 * 32, np.int32)
    body = """
    x = registers_s32(2)
    x[0] = int32(1)
    x[1] = int32(2)
    n = 0
    if block() == 5:
        x[1] = int32(9)
        n = 3
    store_s32(y, block() * 32 + thread(), iadd(iadd(x[0], x[1]), convert_s32(n)))
    """
    run(body, {"y": ("write", y)}, grid=40)
    np.testing.assert_array_equal(y, np.where(np.arange(y.size) // 32 == 5, 13, 3))


def test_loops_whose_bounds_differ_between_lanes() -> None:
    y = zeros(3 * 32, np.int32)
    body = """
    total = int32(0)
    for i in range(block(), thread(), 2):
        for j in range(0, 2):
            total = iadd(total, convert_s32(i + j))
    store_s32(y, block() * 32 + thread(), total)
    """
    run(body, {"y": ("write", y)}, grid=3)
    expected = [sum(2 * i + 1 for i in range(b, t, 2)) for b in range(3) for t in range(32)]
    np.testing.assert_array_equal(y, expected)


def test_gather_with_an_index_from_memory() -> None:
    x, at, y = floats(50), np.arange(32, dtype=np.int64)[::-1] - 3, zeros(32)
    body = "store_f32(y, thread(), read_f32(x, clamp_index(read_s64(at, thread()), 0, 49)))"
    run(body, {"x": ("read", x), "at": ("read", at), "y": ("write", y)})
    np.testing.assert_array_equal(y, x[np.clip(at, 0, 49)])


def test_shuffles() -> None:
    x, y, z = floats(128), zeros(128), zeros(128, np.int32)
    body = """
    v = read_f32(x, thread())
    store_f32(y, thread(), shuffle(v, 31 - remainder_pos(thread(), 32)) + shuffle_xor(v, 4))
    store_s32(z, thread(), convert_s32(shuffle(thread(), 3)))
    """
    run(body, {"x": ("read", x), "y": ("write", y), "z": ("write", z)}, block=128)
    rows = x.reshape(4, 32)
    np.testing.assert_array_equal(y, (rows[:, ::-1] + rows[:, np.arange(32) ^ 4]).ravel())
    np.testing.assert_array_equal(z, np.arange(128) // 32 * 32 + 3)


def test_reduction_in_the_arena() -> None:
    grid = 300
    x, y = floats(grid * 128), zeros(grid)
    counts = run(REDUCTION, {"x": ("read", x), "y": ("write", y)}, grid, 128, 512)
    np.testing.assert_allclose(y, x.reshape(grid, 128).sum(1), rtol=1e-4, atol=1e-4)
    assert counts.barriers == 2 * grid
    assert counts.shared_bytes == 512


def test_teams_wait_for_themselves_only() -> None:
    x, y = floats(5 * 64), zeros(5 * 64)
    counts = run(TEAMS, {"x": ("read", x), "y": ("write", y)}, 1, 128, 512)
    np.testing.assert_array_equal(y, x.reshape(5, 64)[:, ::-1].ravel())
    assert counts.team_barriers == 10


def test_an_array_may_be_changed_in_place() -> None:
    """Each thread its own elements, or a CTA's with a barrier between."""
    x = floats(4 * 64)
    before = x.copy()
    body = """
    i = block() * 64 + thread()
    store_f32(x, i, load_f32(x, i) + float32(1))
    barrier()
    v = load_f32(x, block() * 64 + 63 - thread())
    barrier()
    store_f32(x, i, v)
    """
    run(body, {"x": ("update", x)}, 4, 64)
    np.testing.assert_array_equal(x, (before.reshape(4, 64)[:, ::-1] + np.float32(1)).ravel())


def test_long_chains_of_branches() -> None:
    """One launch for many tensors: every CTA takes its own branch."""
    count = 700
    y = zeros(count * 32, np.int32)
    chain = "\n".join(
        f"{'if' if k == 0 else 'elif'} block() == {k}:\n    v = int32({k})\n"
        f"    store_s32(y, {k * 32} + thread(), v)"
        for k in range(count)
    )
    run(chain, {"y": ("write", y)}, grid=count)
    np.testing.assert_array_equal(y, np.arange(count * 32) // 32)


def test_pointers_that_each_cta_chooses() -> None:
    """Tensors of one shape share code: a CTA picks its pointers by its number."""
    x = {f"x{k}": floats(64, seed=k) for k in range(5)}
    y = {f"y{k}": zeros(64) for k in range(5)}
    body = """
    lane = quotient(block(), 2)
    if lane < 2:
        if lane < 1:
            b0 = x0
            b1 = y0
        else:
            b0 = x1
            b1 = y1
    elif lane < 3:
        b0 = x2
        b1 = y2
    elif lane < 4:
        b0 = x3
        b1 = y3
    else:
        b0 = x4
        b1 = y4
    i = (block() - lane * 2) * 32 + thread()
    if i < 60:
        store_f32(b1, i, read_f32(b0, i) + float32(1))
    """
    given = {**{k: ("read", v) for k, v in x.items()}, **{k: ("write", v) for k, v in y.items()}}
    counts = run(body, given, grid=10)  # type: ignore[arg-type]
    for k in range(5):
        np.testing.assert_array_equal(y[f"y{k}"][:60], (x[f"x{k}"] + np.float32(1))[:60])
    assert counts.distinct_written == {**dict.fromkeys(x, 0), **dict.fromkeys(y, 60)}


def test_two_parameters_may_be_one_buffer() -> None:
    """Results in an operand's memory; a race across the two names is one."""
    x = floats(64)
    before = x.copy()
    body = "store_f32(y, thread(), load_f32(x, {place}) + float32(1))"
    counts = run(body.format(place="thread()"), {"x": ("update", x), "y": ("update", x)}, block=64)
    np.testing.assert_array_equal(x, before + np.float32(1))
    assert counts.distinct_read == counts.distinct_written == {"y": 64}
    with pytest.raises(SimulationError, match="another thread's read"):
        run(body.format(place="63 - thread()"), {"x": ("update", x), "y": ("update", x)}, block=64)


def test_arrays_must_be_the_parameters() -> None:
    x, y = floats(32), zeros(32)
    kernel = source("pass", {"x": ("read", x), "y": ("write", y)}, 1, 32, 0, 32)
    for given in ([x], [x, y[:16]], [x.astype(np.float64), y], [x, zeros(64)[::2]], [y, y]):
        with pytest.raises(ValueError, match=r"parameters|is float32|share memory"):
            simulate(kernel, [given])
