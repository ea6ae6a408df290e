"""`no_fuse` and `fuse_together`: the same numbers, and the kernels that were asked for, however called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.observe import Observed, observing
from jstitch.ir.graph import Op
from jstitch.ir.ops import KERNEL, NO_FUSE
from jstitch.passes.base.plan import is_free
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.hold_together import demanded
from jstitch.passes.pipeline import run as run_passes
from tests.codegen.cuda.stitched import PROFILES, stitch
from tests.contexts import H200

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
X = jnp.asarray(np.random.default_rng(0).standard_normal((48, 64), np.float32))
W = jnp.asarray(np.random.default_rng(1).standard_normal((64, 64), np.float32)) / 8
Function = Callable[..., Any]


def softmax(x: Any, cut: Function = lambda e: e) -> Any:
    e = cut(jnp.exp(x - x.max(-1, keepdims=True)))
    return e / e.sum(-1, keepdims=True)


def cut_softmax(x: Any) -> Any:
    return softmax(x, jstitch.no_fuse)


def grad(f: Function) -> Function:
    return jax.grad(lambda x: (f(x) ** 3).sum())


def scan(f: Function) -> Function:
    return lambda x: jax.lax.scan(lambda c, _: (f(c * 2) * 3, None), x, None, length=20)[0]


def vmap(f: Function) -> Function:
    return lambda x: jax.vmap(f)(x.reshape(2, 24, 64))


def remat(f: Function) -> Function:
    return grad(jax.checkpoint(f))


def plain(f: Function) -> Function:
    return f


TRANSFORMS = [plain, grad, vmap, scan, remat]


def run(f: Function, *args: Any, options: jstitch.CompileOptions = OPTIONS) -> list[Observed]:
    """What stitching f gives, its numbers compared with JAX's own."""
    with observing() as calls:
        found = jstitch.jit(f, options=options)(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(f)(*args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    return calls


def kernels(calls: list[Observed]) -> list[list[Op]]:
    return [[op for op in built.pattern.ops if not is_free(op)] for call in calls for built in call.built]


def groups(calls: list[Observed]) -> list[str]:
    """The kernels that were demanded."""
    found = (demanded(built.pattern) for call in calls for built in call.built)
    return [str(group) for group in found if group is not None]


def said(calls: list[Observed]) -> set[str]:
    """What refusals say the user wanted."""
    refusals = (r for call in calls for plan in call.plans for r in plan.refusals)
    return {r.reason for r in refusals if r.rule == "user"}


# -- no_fuse ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_boundary_makes_more_kernels(transform: Callable[[Function], Function]) -> None:
    without, with_one = run(transform(softmax), X), run(transform(cut_softmax), X)
    assert len(kernels(with_one)) > len(kernels(without))
    (reason,) = said(with_one)
    assert reason.startswith(f"no_fuse at {__file__}:")
    assert reason.endswith("(softmax)")
    assert not said(without)
    for ops in kernels(with_one):
        names = [op.name.rpartition(".")[2] for op in ops if "transpose" not in op.scope]
        assert not {"exponential", "divide"} <= set(names)


@pytest.mark.parametrize("planner", ["layers", "ilp", "dp"])
def test_all_planners_keep_to_it(planner: str) -> None:
    calls = run(cut_softmax, jnp.tile(X, (8, 8)), options=OPTIONS.replace(planner=planner))
    assert len(kernels(calls)) == 2
    assert said(calls)


def test_cotangents_are_boundaries_too() -> None:
    calls = run(grad(cut_softmax), X)
    (call,) = calls
    assert call.graph is not None
    boundaries = [op for op in call.graph.ops if op.name == NO_FUSE]
    assert sorted("transpose(" in op.scope for op in boundaries) == [False, True]


def test_nothing_is_left_in_the_program() -> None:
    text = jstitch.jit(cut_softmax, options=OPTIONS).lower(X).as_text()
    assert "custom_call" in text
    assert "no_fuse" not in text
    assert "optimization_barrier" not in text


def test_pytrees_and_eager_calls() -> None:
    tree = {"a": X, "b": (jnp.arange(3), np.float32(2.0))}
    jax.tree.map(np.testing.assert_array_equal, jstitch.no_fuse(tree), tree)
    with pytest.raises(TypeError):
        jstitch.no_fuse("text")


def test_programs_without_stitching_compile_and_export() -> None:
    expected = softmax(X)
    np.testing.assert_allclose(jax.jit(cut_softmax)(X), expected, rtol=1e-6)
    restored = export.deserialize(export.export(jax.jit(cut_softmax))(X).serialize())
    found: Any = restored.call(X)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(grad(cut_softmax))(X), grad(softmax)(X), rtol=1e-4, atol=1e-6)


def test_integers_have_no_tangent() -> None:
    def f(x: Any) -> Any:
        return x[jstitch.no_fuse(jnp.arange(4))].sum()

    np.testing.assert_array_equal(jax.grad(f)(X), jax.grad(lambda x: x[:4].sum())(X))


def test_a_barrier_of_xla_is_not_ours() -> None:
    calls = run(lambda x: softmax(x, jax.lax.optimization_barrier), X)
    assert not said(calls)
    assert len(kernels(calls)) == 2


# -- fuse_together ---------------------------------------------------------------------------------------


def large(x: Any) -> tuple[Any, Any]:
    """Two chains that nothing makes the layers join: they share no tensor."""
    a, b = x
    return jnp.exp(a - a.max(-1, keepdims=True)), jnp.tanh(b).sum(0)


PAIR = (X, W)
ALONE = OPTIONS.replace(schemes=("thread", "warp", "block"))


def test_what_planners_keep_apart_is_one_kernel() -> None:
    apart = run(large, PAIR, options=ALONE)
    assert len(kernels(apart)) == 2
    together = run(jstitch.fuse_together(large), PAIR, options=ALONE)
    assert len(kernels(together)) == 1
    assert groups(together) == ["fuse_together(large)"]


@pytest.mark.parametrize("planner", ["layers", "ilp", "dp"])
def test_all_planners_leave_it_alone(planner: str) -> None:
    f = jstitch.fuse_together(large, strict=True)
    calls = run(f, PAIR, options=ALONE.replace(planner=planner))
    assert groups(calls) == ["fuse_together(large)"]
    assert len(kernels(calls)) == 1


def test_the_gate_does_not_drop_it() -> None:
    def f(x: Any) -> Any:
        return x + 1.0

    x = jnp.ones(1 << 16)
    model = jstitch.CompileOptions(tune="model", strict=True, verify=True)
    assert kernels(run(lambda x: f(f(x)), x, options=model)) == []
    wanted = jstitch.fuse_together(lambda x: f(f(x)))
    assert groups(run(wanted, x, options=model)) == ["fuse_together(lambda)"]


def test_neither_does_the_clock(tmp_path: Any) -> None:
    measured = jstitch.CompileOptions(
        tune="measure", tune_seconds=2.0, cache_dir=str(tmp_path), strict=True, verify=True
    )
    wanted = jstitch.fuse_together(lambda x: (x + 1.0) * 2.0, strict=True)
    assert len(kernels(run(wanted, jnp.ones(1 << 10), options=measured))) == 1


def test_backward_ops_are_a_group_of_their_own() -> None:
    f = jstitch.fuse_together(softmax, strict=True)
    calls = run(grad(lambda x: f(x) @ W), X)
    assert groups(calls) == ["fuse_together(softmax)", "fuse_together(softmax) (backward)"]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_under_transformations(transform: Callable[[Function], Function]) -> None:
    f = jstitch.fuse_together(softmax)
    assert "fuse_together(softmax)" in groups(run(transform(f), X))


def test_grad_of_a_stitched_function() -> None:
    f = jstitch.jit(jstitch.fuse_together(softmax, strict=True), options=OPTIONS)
    with observing() as calls:
        found = jax.jit(grad(f))(X)
    np.testing.assert_allclose(found, jax.jit(grad(softmax))(X), rtol=2e-5, atol=2e-5)
    assert groups(calls) == ["fuse_together(softmax)", "fuse_together(softmax) (backward)"]


def test_every_call_is_one_kernel() -> None:
    f = jstitch.fuse_together(softmax, strict=True)
    calls = run(lambda x: f(f(f(x) * 2.0) + 1.0), X)
    assert groups(calls) == ["fuse_together(softmax)"] * 3


def test_calls_of_one_trace_are_told_apart() -> None:
    """The inner jit is traced once: both calls come from one jaxpr."""
    inner = jax.jit(jstitch.fuse_together(softmax, strict=True))
    assert groups(run(lambda x: inner(inner(x) @ W), X)) == ["fuse_together(softmax)"] * 2


def test_turns_that_are_written_out_are_told_apart() -> None:
    """On a GPU five turns of the loop are one body; between two of them stands a product."""
    f = jstitch.fuse_together(softmax, strict=True)

    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (f(c @ W), None), x, None, length=10)[0]

    graph = import_module(parse_module(jax.jit(loop).lower(X).as_text(debug_info=True)))
    made = stitch(run_passes(graph, H200), PROFILES["h200"])
    names = [op.attrs["name"] for op in made.graph.walk() if op.name == KERNEL and op.attrs["demanded"]]
    assert names == [f"softmax_row_{n}" for n in range(5)]


