"""Stitched calls in somebody's `jax.jit` over several devices: XLA divides the program as if nothing were
stitched, and each device's part of a call has kernels.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from transform_support import EVERYTHING, stitch

import jstitch
from tests.shares import one_tuple_in
from tests.transform.test_divided import MESHES, Mesh, assert_alike, layer_norm, mesh_of, normal

Around = Callable[[Callable[..., Any]], Callable[..., Any]]
X, G, B = normal(16, 64, 32), 1 + 0.1 * normal(32), normal(32, seed=1)


def around(f: Callable[..., Any]) -> Callable[..., Any]:
    """What somebody's program does before and behind."""
    return lambda x, *rest: jax.tree.map(lambda v: v * 2 + 1, f(jnp.sin(x), *rest))


def assert_part(
    f: Callable[..., Any], *args: Any, program: Around = around, **settings: Any
) -> list[jstitch.Record]:
    """As `jax.jit` without the stitched call, with kernels. The records of its parts."""
    since = jstitch.record_count()
    mine = jax.jit(program(stitch(f)), **settings).lower(*args).compile()
    records = jstitch.last_report(since)
    assert_alike(mine, jax.jit(program(f), **settings).lower(*args).compile(), args)
    assert all(r.reason is None for r in records), records
    parts = [r for r in records if "shardings" in r.details]
    assert sum(r.kernels for r in parts) > 0, records
    return parts


def put(mesh: Mesh, x: np.ndarray, *spec: Any) -> Any:
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def ffn(x: Any, up: Any, down: Any) -> Any:
    return x + jax.nn.gelu(x @ up) @ down


def attention(x: Any, qkv: Any, out: Any) -> Any:
    q, k, v = jnp.moveaxis(jnp.einsum("bld,dnhe->bnhle", x, qkv), 1, 0)
    scores = jax.nn.softmax(jnp.einsum("bhle,bhme->bhlm", q, k) / 4, -1)
    return jnp.einsum("blhe,hed->bld", jnp.einsum("bhlm,bhme->blhe", scores, v), out)


def loss(x: Any, words: Any) -> Any:
    log_p = jax.nn.log_softmax(x @ words, -1)
    return -jnp.take_along_axis(log_p, jnp.zeros((*x.shape[:2], 1), jnp.int32), -1).mean()


def moved(x: Any) -> Any:
    """Rows from neighbours, and dimensions that become one and come apart."""
    rows = jax.nn.softmax(jnp.tanh(jnp.roll(x, 1, 1)).reshape(-1, x.shape[-1]), -1)
    return rows.reshape(*x.shape[:2], 4, -1).transpose(0, 2, 1, 3) * 2


def recurrent(x: Any, g: Any) -> Any:
    return lax.scan(lambda c, now: (jnp.tanh(c * g + now), c.sum(-1)), x[:, 0], jnp.moveaxis(x, 1, 0))


def layer_norm_grad(*args: Any) -> Any:
    return jax.grad(lambda *a: (jnp.sin(layer_norm(*a)) ** 2).sum(), (0, 1, 2))(*args)


def parts(mesh: Mesh) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    first, last = mesh.axis_names[0], mesh.axis_names[-1]
    data, up, down = put(mesh, X, first), normal(32, 128), normal(128, 32)
    whole = put(mesh, G), put(mesh, B)
    yield "rows of a layer norm", layer_norm, (data, *whole)
    yield "a divided row", layer_norm, (put(mesh, X, None, None, last), put(mesh, G, last), whole[1])
    yield "a gradient", layer_norm_grad, (data, *whole)
    if first != last:
        yield "rows and columns", layer_norm, (put(mesh, X, first, None, last), *whole)
        yield "sequences", layer_norm, (put(mesh, X, first, last), *whole)
        yield "tensor parallel", ffn, (data, put(mesh, up, None, last), put(mesh, down, last))
        qkv, out = normal(32, 3, 4, 8), normal(4, 8, 32)
        yield "heads", attention, (data, put(mesh, qkv, None, None, last), put(mesh, out, last))
        yield "divided classes", loss, (data, put(mesh, up, None, last))
        yield "other shapes", moved, (put(mesh, X, first, last),)
    yield "divided weights", ffn, (data, put(mesh, up, first), put(mesh, down, first))
    yield "a scan", recurrent, (data, whole[0])


