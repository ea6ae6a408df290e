"""Programs for several devices: XLA divides them, each device's part is stitched; collectives stay XLA's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from transform_support import EVERYTHING, jit

import jstitch
from tests.shares import one_in
from tests.transform.collectives import collectives

Mesh = jax.sharding.Mesh
WIDTH, HEADS, LENGTH, BATCH, LAYERS, WORDS = 32, 4, 16, 16, 2, 64


def mesh_of(**sizes: int) -> Mesh:
    count = int(np.prod(list(sizes.values())))
    types = (AxisType.Auto,) * len(sizes)
    return jax.make_mesh(
        tuple(sizes.values()), tuple(sizes), axis_types=types, devices=jax.devices("cpu")[:count]
    )


MESHES = {
    "8": lambda: mesh_of(data=8),
    "4x2": lambda: mesh_of(data=4, model=2),
    "2x2x2": lambda: mesh_of(data=2, model=2, rest=2),
}


def assert_divided(f: Callable[..., Any], *args: Any, rtol: float = 2e-4, **settings: Any) -> jstitch.Record:
    """Same results and shardings as jax.jit's, no more collectives, with kernels."""
    ours, theirs = jit(f, **settings), jax.jit(f, **settings)
    since = jstitch.record_count()
    mine = ours.lower(*args).compile()
    record = jstitch.last_report(since)[-1]
    assert_alike(mine, theirs.lower(*args).compile(), args, rtol)
    assert record.reason is None, record
    assert record.kernels > 0
    return record


def assert_alike(mine: Any, plain: Any, args: Any, rtol: float = 2e-4) -> None:
    """Two compiled programs: same results and shardings, and no more collectives in ours."""
    for a, b in zip(jax.tree.leaves(mine(*args)), jax.tree.leaves(plain(*args)), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.sharding.is_equivalent_to(b.sharding, a.ndim), (a.sharding, b.sharding)
        x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * max(np.abs(y).max(initial=0), 1e-6))
    ours_moved, theirs_moved = collectives(mine), collectives(plain)
    for kind in {*ours_moved, *theirs_moved}:
        (n, moved), (m, least) = ours_moved.get(kind, (0, 0)), theirs_moved.get(kind, (0, 0))
        assert n <= m, (kind, ours_moved, theirs_moved)
        assert moved <= least, (kind, ours_moved, theirs_moved)


@pytest.fixture(params=MESHES, scope="module")
def mesh(request: pytest.FixtureRequest) -> Mesh:
    return MESHES[request.param]()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


# -- a transformer's training step -----------------------------------------------------------------------


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * g + b


