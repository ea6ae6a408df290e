"""`jstitch.analyze` with XLA:GPU's own compiler and no GPU: XLA's known counts, and ours."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from benchmarks.workload import Size
from benchmarks.workloads import recurrent
from jstitch.analysis.analyze import kernel_traffic
from jstitch.device_spec import SPECS
from jstitch.errors import OptionError
from jstitch.runtime.report import Record
from jstitch.xla import compile as compile_for_device
from jstitch.xla.compile import AnalysisError
from jstitch.xla.traffic import Traffic
from tests.analysis.programs import CASES, SLOW, WEIGHTS, Case, shape

needs_plugin = pytest.mark.skipif(
    util.find_spec("jax_cuda13_plugin") is None, reason="JAX's CUDA plugin is not installed: jstitch[analyze]"
)


def analyze(case: Case) -> jstitch.Analysis:
    return jstitch.analyze(jax.jit(case.function, donate_argnums=case.donate), *case.args)


def check(case: Case) -> None:
    found = analyze(case)
    plain, ours = found.plain, found.stitched
    least, most = case.launches
    assert least <= plain.memory_launches <= most
    least_moved, most_moved = case.moved
    assert least_moved <= plain.bytes_moved / case.least <= most_moved
    if case.goal is not None:
        assert ours.memory_launches <= case.goal[0]
        assert ours.bytes_moved / case.least <= case.goal[1]
        assert found.ratio >= 0.99


BEFORE_OTHERS = """
import os, sys, warnings
import jax, jax.numpy as jnp
import jstitch
warnings.simplefilter("error")
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
for _ in range(2):
    jstitch.analyze(jnp.tanh, jax.ShapeDtypeStruct((64, 64), "float32"), target="h200")
def triple(x):
    return x * 3
jax.jit(triple).lower(jax.ShapeDtypeStruct((7,), "float32")).compile()
print(*(name.partition("-")[0] for name in sorted(os.listdir(sys.argv[1])) if name.endswith("-cache")))
"""


@needs_plugin
def test_jax_keeps_its_compilation_cache_and_nothing_of_ours(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", BEFORE_OTHERS, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.returncode) == ("jit_triple\n", 0), found.stderr


@needs_plugin
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_launches_and_bytes(case: Case) -> None:
    check(case)


@needs_plugin
@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=lambda case: case.name)
def test_launches_and_bytes_of_more_programs(case: Case) -> None:
    check(case)


@needs_plugin
def test_loops_count_by_their_trips_and_products_apart() -> None:
    def cell(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(h @ x)
        return h, h

    def scan(h: jax.Array, xs: jax.Array) -> Any:
        return jax.lax.scan(cell, h, xs)

    short, long = (jstitch.analyze(scan, shape(64, 64), shape(n, 64, 64)).plain for n in (10, 110))
    assert long.gemm_launches - short.gemm_launches == 100
    assert (long.memory_launches - short.memory_launches) % 100 == 0
    assert long.memory_launches - short.memory_launches >= 200  # tanh and the write of a row, at least
    per_turn = (long.bytes_written - short.bytes_written) / 100
    assert per_turn < 10 * 64 * 64 * 4  # a row is written in place, not the whole result


@needs_plugin
@pytest.mark.parametrize("layer", ["lstm_scan", "gru_scan"])
def test_recurrent_layers_take_few_launches_and_less_memory_traffic(layer: str) -> None:
    (problem,) = (w.problem(Size.L3) for w in recurrent.WORKLOADS if w.name == layer)
    found = jstitch.analyze(problem.function, *problem.args)
    plain, ours = found.plain, found.stitched
    assert ours.memory_launches <= 0.4 * plain.memory_launches
    assert ours.bytes_moved <= 0.9 * plain.bytes_moved


@needs_plugin
@pytest.mark.parametrize(("heads", "tokens", "width"), [(12, 256, 64), (16, 256, 80), (1, 1024, 64)])
def test_attention_of_half_floats_is_one_launch(heads: int, tokens: int, width: int) -> None:
    """Each operand moves once; XLA writes the scores, and reads them again."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / width**0.5
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)

    args = [jax.ShapeDtypeStruct((heads, tokens, width), jnp.bfloat16)] * 3
    found = jstitch.analyze(attention, *args)
    assert (found.plain.launches, found.stitched.launches) == (3, 1)
    assert found.stitched.all_bytes == 4 * heads * tokens * width * 2
    assert found.plain.all_bytes > 2 * found.stitched.all_bytes


