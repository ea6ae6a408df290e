"""What was decided of a call is taken from disk the next time, and the program is the same to the letter."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jstitch
from benchmarks.workload import Problem, Size
from benchmarks.workloads import SUITE
from jstitch.frontend import kept_call, rewrite
from jstitch.runtime.cache import KernelCache

X = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
TABLE = np.arange(96.0, dtype=np.float32) ** 0.5
WORKLOADS = {w.name: w for group in SUITE.values() for w in group}
QUICK = ("layer_norm_grad", "rms_norm_bf16", "cross_entropy_grad", "rope", "gru_scan", "vae_step")


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the calls that are planned, not found."""
    names: list[str] = []
    own = rewrite.rewrite_graph

    def counted(graph: Any, context: Any, name: str, *args: Any, **more: Any) -> Any:
        names.append(name)
        return own(graph, context, name, *args, **more)

    monkeypatch.setattr(rewrite, "rewrite_graph", counted)
    return names


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    kept_call.kernel_store.cache_clear()
    yield
    kept_call.kernel_store.cache_clear()


def options(folder: Path, **more: Any) -> jstitch.CompileOptions:
    return jstitch.CompileOptions(
        **{"cache_dir": folder, "keep_plans": True, "verify": False, "strict": True, **more}
    )


def module(
    f: Callable[..., Any], args: Any, wanted: jstitch.CompileOptions, debug_info: bool = False, **jit: Any
) -> str:
    jax.clear_caches()
    return str(jstitch.jit(f, options=wanted, **jit).lower(*args).as_text(debug_info=debug_info))


def twice(f: Callable[..., Any], args: Any, wanted: jstitch.CompileOptions, **jit: Any) -> tuple[str, str]:
    """With all lines."""
    first, second = (module(f, args, wanted, True, **jit) for _ in range(2))
    return first, second


def norm(x: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return jnp.tanh(x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)) * TABLE


def with_others(x: Any) -> Any:
    """Ops that nobody knows but XLA, some with regions that use what is around them."""
    scale = x.sum()
    root = jnp.linalg.cholesky(x @ x.T + 100 * jnp.eye(64))
    largest = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 9), (1, 9), "VALID")
    picked = jax.lax.cond(scale > 0, lambda v: norm(v) + scale, lambda v: jnp.cos(v) * scale, x)
    return root, largest, jnp.sort(norm(x), -1), jnp.fft.rfft(norm(x)), picked


def in_loops(x: Any) -> Any:
    def turn(carry: Any, row: Any) -> Any:
        carry = jnp.tanh(carry * 0.5 + row)
        return carry, carry.sum()

    return jax.lax.scan(turn, x[0], x), jax.lax.fori_loop(0, 3, lambda n, v: norm(v) + n, x)


def random_ones(x: Any) -> Any:
    key = jax.random.key(3)
    return norm(x) * jax.random.bernoulli(key, 0.9, x.shape), jax.random.normal(key, (7,))


def small_numbers(x: Any) -> Any:
    low = x.astype(jnp.bfloat16)
    return jax.nn.softmax(low, -1), (low * jnp.bfloat16(0.1)).astype(jnp.int8), x > TABLE, x[:0]


@pytest.mark.parametrize("f", [norm, with_others, in_loops, random_ones, small_numbers])
def test_same_program(f: Callable[..., Any], tmp_path: Path, planned: list[str]) -> None:
    for g in (f, jax.grad(lambda x: sum(jnp.real(leaf).sum() for leaf in jax.tree.leaves(f(x))), 0)):
        if g is not f and f in (in_loops, small_numbers, with_others):
            continue
        planned.clear()
        first, second = twice(g, (X,), options(tmp_path))
        assert len(planned) == 1
        assert first == second
        found = jax.tree.leaves(jstitch.jit(g, options=options(tmp_path))(X))
        for a, b in zip(found, jax.tree.leaves(jax.jit(g)(X)), strict=True):
            np.testing.assert_allclose(np.asarray(a, complex), np.asarray(b, complex), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in WORKLOADS]
)
def test_same_program_of_the_suite(name: str, tmp_path: Path, planned: list[str]) -> None:
    problem: Problem = WORKLOADS[name].problem(Size.L2)
    first, second = twice(problem.function, problem.args, options(tmp_path), donate_argnums=problem.donate)
    assert len(planned) <= 1  # none of 64-bit numbers, which this process has not
    assert first == second


def test_several_devices(tmp_path: Path, planned: list[str]) -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
    x = jax.device_put(X, NamedSharding(mesh, PartitionSpec("data")))
    wanted = options(tmp_path, tune="off")
    first, second = twice(norm, (x,), wanted)
    assert "jstitch" in first
    assert len(planned) == 1
    assert first == second
    found = jstitch.jit(norm, options=wanted)(x)
    np.testing.assert_allclose(found, jax.jit(norm)(X), rtol=1e-5, atol=1e-5)