def parameters() -> dict[str, Any]:
    def layer(n: int) -> dict[str, Any]:
        return {
            "g": 1 + 0.1 * normal(WIDTH, seed=n),
            "b": 0.1 * normal(WIDTH, seed=n + 9),
            "qkv": 0.1 * normal(WIDTH, 3, HEADS, WIDTH // HEADS, seed=n),
            "out": 0.1 * normal(HEADS, WIDTH // HEADS, WIDTH, seed=n),
            "up": 0.1 * normal(WIDTH, 4 * WIDTH, seed=n),
            "down": 0.1 * normal(4 * WIDTH, WIDTH, seed=n),
        }

    return {"words": normal(WORDS, WIDTH), "layers": [layer(n) for n in range(LAYERS)]}


def loss(p: Any, tokens: Any, constrain: Callable[[Any], Any]) -> Any:
    x = p["words"][tokens]
    for layer in p["layers"]:
        x = constrain(x)
        h = layer_norm(x, layer["g"], layer["b"])
        q, k, v = jnp.moveaxis(jnp.einsum("bld,dnhe->bnhle", h, layer["qkv"]), 1, 0)
        scores = jnp.einsum("bhle,bhme->bhlm", q, k) / np.sqrt(WIDTH // HEADS)
        mixed = jnp.einsum("bhlm,bhme->blhe", jax.nn.softmax(scores, -1), v)
        x = x + jnp.einsum("blhe,hed->bld", mixed, layer["out"])
        h = layer_norm(x, layer["g"], layer["b"])
        x = constrain(x + jax.nn.gelu(h @ layer["up"]) @ layer["down"])
    logits = x @ p["words"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits, -1), tokens[..., None], -1)
    return -picked.mean()


def adam(p: Any, m: Any, v: Any, g: Any) -> tuple[Any, Any, Any]:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 1e-3 * (m / (jnp.sqrt(v) + 1e-6) + 0.01 * p), m, v


def train(state: Any, tokens: Any, constrain: Callable[[Any], Any] = lambda x: x) -> Any:
    p, m, v = state
    value, g = jax.value_and_grad(loss)(p, tokens, constrain)
    made = jax.tree.map(adam, p, m, v, g)
    return jax.tree.transpose(jax.tree.structure(p), jax.tree.structure((0, 0, 0)), made), value


TENSOR = {
    "qkv": P(None, None, "model", None),
    "out": P("model", None, None),
    "up": P(None, "model"),
    "down": P("model", None),
}


def _spec(layout: str, name: str, leaf: np.ndarray) -> P:
    if layout == "full":  # parameters and the optimizer's state, too
        return P("data") if leaf.shape[0] % 8 == 0 else P()
    return TENSOR.get(name, P()) if layout in ("tensor", "sequence") else P()


LAYOUTS = ("data", "full", "tensor", "sequence")
QUICK = {("8", "data"), ("4x2", "full"), ("4x2", "tensor"), ("2x2x2", "sequence")}


def steps() -> list[Any]:
    """Every layout on every mesh, quick or slow; each is quick on one mesh at least, with one JAX."""
    pairs = [(mesh, layout) for mesh in MESHES for layout in LAYOUTS]
    return [
        pytest.param(*pair, marks=pytest.mark.once if pair in QUICK else pytest.mark.slow) for pair in pairs
    ]


@pytest.mark.parametrize(("mesh", "layout"), steps(), indirect=["mesh"])
def test_a_training_step(mesh: Mesh, layout: str) -> None:
    if layout in ("tensor", "sequence") and "model" not in mesh.axis_names:
        mesh = mesh_of(data=2, model=4)

    def place(path: Any, leaf: np.ndarray) -> Any:
        return jax.device_put(leaf, NamedSharding(mesh, _spec(layout, str(path[-1].key), leaf)))

    p = jax.tree_util.tree_map_with_path(place, parameters())
    state = p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)
    tokens = np.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH)).astype(np.int32)
    tokens = jax.device_put(tokens, NamedSharding(mesh, P("data")))
    along = NamedSharding(mesh, P("data", "model", None)) if layout == "sequence" else None

    def constrain(x: Any) -> Any:
        return x if along is None else lax.with_sharding_constraint(x, along)

    record = assert_divided(lambda state, tokens: train(state, tokens, constrain), state, tokens)
    assert record.details["devices"] == dict(mesh.shape)


# -- parts of programs -----------------------------------------------------------------------------------


def batch_norm(x: Any, g: Any, b: Any) -> Any:
    mean, of_squares = x.mean(0), (x * x).mean(0)
    return jnp.tanh((x - mean) * lax.rsqrt(of_squares - mean * mean + 1e-5) * g + b)


def cross_entropy(x: Any, labels: Any) -> Any:
    picked = jnp.take_along_axis(jax.nn.log_softmax(x, -1), labels[:, None], -1)
    return -(picked * 0.5).sum()


def recurrent(x: Any, w: Any, u: Any) -> Any:
    def cell(h: Any, now: Any) -> tuple[Any, Any]:
        h = jnp.tanh(now @ w + h @ u) * 0.9 + 0.1 * h
        return h, h

    return lax.scan(cell, jnp.zeros((x.shape[1], u.shape[0])), x)[1]


def clipped(p: Any, g: Any) -> Any:
    norm = jnp.sqrt(sum(jnp.sum(v * v) for v in jax.tree.leaves(g)))
    return jax.tree.map(lambda a, b: a - 0.1 * b * jnp.minimum(1.0, 1.0 / norm) - 0.01 * a, p, g)


