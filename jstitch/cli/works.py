"""What `jstitch doctor` tries out: kernels on the CPU and on a GPU, compiling for one, drawing."""

from __future__ import annotations

import shutil
import tempfile

import jax
import jax.numpy as jnp
import pydot

from jstitch.analysis import analyze
from jstitch.cli.finding import Finding, Status, is_installed
from jstitch.cli.self_check import SOFTMAX, check_program, options_of_check
from jstitch.inspection.subject import observe_function


def cpu_kernels(name: str) -> Finding:
    return check_program(SOFTMAX, "cpu")(name)


def cuda_kernels(name: str) -> Finding:
    try:
        jax.devices("cuda")
    except RuntimeError:
        return Finding(name, "none", "JAX has no CUDA device here")
    return check_program(SOFTMAX, "cuda")(name)


def cuda_lowering(name: str) -> Finding:
    if not is_installed("numba_cuda"):
        return Finding(name, "none", "numba-cuda is not installed", "pip install 'jstitch[analyze]'")
    shape = jax.ShapeDtypeStruct((64, 96), jnp.float32)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="jstitch-doctor-") as folder:
        calls = observe_function(jax.nn.softmax, (shape,), {}, options_of_check(folder, "h200"))
    kernels = sum(len(call.built) for call in calls)
    status: Status = "ok" if kernels else "fail"
    return Finding(name, status, f"{kernels} kernel for an H200 that need not be here")


def analysis(name: str) -> Finding:
    if not any(is_installed(f"jax_plugins.xla_cuda{n}") for n in (12, 13)):
        return Finding(name, "none", "JAX's CUDA plugin is not installed", "pip install 'jstitch[analyze]'")
    shape = jax.ShapeDtypeStruct((64, 96), jnp.float32)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="jstitch-doctor-") as folder:
        analyze(jax.nn.softmax, shape, target="h200", options=options_of_check(folder, None))
    return Finding(name, "ok", "XLA:GPU compiled a program for an H200 that need not be here")


def pictures(name: str) -> Finding:
    pydot.graph_from_dot_data("digraph { a -> b }")
    if shutil.which("dot") is None:
        return Finding(
            name, "none", "Graphviz's `dot` is not on the PATH", "install graphviz to draw --emit dot"
        )
    return Finding(name, "ok", str(shutil.which("dot")))