def test_the_outermost_call_counts() -> None:
    inner = jstitch.fuse_together(softmax, strict=True)
    outer = jstitch.fuse_together(lambda x: inner(jnp.tanh(x)) * 2.0, strict=True)
    calls = run(outer, X)
    assert groups(calls) == ["fuse_together(lambda)"]
    assert len(kernels(calls)) == 1


def product(x: Any) -> Any:
    return jnp.tanh(jnp.exp(x) @ W) + jnp.exp(x).sum()


def test_what_no_kernel_holds_is_planned_as_ever() -> None:
    calls = run(jstitch.fuse_together(product), X)
    assert groups(calls) == []
    assert len(kernels(calls)) == len(kernels(run(product, X)))
    (reason,) = said(calls)
    assert reason.startswith("fuse_together(product) cannot be one kernel: stablehlo.dot_general at ")


def test_a_strict_call_raises() -> None:
    f = jstitch.fuse_together(strict=True)(product)
    for options in (OPTIONS, OPTIONS.replace(strict=False)):
        with pytest.raises(
            jstitch.CannotFuseError, match=r"fuse_together\(product\) to be one kernel"
        ) as found:
            jstitch.jit(f, options=options).lower(X)
        assert "dot_general" in found.value.found
        assert found.value.where.startswith(__file__)