def programs(mesh: Mesh) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    last = mesh.axis_names[-1]

    def put(x: np.ndarray, *spec: Any) -> Any:
        return jax.device_put(x, NamedSharding(mesh, P(*spec)))

    x = normal(64, 256)
    weights = put(normal(256)), put(normal(256, seed=1))
    yield "batch norm", batch_norm, (put(x, "data"), *weights)
    grad = jax.grad(lambda *args: (batch_norm(*args) ** 3).sum(), (0, 1, 2))
    yield "batch norm's gradient", grad, (put(x, "data"), *weights)
    yield "softmax over a divided dimension", lambda x: jax.nn.softmax(x * x, -1), (put(x, None, last),)
    labels = np.random.default_rng(0).integers(0, 256, 64).astype(np.int32)
    yield (
        "cross entropy over divided classes",
        jax.value_and_grad(cross_entropy),
        (
            put(x, None, last),
            put(labels),
        ),
    )
    tree = {"a": put(normal(64, 32), "data"), "b": put(normal(256), last), "c": put(normal(3))}
    moved = jax.tree.map(lambda v: v * 0.5, tree)
    yield "an optimizer", clipped, (tree, moved)
    rows = put(normal(12, 64, 16), None, "data"), put(normal(16, 32)), put(0.1 * normal(32, 32))
    yield "a scan", recurrent, rows
    total = jax.grad(lambda *args: (recurrent(*args) ** 2).sum(), (0, 1, 2))
    yield "a scan's gradient", total, rows


NAMES = [name for name, _, _ in programs(mesh_of(data=1))]


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_a_program(mesh: Mesh, name: str) -> None:
    f, args = next((f, args) for n, f, args in programs(mesh) if n == name)
    assert_divided(f, *args)


# -- ways to say where arrays are -------------------------------------------------------------------------

X, W = normal(64, 96), normal(96)


def norm(x: Any, w: Any) -> Any:
    return layer_norm(x, w, 0.5)


def test_shardings_of_jit() -> None:
    mesh = mesh_of(data=4, model=2)
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    columns = NamedSharding(mesh, P(None, "model"))
    assert_divided(norm, X, W, in_shardings=(rows, whole), out_shardings=columns)
    assert_divided(lambda x: norm(x, W), X, in_shardings=rows, out_shardings=rows)
    assert_divided(norm, X, W, out_shardings=rows)


def test_constraints_alone() -> None:
    rows = NamedSharding(mesh_of(data=8), P("data"))
    assert_divided(lambda x, w: norm(lax.with_sharding_constraint(x, rows), w), X, W)


def test_results_alone() -> None:
    """Weights are made where they are to be, of no argument."""
    rows = NamedSharding(mesh_of(data=8), P("data"))
    assert_divided(lambda: jax.random.normal(jax.random.key(0), (64, 96)) / 8, out_shardings=rows)


def test_replicated_arrays() -> None:
    whole = NamedSharding(mesh_of(data=8), P())
    record = assert_divided(norm, jax.device_put(X, whole), jax.device_put(W, whole))
    assert record.details["shardings"] == ("(-, -)", "(-)", "(-, -)")


def test_axes_in_the_type() -> None:
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x, w = jax.device_put(X, P("data", None)), jax.device_put(W, P(None))
        assert_divided(norm, x, w)
        assert_divided(jax.grad(lambda x, w: (norm(x, w) ** 3).sum(), (0, 1)), x, w)
        assert_divided(lambda x, w: jax.sharding.reshard(norm(x, w), P("data", "model")), x, w)


@pytest.mark.parametrize("manual", [{"data"}, {"data", "model"}])
def test_shard_map_inside(manual: set[str]) -> None:
    mesh = mesh_of(data=4, model=2)

    def body(x: Any, w: Any) -> Any:
        return norm(x, w) / lax.psum(x.sum(), "data")

    mapped = jax.shard_map(body, mesh=mesh, in_specs=(P("data"), P()), out_specs=P("data"), axis_names=manual)
    x = jax.device_put(X, NamedSharding(mesh, P("data")))
    assert_divided(lambda x, w: jax.nn.softmax(mapped(jnp.tanh(x), w) * x), x, W)


