"""What a gather looks up is made by vectors before, on CPUs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.kernel_ir import Kernel, Let, Space, Store
from jstitch.ir.expr import calls
from jstitch.ir.ops import KERNEL
from tests.codegen.cuda.stitched import PROFILES, stitch, stitch_for_cpu
from tests.contexts import CPU, H200
from tests.passes.test_own_columns import graph_of
from tests.passes.test_seams import nests

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
X = np.random.default_rng(0).standard_normal((64, 40), np.float32)
ORDER = np.random.default_rng(1).permutation(40).astype(np.int32)


def shuffled(x: Any, order: Any) -> Any:
    """Three times over: each time of what the last one made."""
    for _ in range(3):
        x = jnp.tanh(jnp.take(x, order, axis=1, mode="clip")) * 1.5
    return x


def picked(x: Any, order: Any) -> Any:
    """One element of each row."""
    return jnp.take(jnp.tanh(x), order[:1], axis=1, mode="clip")


def tiles(kernel: Kernel) -> int:
    """Stores of rows that another stage looks up."""
    found = [i for nest in nests(kernel) for i in nest.instructions if isinstance(i, Store)]
    return len({i.buffer for i in found if i.buffer.space is Space.ARENA})


def kernel_of(f: Any, *args: Any) -> Kernel:
    made = stitch_for_cpu(graph_of(f, args, CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    return kernel  # type: ignore[no-any-return]


def test_each_is_made_in_order() -> None:
    """No function of an element stands where its place was looked up twice."""
    kernel = kernel_of(shuffled, X, ORDER)
    assert tiles(kernel) == 2
    found = [
        sum("tanh" in str([*calls(i.value)]) for i in nest.instructions if isinstance(i, Let))
        for nest in nests(kernel)
    ]
    assert [n for n in found if n] == [1, 1, 1]


def test_a_few_elements_are_made_where_they_are_wanted() -> None:
    assert tiles(kernel_of(picked, X, ORDER)) == 0


def test_gpus_compute_in_place() -> None:
    (kernel,) = stitch(graph_of(shuffled, [X, ORDER], H200), PROFILES["h200"]).kernels
    assert tiles(kernel) == 0


@pytest.mark.parametrize("shape", [(64, 40), (7, 3), (129, 257), (1, 40)])
def test_results(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[1])
    x = rng.standard_normal(shape, np.float32)
    for order in (rng.permutation(shape[1]), rng.integers(-3, shape[1] + 3, 2 * shape[1])):
        args = x, order.astype(np.int32)
        for f in (shuffled, jax.grad(lambda x, order: (shuffled(x, order) ** 2).sum())):
            np.testing.assert_allclose(
                jstitch.jit(f, options=OPTIONS)(*args), jax.jit(f)(*args), rtol=2e-5, atol=2e-6
            )
