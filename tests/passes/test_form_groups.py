"""What has rows of its own, how long they are, and what is computed again for each."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.interpret import interpret
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from tests.contexts import CPU_PROFILE, H200_PROFILE

NUMBERS = np.random.default_rng(0)


def made(f: Callable[..., Any], shape: tuple[int, ...], profile: Profile = CPU_PROFILE) -> Kernel:
    """The kernel, checked and run."""
    args = [NUMBERS.standard_normal(shape, np.float32)]
    graph = import_module(parse_module(jax.jit(f).lower(*args).as_text()))
    kernel = lower_kernel("k", graph.ops, graph.inputs, graph.outputs, profile)
    assert check_kernel(kernel) == ()
    (found,) = interpret_kernel(kernel, args, Random(0))
    np.testing.assert_allclose(found, interpret(graph, args)[0], rtol=2e-5, atol=1e-5)
    return kernel


def rows(kernel: Kernel) -> list[int]:
    return [lane.rows for phase in kernel.phases for lane in phase.lanes]


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((16, 8, 8, 3, 3), 0, 16 * 8),
        ((16, 8, 8, 3, 3), 1, 16 * 8),
        ((16, 8, 8, 3, 3), 3, 16 * 8 * 8 * 3),  # its seam is inside what longer rows would join
        ((64, 24), 0, 64),
        ((3, 5), 0, 3),
    ],
)
def test_rows_are_as_long_as_vectors(shape: tuple[int, ...], axis: int, expected: int) -> None:
    kernel = made(lambda x: jnp.roll(x, 1, axis) * 2, shape)
    (found,) = rows(kernel)
    assert found == expected or (axis == 3 and found < expected)


def test_a_gpus_threads_share_short_rows() -> None:
    shape = (16, 8, 8, 3, 3)
    assert rows(made(lambda x: jnp.roll(x, 1, 0) * 2, shape, H200_PROFILE)) == [16 * 8 * 8 * 3]


def test_what_is_only_moved_is_made_where_it_goes() -> None:
    """However dear it is: nobody else reads it. Of two readers, each would make it."""
    moved = made(lambda x: jax.nn.gelu(x * 2).transpose(1, 0, 2), (50, 8, 16))
    assert (len(moved.phases), moved.scratch_bytes) == (1, 0)

    def f(x: Any) -> Any:
        y = jax.nn.gelu(x * 2)
        return y.transpose(1, 0, 2) + y

    both = made(f, (32, 32, 32))
    assert len(both.phases) == 2


def biased(x: Any) -> Any:
    """Scores with a bias by distance, as of relative positions."""
    n = x.shape[-1]
    where = jnp.clip(jnp.arange(n)[:, None] - jnp.arange(n) + n // 2, 0, n - 1)
    return jax.nn.softmax(x + x[0, :, 0][:, where], -1)


def embedded(x: Any) -> Any:
    """Rows that are looked up whole."""
    return jax.nn.softmax(x + x[0, 0, ::-1], -1)


def test_what_is_looked_up_by_the_element_is_kept_for_all_batches() -> None:
    first, *_ = made(biased, (8, 2, 16, 16)).phases
    assert len(made(biased, (8, 2, 16, 16)).phases) == 2
    assert [lane.rows * 16 for lane in first.lanes] == [2 * 16 * 16]
    assert len(made(embedded, (8, 2, 16, 16)).phases) == 1


def centred(x: Any) -> Any:
    return x - x.max(-1, keepdims=True)


def largest(x: Any) -> Any:
    return x.max(-1)


@pytest.mark.parametrize(
    ("f", "shape", "expected"),
    [
        (centred, (512, 64), {512: 8}),
        (centred, (511, 64), {511: 7}),
        (centred, (31 * 31, 64), {31 * 31: 31}),
        (centred, (509, 64), {504: 8, 5: 1}),  # a prime
        (centred, (17, 64), {16: 4, 1: 1}),
        (centred, (512, 8), {512: 1}),
        (centred, (512, 129), {512: 8}),
        (centred, (64, 1025), {64: 1}),
        (centred, (24, 64), {24: 6}),
        (centred, (2, 64), {2: 1}),
        (largest, (512, 32), {512: 1}),
        (largest, (512, 64), {512: 8}),
        (lambda x: x * 2, (512, 64), {512 * 64: 1}),
    ],
)
def test_short_rows_are_taken_several_at_a_time(
    f: Callable[..., Any], shape: tuple[int, ...], expected: dict[int, int]
) -> None:
    """On a CPU: not those that vectors are made of, and each program takes several turns."""
    assert {lane.rows: lane.step for phase in made(f, shape).phases for lane in phase.lanes} == expected
    on_gpu = made(f, shape, H200_PROFILE)
    assert {lane.step for phase in on_gpu.phases for lane in phase.lanes} == {1}


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        ("float32", (1 << 15, 256), 1),
        ("float32", (1 << 15, 64), 8),
        ("bfloat16", (1 << 15, 256), 8),
        ("bfloat16", (1 << 17, 256), 1),
    ],
)
def test_long_rows_that_come_from_memory_are_taken_one_by_one(
    dtype: str, shape: tuple[int, ...], expected: int
) -> None:
    """Of 16 bits what is computed takes longer than memory for more of them."""
    text = jax.jit(centred).lower(jax.ShapeDtypeStruct(shape, dtype)).as_text()
    graph = import_module(parse_module(text))
    kernel = lower_kernel("k", graph.ops, graph.inputs, graph.outputs, CPU_PROFILE)
    assert {lane.step for phase in kernel.phases for lane in phase.lanes} == {expected}


@pytest.mark.parametrize("shape", [(128, 2185, 3735), (96, 1391, 4000)])
def test_partial_sums_are_of_the_programs_that_there_are(shape: tuple[int, int, int]) -> None:
    """Tiles of the rows that the model likes best find no room: those of fewer rows have as many programs."""
    rows, depth, columns = shape

    def loss(x: Any, w: Any, b: Any, labels: Any) -> Any:
        logits = jax.nn.silu(x) @ w + b
        own = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - own)

    args = [jax.ShapeDtypeStruct(s, "float32") for s in ((rows, depth), (depth, columns), (columns,))]
    labels = jax.ShapeDtypeStruct((rows,), "int32")
    options = jstitch.CompileOptions(tune="off", strict=True, verify=True)
    jstitch.jit(jax.value_and_grad(loss, (0, 1, 2)), options=options).lower(*args, labels)
    (record,) = jstitch.last_report()[-1:]
    assert record.kernels > 0