def test_a_strict_call_of_what_does_not_fit_raises() -> None:
    f = jstitch.fuse_together(softmax, strict=True)
    with pytest.raises(jstitch.CannotFuseError, match="no kernel expresses it"):
        jstitch.jit(f, options=OPTIONS.replace(arena_bytes=16)).lower(X)


def test_without_stitching_it_is_a_call() -> None:
    f = jstitch.fuse_together(softmax, strict=True)
    np.testing.assert_allclose(f(X), softmax(X), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(grad(f))(X), jax.jit(grad(softmax))(X), rtol=1e-6)
    assert f.__name__ == "softmax"


def test_both_at_once() -> None:
    """A boundary inside keeps the call from being one kernel, and says so."""
    calls = run(jstitch.fuse_together(cut_softmax), X)
    assert groups(calls) == []
    (reason,) = said(calls)
    assert reason.startswith("no_fuse at ")
    with pytest.raises(jstitch.CannotFuseError, match=r"jstitch\.no_fuse at "):
        jstitch.jit(jstitch.fuse_together(cut_softmax, strict=True), options=OPTIONS).lower(X)
    for call in calls:
        assert all(check_plan(plan) == () for plan in call.plans)


def test_inside_shard_map() -> None:
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("rows")  # type: ignore[no-untyped-call]
    f = jstitch.fuse_together(softmax, strict=True)
    mapped = jax.shard_map(
        jstitch.stitch(lambda x: f(jstitch.no_fuse(jnp.tanh(x))), options=OPTIONS),
        mesh=mesh,
        in_specs=rows,
        out_specs=rows,
    )
    with observing() as calls:
        found = jax.jit(grad(mapped))(X)
    np.testing.assert_allclose(found, grad(lambda x: softmax(jnp.tanh(x)))(X), rtol=2e-5, atol=2e-5)
    # Forward and backward are calls of their own; JAX's scopes do not say which is which in a shard_map.
    assert groups(calls) == ["fuse_together(softmax)"] * 2