def test_vmap_names_an_axis() -> None:
    mesh = mesh_of(data=8)
    whole = NamedSharding(mesh, P())

    def f(x: Any) -> Any:
        return norm(lax.with_sharding_constraint(jnp.sin(x), whole), W)

    x = jax.device_put(normal(8, 16, 96), NamedSharding(mesh, P("data")))
    record = assert_divided(jax.vmap(f, spmd_axis_name="data"), x)
    assert record.details["shardings"] == ("(data, -, -)", "(data, -, -)")


def test_an_exported_program_is_called() -> None:
    """Its functions name a mesh; the gradient's are called with shardings of arguments alone."""
    rows = NamedSharding(mesh_of(data=8), P("data"))
    x = jax.device_put(X, rows)
    for out in (rows, None):
        exported = jax.export.export(jax.jit(norm, in_shardings=(rows, None), out_shardings=out))(x, W)
        again = jax.export.deserialize(exported.serialize(vjp_order=1))
        assert_divided(lambda x, w, f=again: jax.nn.softmax(f.call(jnp.sin(x), w)), x, W)
        assert_divided(jax.grad(lambda x, w, f=again: (f.call(jnp.sin(x), w) ** 3).sum(), (0, 1)), x, W)


def test_other_kinds_of_arguments() -> None:
    """Python numbers, NumPy arrays, random keys, empty arrays, donated ones, static ones."""
    rows = NamedSharding(mesh_of(data=8), P("data"))
    x = jax.device_put(X, rows)

    def f(x: Any, scale: Any, key: Any, none: Any, power: int = 3) -> Any:
        noise = jax.random.bernoulli(key, 0.9, x.shape)
        return norm(x * scale * noise, W) ** power + none.sum(), none

    key, none = jax.random.key(3), np.zeros((0, 96), np.float32)
    assert_divided(f, x, 0.5, key, none)
    powered, since = jstitch.jit(f, options=EVERYTHING, static_argnums=4), jstitch.record_count()
    np.testing.assert_allclose(
        powered(x, 0.5, key, none, 2)[0], f(x, 0.5, key, none, 2)[0], rtol=1e-4, atol=1e-5
    )
    assert jstitch.stitch_count(since) > 0
    donated = jstitch.jit(lambda x: norm(x, W), options=EVERYTHING, donate_argnums=0)
    expected = np.asarray(jax.jit(norm)(X, W))
    np.testing.assert_allclose(donated(x), expected, rtol=1e-5, atol=1e-5)
    assert x.is_deleted()


def test_arrays_of_other_shardings_are_other_programs() -> None:
    f = jstitch.jit(norm, options=EVERYTHING)
    mesh, expected = mesh_of(data=4, model=2), np.asarray(jax.jit(norm)(X, W))
    for spec in (P("data"), P(None, "model"), P(("model", "data")), P("data", "model")):
        sharding = NamedSharding(mesh, spec)
        since = jstitch.record_count()
        found = f(jax.device_put(X, sharding), W)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert found.sharding.is_equivalent_to(sharding, 2)
        assert jstitch.stitch_count(since) > 0


def test_devices_in_an_order_of_their_own() -> None:
    devices = np.array(jax.devices("cpu")[:8])[[3, 1, 0, 2, 7, 5, 6, 4]].reshape(4, 2)
    mesh = Mesh(devices, ("data", "model"))
    x = jax.device_put(X, NamedSharding(mesh, P("data", "model")))
    assert_divided(norm, x, W)
    assert_divided(lambda x: jnp.cumsum(norm(x.T @ x, 2.0), 0), x)


def test_the_first_calls_are_xlas_own() -> None:
    f = jstitch.jit(norm, options=EVERYTHING.replace(async_compile=True))
    x = jax.device_put(X, NamedSharding(mesh_of(data=8), P("data")))
    since = jstitch.record_count()
    first = f(x, W)
    f.wait()
    np.testing.assert_allclose(f(x, W), first, rtol=1e-5, atol=1e-5)
    assert jstitch.stitch_count(since) > 0
