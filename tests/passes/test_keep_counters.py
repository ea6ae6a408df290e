"""XLA keeps the arithmetic that decides how often a loop turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.device_spec import find_spec
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.target import cuda_profile
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import KERNEL
from jstitch.ir.verify import check
from jstitch.passes.base import profile
from jstitch.passes.base.rewrite import map_frames
from jstitch.passes.fuse.contract_patterns import contract_patterns
from jstitch.passes.graph.keep_counters import LEFT, keep_counters
from jstitch.passes.pipeline import frames, run
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU, on

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
CUDA = cuda_profile(find_spec("h200"))


def marked(f: Callable[..., Any], *args: Any) -> tuple[Graph, list[str]]:
    graph = run(import_module(parse_module(jax.jit(f).lower(*args).as_text())), CPU)
    found = check(keep_counters(graph), "keep_counters")
    for a, b in zip(interpret(graph, args), interpret(found, args), strict=True):
        np.testing.assert_array_equal(a, b)
    return found, [op.name for op in found.walk() if LEFT in op.attrs]


def scan(x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        new = jnp.tanh(carry + row)
        return new, new

    return lax.scan(body, x[0], jnp.concatenate([x] * 10))


def test_a_scan_counts_by_one_addition() -> None:
    assert marked(scan, X)[1] == ["stablehlo.compare", "stablehlo.add"]


def test_a_bound_that_the_caller_gives_is_counted_to() -> None:
    names = marked(lambda x, n: lax.fori_loop(0, n, lambda i, y: y * 0.5, x), X, np.int32(20))[1]
    assert names == ["stablehlo.compare", "stablehlo.add"]


def test_inner_loops_count_for_themselves() -> None:
    def outer(i: Any, y: Any) -> Any:
        return lax.fori_loop(0, 30, lambda j, z: z * 0.5 + i, y)

    assert len(marked(lambda x: lax.fori_loop(0, 20, outer, x), X)[1]) == 4


@pytest.mark.parametrize(
    "test",
    [lambda c: jnp.max(c[1]) > 1e-3, lambda c: (c[0] < 50) & (c[1][0, 0] < -1e-3)],
    ids=["data", "a count and data"],
)
def test_loops_that_data_ends_are_not_counted(test: Callable[[Any], Any]) -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(test, lambda c: (c[0] + 1, c[1] * 0.5), (0, x))

    assert marked(f, X)[1] == []


def test_a_count_that_depends_on_data_is_not_marked() -> None:
    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1 + (c[1][0, 0] > 0).astype(jnp.int32), c[1] * 0.5

        return lax.while_loop(lambda c: c[0] < 50, body, (0, x))

    assert marked(f, X)[1] == []


@pytest.mark.parametrize("target", [profile.CPU, CUDA], ids=["cpu", "cuda"])
def test_kernels_leave_the_counter_alone(target: profile.Profile) -> None:
    """The body of a scan is one kernel and one addition; its condition is one comparison."""

    def stitched(frame: Graph) -> Graph:
        plan = plan_frame(frame, on(target, tune="off"))
        return contract_patterns(plan, lambda pattern: {"ops": len(pattern.ops)})

    graph = marked(scan, X)[0]
    done = map_frames(graph, stitched)
    _, condition, body = ([op.name for op in frame.ops] for frame in frames(done))
    assert KERNEL not in condition
    assert (body.count(KERNEL), body.count("stablehlo.add")) == (1, 1)


def counted_down(x: Any) -> Any:
    """XLA would make one turn of it, of 77, with a call in the loop."""

    def body(carry: Any) -> Any:
        number, total = carry
        row = lax.dynamic_index_in_dim(x, number, 0, False)
        return number - jnp.uint8(3), jnp.tanh(total + row * 0.1)

    return lax.while_loop(lambda carry: carry[0] > jnp.uint8(20), body, (jnp.uint8(250), jnp.zeros(16)))


def test_a_loop_that_counts_an_unsigned_number_down_is_left_whole() -> None:
    rows = np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32)
    _, names = marked(counted_down, rows)
    assert {"stablehlo.subtract", "stablehlo.compare", "stablehlo.tanh", "stablehlo.dynamic_slice"} <= {
        *names
    }
    f = jstitch.jit(counted_down, options=jstitch.CompileOptions(tune="off", without=("recurrences",)))
    for found, theirs in zip(f(rows), jax.jit(counted_down)(rows), strict=True):
        np.testing.assert_allclose(found, theirs, rtol=1e-6)
