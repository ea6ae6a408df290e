"""Several devices: shard_map stitches per device; what automatic partitioning leaves to XLA, and says so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from transform_support import assert_same, assert_stitched, jit, stitch

import jstitch

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
W = np.random.default_rng(1).standard_normal(16).astype(np.float32)


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices("cpu")[:4])


def norm(x: Any, w: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w


def _mapped(f: Any, mesh: Any, *, total: bool = False, check: bool = True) -> Any:
    def body(x: Any, w: Any) -> Any:
        return lax.psum(jnp.sum(f(x, w) ** 2 * jnp.cos(x)), "d") if total else f(x, w)

    out = P() if total else P("d")
    return jax.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=out, check_vma=check)


@pytest.mark.parametrize("check", [True, False])
def test_shard_map_forward_and_backward(mesh: Any, check: bool) -> None:
    since = jstitch.record_count()
    assert_same(
        _host(jax.jit(_mapped(stitch(norm), mesh, check=check))(X, W)), np.asarray(jax.jit(norm)(X, W))
    )
    found = jax.jit(jax.grad(_mapped(stitch(norm), mesh, total=True, check=check), (0, 1)))(X, W)
    expected = jax.jit(jax.grad(lambda x, w: jnp.sum(norm(x, w) ** 2 * jnp.cos(x)), (0, 1)))(X, W)
    assert_same(_host(found), _host(expected), rtol=1e-4, atol=1e-5)
    assert_stitched(since, backward=True)


def test_shard_map_inside_gradient_inside(mesh: Any) -> None:
    since = jstitch.record_count()

    def body(x: Any, w: Any) -> Any:
        return stitch(jax.grad(lambda y: jnp.sum(norm(y, w) * jnp.sin(y))))(x)

    mapped = jax.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
    expected = jax.grad(lambda y: jnp.sum(norm(y, W) * jnp.sin(y)))(X)
    assert_same(_host(jax.jit(mapped)(X, W)), np.asarray(expected), rtol=1e-4, atol=1e-5)
    assert_stitched(since)


def test_collectives_inside_a_stitched_call(mesh: Any) -> None:
    def f(x: Any) -> Any:
        return jnp.tanh(x) * lax.psum(jnp.exp(-x), "d") + lax.axis_index("d")

    since = jstitch.record_count()
    specs = {"mesh": mesh, "in_specs": P("d"), "out_specs": P("d")}
    found = jax.jit(jax.shard_map(stitch(f), **specs))(X)
    assert_same(_host(found), _host(jax.jit(jax.shard_map(f, **specs))(X)))
    assert_stitched(since)

    def loss(g: Any) -> Any:
        return jax.grad(lambda x: jnp.sum(jax.shard_map(g, **specs)(x) ** 2))

    found = jax.jit(loss(stitch(f)))(X)
    assert_same(_host(found), _host(jax.jit(loss(f))(X)), rtol=1e-4, atol=1e-5)


def test_stitched_shard_map_inside_out(mesh: Any) -> None:
    mapped = _mapped(norm, mesh)
    assert_same(_host(jax.jit(stitch(lambda x, w: jnp.exp(mapped(x, w))))(X, W)), _host(jnp.exp(norm(X, W))))


def _refused(since: int) -> str:
    (record,) = jstitch.last_report(since)
    assert record.kernels == 0
    return str(record.reason)


def test_calls_of_the_host_fall_back(mesh: Any) -> None:
    since = jstitch.record_count()
    seen: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.callback(seen.append, x[0, 0])
        return norm(x, W)

    found = jit(f)(jax.device_put(X, NamedSharding(mesh, P("d"))))
    jax.effects_barrier()
    assert seen
    assert_same(_host(found), np.asarray(jax.jit(norm)(X, W)))
    assert "the host is called" in _refused(since)


def test_calls_of_the_host_on_each_device_fall_back(mesh: Any) -> None:
    since = jstitch.record_count()
    seen: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.callback(seen.append, x[0, 0])
        return norm(x, W)

    mapped = jax.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
    found = jit(mapped)(jax.device_put(X, NamedSharding(mesh, P("d"))))
    jax.effects_barrier()
    assert len(seen) == 4
    assert_same(_host(found), np.asarray(jax.jit(norm)(X, W)))
    assert "the host is called" in _refused(since)


def test_two_meshes_fall_back(mesh: Any) -> None:
    other = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2, devices=mesh.devices.flat)
    since = jstitch.record_count()
    x = jax.device_put(X, NamedSharding(mesh, P("d")))
    found = jit(norm)(x, jax.device_put(W, NamedSharding(other, P("a"))))
    assert_same(_host(found), np.asarray(jax.jit(norm)(X, W)))
    assert "2 meshes" in _refused(since)


def test_a_call_in_a_partly_automatic_shard_map_falls_back() -> None:
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices("cpu")[:4])
    since = jstitch.record_count()
    mapped = jax.shard_map(
        stitch(norm), mesh=mesh, in_specs=(P("a"), P()), out_specs=P("a"), axis_names={"a"}
    )
    assert_same(_host(jax.jit(mapped)(X, W)), np.asarray(jax.jit(norm)(X, W)))
    assert "automatic partitioning" in str(jstitch.last_report(since)[0].reason)


def _host(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
