"""The cost of reads across the direction in which threads lie next to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.frontend.importer import import_module
from jstitch.passes.base.plan import FusionPattern, make_pattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost.cost_model import kernel_cost
from jstitch.passes.fuse.gate import judge
from jstitch.passes.pipeline import run
from tests.contexts import CPU, CPU_PROFILE, H200_PROFILE

BLIND = replace(H200_PROFILE, machine=replace(H200_PROFILE.machine, sector_bytes=0))
SHAPE = (512, 3000)
ELEMENTS = 512 * 3000


def norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def pattern_of(f: Callable[..., Any], *shape: int) -> FusionPattern:
    x = np.broadcast_to(np.float32(0), shape)
    graph = run(import_module(jax.jit(f).lower(x).compiler_ir("stablehlo")), CPU)
    return make_pattern(graph, graph.ops, "test")


def nbytes(chosen: Profile, f: Callable[..., Any], *shape: int) -> float:
    return kernel_cost(pattern_of(f, *shape), chosen).nbytes


TURNED: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "rows of a transpose": (lambda x: norm(x.T), SHAPE),
    "in a batch": (lambda x: norm(jnp.exp(x).swapaxes(1, 2)), (8, 512, 375)),
    "transposed three times": (lambda x: norm(jnp.exp(jnp.exp(jnp.exp(x).T).T).T), SHAPE),
}
STRAIGHT: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "rows": (norm, SHAPE),
    "in tiles": (lambda x: jnp.exp(x).T + 1, SHAPE),
    "there and back": (lambda x: norm(jnp.exp(jnp.exp(x).T).T), SHAPE),
    "heads": (lambda x: norm(jnp.exp(x).transpose(0, 2, 1, 3)), (2, 75, 8, 64)),
}


@pytest.mark.parametrize("case", TURNED)
def test_a_sector_for_each_element(case: str) -> None:
    f, shape = TURNED[case]
    assert nbytes(H200_PROFILE, f, *shape) == nbytes(BLIND, f, *shape) + ELEMENTS * (32 - 4)


@pytest.mark.parametrize("case", STRAIGHT)
def test_whole_sectors(case: str) -> None:
    f, shape = STRAIGHT[case]
    assert nbytes(H200_PROFILE, f, *shape) == nbytes(BLIND, f, *shape)


@pytest.mark.parametrize("case", [*TURNED, *STRAIGHT])
def test_the_cpu_has_no_sectors(case: str) -> None:
    f, shape = (TURNED | STRAIGHT)[case]
    with_sectors = replace(CPU_PROFILE, machine=replace(CPU_PROFILE.machine, sector_bytes=32))
    assert CPU_PROFILE.machine.sector_bytes == 0
    assert nbytes(CPU_PROFILE, f, *shape) <= nbytes(with_sectors, f, *shape)


def test_the_gate_leaves_turned_rows_to_xla() -> None:
    turned, straight = (pattern_of(f, 8192, 8192) for f in (lambda x: norm(x.T), norm))
    assert not judge(turned, H200_PROFILE).pays
    assert judge(straight, H200_PROFILE).pays
