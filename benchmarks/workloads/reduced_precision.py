"""bfloat16: layer norm, RMS norm, rope and GELU."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.workload import Problem, Workload, normal, sizes
from benchmarks.workloads.fused import rope
from benchmarks.workloads.norms import layer_norm, rms_norm

BF16 = jnp.bfloat16


def layer_norm_bf16(*shape: int) -> Problem:
    vector = shape[-1:]
    args = (normal(shape, dtype=BF16), normal(vector, 1, dtype=BF16), normal(vector, 2, dtype=BF16))
    return Problem(layer_norm, args)


def rms_norm_bf16(*shape: int) -> Problem:
    return Problem(rms_norm, (normal(shape, dtype=BF16), normal(shape[-1:], 1, dtype=BF16)))


def rope_bf16(batch: int, length: int, heads: int, width: int) -> Problem:
    return rope(batch, length, heads, width, BF16)


def gelu_bf16(*shape: int) -> Problem:
    return Problem(jax.nn.gelu, (normal(shape, scale=2, dtype=BF16),))


ROWS = sizes((128, 1024), (2560, 1024), (32768, 1024))
HEADS = sizes((1, 256, 8, 64), (2, 2048, 8, 64), (8, 4096, 8, 64))

WORKLOADS = (
    Workload("layer_norm_bf16", layer_norm_bf16, ROWS),
    Workload("rms_norm_bf16", rms_norm_bf16, ROWS),
    Workload("rope_bf16", rope_bf16, HEADS),
    Workload("gelu_bf16", gelu_bf16, ROWS),
)