def test_record_is_the_same(tmp_path: Path) -> None:
    records = []
    for _ in range(2):
        module(with_others, (X,), options(tmp_path))
        records.append(jstitch.last_report()[-1])
    assert records[0] == records[1]
    assert records[0].kernels


def test_nothing_stitched_is_kept_too(tmp_path: Path, planned: list[str]) -> None:
    for _ in range(2):
        module(lambda x: x @ x.T, (X,), options(tmp_path))
        assert jstitch.last_report()[-1].reason is not None
    assert len(planned) == 1


def scaled(by: float) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        return jnp.exp(x * by) + x.max(-1, keepdims=True)

    return f


def test_what_differs_is_planned(tmp_path: Path, planned: list[str]) -> None:
    wanted = options(tmp_path)
    again = lambda *args, **more: module(scaled(0.5), *args, **more)  # noqa: E731
    again((X,), wanted)
    for args, settings in [
        ((X[:32],), wanted),
        ((X.astype(jnp.bfloat16),), wanted),
        ((X,), options(tmp_path, planner="ilp")),
        ((X,), options(tmp_path, without=("columns",))),
        ((X,), options(tmp_path, arena_bytes=1 << 14)),
    ]:
        planned.clear()
        again(args, settings)
        assert planned == ["f"], settings
    planned.clear()
    module(scaled(0.25), (X,), wanted)
    module(scaled(0.5), (X,), wanted, donate_argnums=0)
    module(jax.vmap(scaled(0.5)), (X[None],), wanted)
    assert len(planned) == 3


def test_large_constants_are_part_of_the_key(tmp_path: Path, planned: list[str]) -> None:
    for table in (X + 1, X + 2):
        jax.clear_caches()
        found = jstitch.jit(lambda x, t=table: jnp.tanh(x) * t, options=options(tmp_path))(X)
        np.testing.assert_allclose(found, np.tanh(X) * table, rtol=1e-5, atol=1e-5)
    assert len(planned) == 2


def bumps(above: int, name: str = "f", body: str = "jnp.exp(x) + x.sum(-1, keepdims=True)") -> Any:
    """A function of a file, below so many empty lines."""
    names: dict[str, Any] = {"jnp": jnp}
    text = "\n" * above + f"def {name}(x):\n  return {body}"
    exec(compile(text, "model.py", "exec"), names)
    return names[name]


def test_lines_that_moved(tmp_path: Path, planned: list[str]) -> None:
    """An edit above a function: nothing is planned, and lines are the new ones."""
    ways = [(0, {}), (5, {}), (5, {"keep_plans": False})]
    first, second, anew = (module(bumps(n), (X,), options(tmp_path, **more), True) for n, more in ways)
    assert len(planned) == 2
    assert '"model.py":2:' in first
    assert second == anew
    assert second != first


def test_what_only_xla_knows_is_part_of_the_key(tmp_path: Path, planned: list[str]) -> None:
    def solve(x: Any, lower: bool) -> Any:
        a = norm(x)[:, :64] + 70 * jnp.eye(64)
        return norm(jax.lax.linalg.triangular_solve(a, x, left_side=True, lower=lower))

    for lower in (True, False, True):
        f = partial(solve, lower=lower)
        jax.clear_caches()
        found = jstitch.jit(f, options=options(tmp_path))(X)
        np.testing.assert_allclose(found, jax.jit(f)(X), rtol=1e-4, atol=1e-4)
    assert len(planned) == 2


def test_functions_are_part_of_the_key(tmp_path: Path, planned: list[str]) -> None:
    on_one = "jnp.exp(x) + x.sum(-1, keepdims=True)"
    on_two = "(jnp.exp(x) +\n   x.sum(-1, keepdims=True))"
    for f in (bumps(0), bumps(0, "g"), bumps(0, body=on_one), bumps(0, body=on_two)):
        module(f, (X,), options(tmp_path))
    assert planned == ["f", "g", "f"]


@pytest.mark.parametrize(
    "more",
    [
        {"keep_plans": False},
        {"verify": True},
        {"tune": "measure", "tune_seconds": 0.1},
        {"print_after": ("plan",)},
        {"dump_dir": "stages"},
    ],
    ids=str,
)
def test_who_looks_or_measures_sees_it_planned(
    more: dict[str, Any], tmp_path: Path, planned: list[str]
) -> None:
    if "dump_dir" in more:
        more = {"dump_dir": tmp_path / "stages"}
    module(norm, (X,), options(tmp_path))
    planned.clear()
    for _ in range(2):
        module(norm, (X,), options(tmp_path, **more))
    assert len(planned) >= 2


