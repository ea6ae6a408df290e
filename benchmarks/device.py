"""The device that benchmarks run on: the CPU, or the NVIDIA GPU that JAX finds.

Children (JAX takes most of a GPU's memory for its process) see it by JAX_PLATFORMS; this process never
starts a GPU itself, but asks `python -m benchmarks device` about it.
"""

from __future__ import annotations

import enum
import json
import os
import statistics
import subprocess
import sys
import time
from importlib import util
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp

from benchmarks.workload import Size

COPY_BYTES = {Size.L2: 8 << 20, Size.L3: 32 << 20, Size.DRAM: 1 << 30}
SAMPLES = 20
PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
ROOT = Path(__file__).resolve().parents[1]


class Device(enum.Enum):
    CPU = "cpu"
    CUDA = "cuda"


class NoGpuError(Exception):
    """There is no GPU here that JAX can use; the message says why and what to do."""


def use(device: Device) -> None:
    """Let children run on the device; JAX then leaves memory of a GPU to torch."""
    os.environ["JAX_PLATFORMS"] = device.value
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"


def describe_gpu() -> dict[str, Any]:
    """Name, compute capability and copy bandwidth by size, asked of a child. Raises NoGpuError."""
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks", "device"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": Device.CUDA.value},
        check=False,
    )
    lines = [line for line in child.stdout.splitlines() if line.startswith("{")]
    if child.returncode or not lines:
        reason = (child.stderr.strip().splitlines() or [f"exit status {child.returncode}"])[-1]
        raise NoGpuError(
            "no NVIDIA GPU that JAX can use was found, and nothing was measured\n"
            f"  found: {reason}\n"
            "  next: pip install 'jstitch[cuda]' on a machine with a GPU; `nvidia-smi` must list it"
        )
    found: dict[str, Any] = json.loads(lines[-1])
    return found


@click.command("device", hidden=True)
def device_command() -> None:
    """Print one JSON line about the first GPU (what `run --device cuda` asks a child)."""
    if not any(util.find_spec(name) for name in PLUGINS):
        raise click.ClickException("JAX's CUDA plugin is not installed")
    try:
        gpu: Any = jax.devices("cuda")[0]
    except (RuntimeError, AssertionError) as error:
        reason = f"JAX's CUDA plugin finds no driver or no GPU ({type(error).__name__}: {error})"
        raise click.ClickException(reason) from None
    copy = {size.value: copy_bandwidth(count) for size, count in COPY_BYTES.items()}
    print(json.dumps({"gpu": gpu.device_kind, "capability": gpu.compute_capability, "copy": copy}))


def copy_bandwidth(nbytes: int) -> float:
    """Bytes read and written per second by one kernel over two arrays of `nbytes` together."""
    x = jnp.zeros(nbytes // 8, jnp.float32)
    step = jax.jit(lambda x: x + 1)
    step(x).block_until_ready()
    samples = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        step(x).block_until_ready()
        samples.append(time.perf_counter() - start)
    return nbytes / statistics.median(samples)