@needs_plugin
def test_arguments_may_be_arrays_scalars_keys_static_and_donated() -> None:
    def step(w: dict[str, jax.Array], times: int, key: jax.Array, rate: float) -> Any:
        return {name: v * times + rate * jax.random.normal(key, v.shape) for name, v in w.items()}

    args = ({"a": jnp.ones((64, 128)), "b": np.ones(128, np.float32)}, 3, jax.random.key(0), 0.1)
    jitted = jax.jit(step, static_argnums=1, donate_argnums=0)
    found = jstitch.analyze(jitted, *args)
    assert found.name == "step"
    assert found.plain.launches >= 1
    assert not args[0]["a"].is_deleted()  # type: ignore[index, union-attr]
    same = jstitch.analyze(jstitch.jit(step, static_argnums=1, donate_argnums=0), *args)
    assert same.plain == found.plain


@needs_plugin
def test_a_donated_argument_saves_the_copy() -> None:
    def update(x: jax.Array, row: jax.Array) -> jax.Array:
        return x.at[3].set(row)

    kept = jstitch.analyze(update, shape(1000, 256), shape(256)).plain
    given = jstitch.analyze(jax.jit(update, donate_argnums=0), shape(1000, 256), shape(256)).plain
    assert kept.bytes_moved > 2_000_000
    assert given.bytes_moved < 10_000


@needs_plugin
def test_a_function_without_arguments() -> None:
    assert jstitch.analyze(lambda: jnp.arange(1024.0) * 2).plain.bytes_written == 4096


@needs_plugin
def test_a_loop_of_unknown_length_is_said() -> None:
    found = jstitch.analyze(
        lambda x: jax.lax.while_loop(lambda s: s.sum() < 10, lambda s: s * 2, x), shape(8)
    )
    assert found.plain.unknown_loops
    assert "trip count unknown, counted once" in str(found)


@needs_plugin
def test_it_prints() -> None:
    found = jstitch.analyze(jax.nn.softmax, shape(512, 50257), target="a100")
    text = str(found)
    assert "softmax on NVIDIA A100" in text
    assert "memory-intensive" in text
    assert f"{found.ratio:.2f}x" in text
    assert "input_reduce_fusion" in str(found.plain.table())


@needs_plugin
@pytest.mark.parametrize("target", [name for name in SPECS if name != "v100"])
def test_other_devices(target: str) -> None:
    """(Not sm_70: CUDA 13's assembler has dropped it.)"""
    assert jstitch.analyze(lambda x: x * 2, shape(1024), target=target).plain.launches == 1


@needs_plugin
def test_jax_keeps_its_devices() -> None:
    before = jax.devices()
    jstitch.analyze(lambda x: x * 2, shape(8))
    assert jax.devices() == before
    assert jax.default_backend() == before[0].platform


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(OptionError, match="h200"):
        jstitch.analyze(lambda x: x, shape(8), target="mi300")


def test_a_missing_plugin_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_topology(spec: object, count: int) -> None:
        raise NotImplementedError("topology not implemented for cuda")

    def no_module(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(compile_for_device, "_topology", no_topology)
    monkeypatch.setattr(importlib, "import_module", no_module)
    with pytest.raises(AnalysisError, match=r"pip install 'jstitch\[analyze\]'"):
        jstitch.analyze(lambda x: x, shape(8))


def test_bytes_of_kernels_come_from_the_records() -> None:
    records = (Record("f", 1, None, {"bytes": {"k_phase0": (8, 4)}}), Record("g", 0, "why"))
    assert kernel_traffic(records) == {"k_phase0": Traffic(8, 4)}


def test_least_bytes() -> None:
    assert CASES[0].least == 2 * 8192 * 1024 * 4 + 2 * 1024 * 4
    assert sum(w.size for w in WEIGHTS.values()) == 2 * 256 * 1024 + 1024