def test_explain_plans(tmp_path: Path, planned: list[str]) -> None:
    for _ in range(2):
        module(norm, (X,), options(tmp_path))
    planned.clear()
    assert "norm" in str(jstitch.explain(jstitch.jit(norm, options=options(tmp_path)))(X))
    assert planned


def entries(folder: Path) -> list[Path]:
    """Of decisions, in the folder of the kernels' machine code."""
    found = (folder / "kernels").glob("*.kernel")
    return [path for path in found if kept_call.LABEL.encode() in path.read_bytes()[:200]]


def test_one_entry_for_a_call(tmp_path: Path) -> None:
    twice(norm, (X,), options(tmp_path))
    (entry,) = entries(tmp_path)
    assert entry.stat().st_size < 1 << 14


def test_constants_take_no_room(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)  # 2 MB
    module(lambda x: jnp.tanh(x) * table + jnp.ones((512, 1024)), (table,), options(tmp_path))
    (entry,) = entries(tmp_path)
    assert entry.stat().st_size < 1 << 14


@pytest.mark.parametrize("damage", ["cut", "pickle", "class", "things"])
def test_damaged_entries_are_planned_anew(damage: str, tmp_path: Path, planned: list[str]) -> None:
    first = module(norm, (X,), options(tmp_path))
    (entry,) = entries(tmp_path)
    data = {
        "pickle": b"no zlib",
        "class": zlib.compress(pickle.dumps(os.system)),
        "things": zlib.compress(pickle.dumps((None, {}))),
    }.get(damage)
    if data is None:
        entry.write_bytes(entry.read_bytes()[:-9])
    else:
        KernelCache(entry.parent).put(entry.stem, data, kept_call.Label(kept_call.LABEL))
    told = pytest.warns(jstitch.JstitchWarning, match="damaged") if damage == "cut" else nullcontext()
    with told:
        assert module(norm, (X,), options(tmp_path)) == first
    assert len(planned) == 2
    assert module(norm, (X,), options(tmp_path)) == first  # and it was written anew
    assert len(planned) == 2


PROGRAM = """
import json, sys, numpy as np, jax, jax.numpy as jnp, jstitch
from jstitch.frontend import rewrite
planned, own = [], rewrite.rewrite_graph
rewrite.rewrite_graph = lambda *a, **k: (planned.append(a[2]), own(*a, **k))[1]
@jstitch.jit
def f(x, w):
    x = x - x.mean(-1, keepdims=True)
    return jax.nn.softmax(jnp.where(x > w, x, 0.1) @ jnp.ones((96, 96)) + w, -1)
x = np.linspace(-1, 1, 64 * 96, dtype=np.float32).reshape(64, 96)
y = f(x, x[0])
imported = [name for name in ("networkx", "numba") if name in sys.modules]
found = {"planned": len(planned), "kernels": jstitch.stitch_count(), "imported": imported}
print(json.dumps({**found, "sum": float(jnp.abs(y).sum())}))
"""


def in_process(folder: Path) -> str:
    (folder / "program.py").write_text(PROGRAM)
    around = {
        **os.environ,
        "JSTITCH_CACHE_DIR": str(folder),
        "JSTITCH_VERIFY": "0",
        "JSTITCH_KEEP_PLANS": "1",
    }
    command = [sys.executable, str(folder / "program.py")]
    return subprocess.run(command, env=around, check=True, capture_output=True, text=True).stdout


def test_another_process_plans_nothing(tmp_path: Path) -> None:
    first, second = (json.loads(in_process(tmp_path)) for _ in range(2))
    assert first["kernels"] == second["kernels"] > 0
    assert (first["planned"], second["planned"]) == (1, 0)
    assert second["imported"] == []
    assert first["sum"] == second["sum"]
    for path in {*(tmp_path / "kernels").glob("*.kernel")} - {*entries(tmp_path)}:
        path.unlink()
    third = json.loads(in_process(tmp_path))
    assert third["planned"] == 0
    assert third["imported"] == ["numba"]  # machine code that is lost is built again
    assert first["sum"] == third["sum"]


def test_threads(tmp_path: Path) -> None:
    fs = [scaled(0.1 * n) for n in (1, 2, 1, 2, 1, 2)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda f: jstitch.jit(f, options=options(tmp_path))(X), fs))
    for f, result in zip(fs, found, strict=True):
        np.testing.assert_allclose(result, jax.jit(f)(X), rtol=1e-5, atol=1e-5)
    assert len(entries(tmp_path)) == 2