NAMES = [(mesh, name) for mesh, make in MESHES.items() for name, _, _ in parts(make())]


@pytest.mark.parametrize(("mesh", "name"), one_tuple_in(3, NAMES))
def test_a_part(mesh: str, name: str) -> None:
    made = MESHES[mesh]()
    f, args = next((f, args) for n, f, args in parts(made) if n == name)
    assert_part(f, *args)


def test_layers_of_a_training_step() -> None:
    """Some stitched functions in a step of somebody's; called twice each, differentiated."""
    mesh = mesh_of(data=4, model=2)

    def step(norm: Any, act: Any) -> Any:
        def total(p: Any, x: Any) -> Any:
            for up, down in p:
                x = x + act(norm(x, G, B) @ up) @ down
            return (norm(x, G, B) ** 3).mean()

        def train(p: Any, x: Any) -> Any:
            value, grads = jax.value_and_grad(total)(p, x)
            return jax.tree.map(lambda a, b: a - 0.1 * b, p, grads), value

        return train

    def gelu(h: Any) -> Any:
        return jax.nn.gelu(h) * jax.nn.sigmoid(h)

    weights = [(normal(32, 64, seed=n), normal(64, 32, seed=n)) for n in range(2)]
    p = [(put(mesh, up, None, "model"), put(mesh, down, "model")) for up, down in weights]
    x, since = put(mesh, X, "data"), jstitch.record_count()
    mine = jax.jit(step(stitch(layer_norm), stitch(gelu))).lower(p, x).compile()
    records = jstitch.last_report(since)
    assert_alike(mine, jax.jit(step(layer_norm, gelu)).lower(p, x).compile(), (p, x))
    assert any(r.kernels and r.backward for r in records)
    assert all(r.reason is None for r in records)


