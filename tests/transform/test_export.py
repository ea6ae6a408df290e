"""`jax.export` round trip: forward and gradient, saved here, loaded and run in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from transform_support import EVERYTHING, assert_stitched

import jstitch

X = np.random.default_rng(0).standard_normal((6, 32)).astype(np.float32)
W = np.random.default_rng(1).standard_normal(32).astype(np.float32)

KERNELS = EVERYTHING.replace(export_kernels=True)

LOAD = """
import sys
import jax, jstitch
import numpy as np
folder = sys.argv[1]
x, w = np.load(f"{folder}/x.npy"), np.load(f"{folder}/w.npy")
program = jax.export.deserialize(open(f"{folder}/forward.bin", "rb").read())
backward = jax.export.deserialize(open(f"{folder}/backward.bin", "rb").read())
np.save(f"{folder}/y.npy", program.call(x, w))
dx, dw = backward.call(x, w)
np.savez(f"{folder}/grad.npz", dx=dx, dw=dw)
"""


def norm(x: Any, w: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w


def _gradient(f: Any) -> Any:
    return jax.jit(jax.grad(lambda x, w: jnp.sum(f(x, w) * jnp.cos(x)), (0, 1)))


def test_round_trip_in_a_new_process(tmp_path: Path) -> None:
    since = jstitch.record_count()
    programs = {
        "forward": jstitch.jit(norm, options=KERNELS),
        "backward": _gradient(jstitch.stitch(norm, KERNELS)),
    }
    for name, program in programs.items():
        exported = export.export(program, disabled_checks=jstitch.export_checks())(X, W)
        assert "@jstitch" in exported.mlir_module()
        (tmp_path / f"{name}.bin").write_bytes(exported.serialize())
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "w.npy", W)
    # An own, empty kernel cache: the programs must carry all they need.
    settings = {**os.environ, "JSTITCH_CACHE_DIR": str(tmp_path / "cache")}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", LOAD, tmp_path], check=True, cwd=root, env=settings, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), jax.jit(norm)(X, W), rtol=2e-5, atol=2e-6)
    with np.load(tmp_path / "grad.npz") as found:
        for got, want in zip((found["dx"], found["dw"]), _gradient(norm)(X, W), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert_stitched(since, backward=True)


@pytest.mark.skipif(util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed: no PTX")
def test_programs_for_gpus_are_exported() -> None:
    """Kernels, and memory that a loop starts with unset."""

    def f(x: Any) -> Any:
        return lax.scan(lambda s, r: (norm(s, r), jnp.tanh(s)), x[0], x)

    program = jax.jit(
        jstitch.stitch(
            f,
            jstitch.CompileOptions(target="h200", tune="off", export_kernels=True, without=("recurrences",)),
        )
    )
    made = export.export(program, platforms=["cuda"], disabled_checks=jstitch.export_checks())(X)
    for target in ("@__gpu$xla.gpu.ptx", "@AllocateBuffer"):
        assert target in made.mlir_module()
    assert export.deserialize(made.serialize()).platforms == ("cuda",)


@pytest.mark.parametrize("options", [EVERYTHING, KERNELS], ids=["portable", "kernels"])
def test_vjp_of_an_exported_program(options: jstitch.CompileOptions) -> None:
    f = jstitch.stitch(norm, options)
    checks = jstitch.export_checks() if options.export_kernels else ()
    exported = export.export(jax.jit(f), disabled_checks=checks)(X, W)
    restored = export.deserialize(exported.serialize(vjp_order=1))
    found = _gradient(restored.call)(X, W)
    for got, want in zip(found, _gradient(norm)(X, W), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("platforms", [None, ["cpu", "cuda"], ["tpu"]], ids=str)
def test_the_module_is_that_of_jax_jit(platforms: list[str] | None) -> None:
    """By default: no call of ours, no check to disable, no platform that cannot be."""
    since = jstitch.record_count()
    modules = [
        export.export(jit(norm), platforms=platforms)(X, W).mlir_module()
        for jit in (jax.jit, lambda f: jstitch.jit(f, options=EVERYTHING))
    ]
    plain, ours = ([line.partition(" loc(")[0] for line in text.splitlines()] for text in modules)
    assert [line for line in ours if not line.startswith("#")] == [
        line for line in plain if not line.startswith("#")
    ]
    [record] = jstitch.last_report(since)
    assert record.kernels == 0
    assert record.reason is not None
    assert "export_kernels=True" in record.reason


def test_kernels_are_exported_for_several_platforms() -> None:
    """Each platform's own, or its own operations."""
    f = jstitch.jit(norm, options=KERNELS)
    exported = export.export(f, platforms=["cpu", "tpu"], disabled_checks=jstitch.export_checks())(X, W)
    assert "@jstitch" in exported.mlir_module()
    np.testing.assert_allclose(exported.call(X, W), jax.jit(norm)(X, W), rtol=2e-5, atol=2e-6)
