"""The lowering rule around the pipeline (a fake one here): replacing, falling back, donation, tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from transform_support import assert_same

import jstitch
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend import kernel_builder, lowering
from jstitch.frontend.mlir import ir, stablehlo
from jstitch.passes.lower.choose_template import best_kernel

X = np.arange(12, dtype=np.float32).reshape(3, 4)
LENIENT = jstitch.CompileOptions(strict=False)


def clone(ops: Any, args: Any, results: Any, *_: Any, **__: Any) -> list[Any]:
    """A pipeline that copies every operation."""
    new = dict(zip(args, args, strict=True))
    for op in ops:
        copy = op.operation.clone(ir.InsertionPoint.current)
        for i, operand in enumerate(op.operation.operands):
            copy.operands[i] = new.get(operand, operand)
        _replace_inside(copy, new)
        new |= dict(zip(op.operation.results, copy.results, strict=True))
    return [new.get(result, result) for result in results]


def _replace_inside(op: Any, new: dict[Any, Any]) -> None:
    for inner in (child for region in op.regions for block in region for child in block):
        for i, operand in enumerate(inner.operation.operands):
            inner.operation.operands[i] = new.get(operand, operand)
        _replace_inside(inner.operation, new)


def fail_late(ops: Any, args: Any, results: Any, *rest: Any, **more: Any) -> list[Any]:
    """A pipeline that raises when it has already inserted operations."""
    clone(ops, args, results)
    raise RuntimeError("broken on purpose")


def leave(*_: Any, **__: Any) -> None:
    """A pipeline that finds nothing to do."""


def _count_operations(f: Any) -> int:
    """Operations of the lowered program; `f` is lowered anew each time."""
    lowered = jstitch.jit(lambda x: f(x), options=LENIENT).lower(X)
    return str(lowered.as_text()).count("stablehlo.")


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    return lambda fake: monkeypatch.setattr(lowering, "rewrite", fake)


def with_loop(x: Any) -> Any:
    total = lax.fori_loop(0, 3, lambda i, s: jnp.tanh(s * x) + i, x)
    return jax.jit(jnp.exp)(-total), lax.cond(total[0, 0] > 0, jnp.sin, jnp.cos, total), x


@pytest.mark.parametrize("f", [with_loop, lambda x: jax.grad(lambda y: with_loop(y)[0].sum())(x)])
def test_replaced_operations_compute_the_same(pipeline: Any, f: Any) -> None:
    pipeline(clone)
    text = jax.jit(jstitch.stitch(f)).lower(X).as_text()
    assert_same(jax.jit(jstitch.stitch(lambda x: f(x)))(X), jax.jit(f)(X))
    pipeline(lambda *_, **__: None)
    assert text.count("stablehlo.") == jax.jit(jstitch.stitch(lambda x: f(x))).lower(X).as_text().count(
        "stablehlo."
    )


def test_ordered_effects_keep_their_order(pipeline: Any) -> None:
    pipeline(clone)
    seen: list[float] = []

    def log(x: Any) -> None:
        io_callback(lambda v: seen.append(float(v)), None, x, ordered=True)

    inner = jstitch.stitch(lambda x: (log(x + 1), log(x + 2), jnp.exp(x))[-1])

    @jax.jit
    def outer(x: Any) -> Any:
        log(x)
        y = inner(x)
        log(x + 3)
        return y + inner(x + 4)

    outer(0.0)
    jax.effects_barrier()
    assert seen == [0, 1, 2, 3, 5, 6]


def test_a_failing_pipeline_leaves_xlas_operations(pipeline: Any) -> None:
    pipeline(fail_late)
    since = jstitch.record_count()
    f = jstitch.jit(with_loop, options=LENIENT)
    with pytest.warns(jstitch.JstitchWarning, match="broken on purpose"):
        found = f(X)
    assert_same(found, jax.jit(with_loop)(X))
    (record,) = jstitch.last_report(since)
    assert record.kernels == 0
    assert record.reason == "RuntimeError: broken on purpose"
    with pytest.warns(jstitch.JstitchWarning):
        failed = jstitch.jit(lambda x: with_loop(x), options=LENIENT).lower(X).as_text()
    pipeline(lambda *_, **__: None)
    assert failed.count("stablehlo.") == jstitch.jit(lambda x: with_loop(x)).lower(X).as_text().count(
        "stablehlo."
    )


@pytest.mark.parametrize("verify", [False, True])
def test_a_kernel_that_breaks_its_rules_is_not_built(monkeypatch: Any, verify: bool) -> None:
    """Whatever the options: here nobody writes the result."""

    def broken(*about: Any) -> Kernel:
        return replace(best_kernel(*about), phases=())

    monkeypatch.setattr(kernel_builder, "best_kernel", broken)
    since = jstitch.record_count()
    options = jstitch.CompileOptions(strict=False, verify=verify, tune="off")

    def f(x: Any) -> Any:
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True))

    with pytest.warns(jstitch.JstitchWarning, match="never written"):
        assert_same(jstitch.jit(f, options=options)(X), jax.jit(f)(X))
    assert jstitch.last_report(since)[0].kernels == 0


def test_strict_raises(pipeline: Any) -> None:
    pipeline(fail_late)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        jstitch.jit(with_loop, options=jstitch.CompileOptions(strict=True))(X)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, {}),
        ({"donate_argnums": 0}, {0: 1}),
        ({"donate_argnums": (0, 1)}, {0: 1, 1: 0}),
        ({"donate_argnums": (0, 1, 2)}, {0: 1, 1: 0}),
    ],
)
def test_donation_map(pipeline: Any, kwargs: Any, expected: Any) -> None:
    seen: list[Any] = []
    pipeline(lambda *_, donated, **__: seen.append(dict(donated)))

    def f(a: Any, b: Any, c: Any) -> Any:
        return b * 2 + 1, a * 2 + c[0], c.sum()

    jstitch.jit(f, **kwargs)(jnp.ones((2, 3)), jnp.ones((4,)), jnp.ones(5))
    assert seen == [expected]


def test_donation_without_a_known_output(pipeline: Any) -> None:
    seen: list[Any] = []
    pipeline(lambda *_, donated, **__: seen.append(dict(donated)))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), "d")
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    x = jax.device_put(jnp.ones((4, 4)), sharding)
    jstitch.jit(lambda x: jnp.exp(x), donate_argnums=0)(x)
    assert [set(d) for d in seen] == [{0}]


def test_symbolic_shapes_are_left_to_xla(pipeline: Any) -> None:
    pipeline(clone)
    since = jstitch.record_count()
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jstitch.jit(lambda x: jnp.tanh(x) * 2))(
        jax.ShapeDtypeStruct((n,), "float32")
    )
    assert_same(exported.call(X[0]), jnp.tanh(X[0]) * 2)
    assert jstitch.last_report(since)[0].reason == "symbolic shapes"


@pytest.mark.parametrize(
    ("platform", "reason"), [("tpu", "no backend for tpu"), ("cuda", "the target option must name one")]
)
def test_other_platforms_are_left_to_xla(platform: str, reason: str) -> None:
    since = jstitch.record_count()
    text = jstitch.jit(lambda x: jnp.tanh(x) * 2).trace(X).lower(lowering_platforms=(platform,)).as_text()
    assert "stablehlo.tanh" in text
    assert reason in str(jstitch.last_report(since)[-1].reason)


def test_replaced_with_a_new_operation(pipeline: Any) -> None:
    pipeline(lambda ops, args, *_, **__: [stablehlo.negate(args[0])])
    assert_same(jstitch.jit(jnp.tanh)(X), -X, rtol=0)