def in_a_loop(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: lax.fori_loop(0, 3, lambda _, v: f(v, *rest) * 0.5 + v, x)


def in_a_branch(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: lax.cond(x.sum() > 0, lambda v: f(v, *rest), lambda v: v * 2, x)


def in_functions(f: Callable[..., Any]) -> Callable[..., Any]:
    inner = jax.jit(lambda v, *rest: f(jnp.cos(v), *rest))
    return lambda x, *rest: inner(inner(x, *rest), *rest)


def mapped(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: jax.vmap(lambda row: f(row[None], *rest)[0])(x)


def checkpointed(f: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda x, *rest: (jax.checkpoint(f)(jnp.sin(x), *rest) ** 2).sum())


def last_of_all(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: f(jnp.sin(x), *rest)


@pytest.mark.parametrize("program", [in_a_loop, in_a_branch, in_functions, mapped, checkpointed, last_of_all])
def test_a_program_around(program: Around) -> None:
    mesh = mesh_of(data=4, model=2)
    assert_part(layer_norm, put(mesh, X, "data", "model"), G, B, program=program)


def test_what_is_said_of_it() -> None:
    mesh = mesh_of(data=4, model=2)
    (part,) = assert_part(layer_norm, put(mesh, X, "data"), put(mesh, G), put(mesh, B))
    assert part.details["devices"] == {"data": 4, "model": 2}
    assert part.details["shardings"] == ("(data, -, -)", "(-)", "(-)", "(data, -, -)")
    assert "over 8 devices" in part.details["divided"]
    assert part.details["where"].startswith(__file__.rsplit(".", 1)[0].removesuffix("_parts"))
    assert part.name == "layer_norm"


def test_functions_of_one_name() -> None:
    """Both are lambdas: the inner one is not the program."""
    mesh = mesh_of(data=8)
    f = stitch(lambda x: jax.nn.softmax(jnp.tanh(x) * x, -1))
    x, since = put(mesh, X, "data"), jstitch.record_count()
    found = jax.jit(lambda x: f(x * 2) + 1)(x)
    np.testing.assert_allclose(found, jax.nn.softmax(np.tanh(2 * X) * 2 * X, -1) + 1, rtol=2e-5)
    assert jstitch.stitch_count(since) == 1


def test_shardings_said_elsewhere() -> None:
    """By settings of jit, in the middle of the program, in types, with devices in an order of their own."""
    mesh = mesh_of(data=4, model=2)
    rows, columns = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, None, "model"))
    assert_part(layer_norm, X, G, B, in_shardings=(rows, None, None), out_shardings=columns)
    assert_part(lambda x: layer_norm(lax.with_sharding_constraint(jnp.exp(x), columns), G, B), put(mesh, X))

    def constrained(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: f(lax.with_sharding_constraint(jnp.sin(x), rows), G, B)

    assert_part(layer_norm, X, program=constrained)
    typed = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(typed):
        assert_part(layer_norm, jax.device_put(X, P("data", None, None)), G, B)
    devices = np.array(jax.devices("cpu")[:8])[[3, 1, 0, 2, 7, 5, 6, 4]].reshape(4, 2)
    assert_part(layer_norm, put(Mesh(devices, ("data", "model")), X, "data", "model"), G, B)


def test_parts_that_are_not_equal() -> None:
    """63 rows on 8 devices: XLA divides them, JAX's shardings do not."""
    mesh = mesh_of(data=8)

    def program(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: f(x[1:] * 2).sum(0)

    x = put(mesh, normal(64, 32), "data")
    mine = jax.jit(program(stitch(lambda x: jax.nn.softmax(x * x, -1)))).lower(x).compile()
    np.testing.assert_allclose(mine(x), jax.jit(program(lambda x: jax.nn.softmax(x * x, -1)))(x), rtol=1e-5)


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x: x * 2, "no ops that can be stitched"),
        (lambda x: jax.nn.softmax(jax.pure_callback(np.sin, x, x), -1) * 2, "the host is called"),
    ],
)
def test_what_stays(f: Callable[..., Any], why: str) -> None:
    x, since = put(mesh_of(data=8), X, "data"), jstitch.record_count()
    lowered = jax.jit(around(stitch(f))).lower(x)  # not run: JAX 0.10.2 may end the process at callbacks
    assert "CustomSPMDPartitioning" not in lowered.as_text()
    assert why in str(jstitch.last_report(since)[-1].reason)


def test_exported_programs_stay() -> None:
    mesh = mesh_of(data=8)
    x, since = put(mesh, X, "data"), jstitch.record_count()
    for options in (EVERYTHING, EVERYTHING.replace(export_kernels=True)):
        f = jax.jit(around(jstitch.stitch(lambda x: jax.nn.softmax(x * x, -1), options)))
        exported = jax.export.export(f)(x)
        np.testing.assert_allclose(exported.call(x), f(x), rtol=1e-5)
    assert "exported" in str(jstitch.last_report(since)[0].reason)


def test_where_planning_fails_whole_arrays_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("jstitch.frontend.divide_part.partition", fail)
    x, since = put(mesh_of(data=8), X, "data"), jstitch.record_count()
    lenient = EVERYTHING.replace(strict=False)
    found = jax.jit(around(jstitch.stitch(moved, lenient)))(x)
    np.testing.assert_allclose(found, jax.jit(around(moved))(x), rtol=1e-5)
    assert "no space left" in str(jstitch.last_report(since)[-1].reason)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no space left"):
        jax.jit(around(jstitch.stitch(lambda x: moved(x) + 1, EVERYTHING)))(x)


PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np, jstitch
from jax.sharding import NamedSharding, PartitionSpec as P
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
f = jstitch.stitch(lambda x: jax.nn.softmax(jnp.tanh(x) * x, -1), jstitch.CompileOptions(tune="off"))
x = jax.device_put(np.arange(64 * 32, dtype="f").reshape(64, 32) % 7, NamedSharding(mesh, P("data")))
print(jstitch.stitch_count(), float(jax.jit(lambda x: f(x * 2) + 1)(x).sum()), jstitch.stitch_count())
"""


def test_a_program_is_found_in_jaxs_cache(tmp_path: Path) -> None:
    """The second process has its kernels, and plans nothing."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert [run.split() for run in runs] == [["0", "2112.0", "1"], ["0", "2112.0", "0"]]
