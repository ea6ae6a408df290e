"""Random loops give what `jax.jit` gives, and come as near to float64 as that."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jstitch
from jstitch.passes.base.profile import Profile
from jstitch.passes.fuse.find_recurrences import find_recurrences
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from tests.contexts import CPU, H200, on
from tests.fuzz.loops import Loop, draw
from tests.passes.test_own_columns import graph_of

FEW, MANY = 8, 2000
OPTIONS = jstitch.CompileOptions(strict=True, verify=True)
TOLERANCE = {"float32": 2e-5, "bfloat16": 4e-2, "float16": 4e-3, "int32": 0.0}


@pytest.mark.parametrize(
    "seed", [*range(FEW), *(pytest.param(n, marks=pytest.mark.slow) for n in range(FEW, MANY))]
)
def test_a_drawn_loop(seed: int) -> None:
    loop = draw(seed)
    arguments = [jax.numpy.asarray(x, loop.dtype) for x in loop.arguments]
    wanted = jax.tree.leaves(jax.jit(loop.function)(*arguments))
    found = jax.tree.leaves(jstitch.jit(loop.function, options=OPTIONS)(*arguments))
    exact = wanted if loop.dtype == "int32" else _in_float64(loop, arguments)
    for ours, theirs, best in zip(found, wanted, exact, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), loop.about
        off, allowed = _distance(ours, best), _distance(theirs, best)
        assert off <= 4 * allowed + TOLERANCE[loop.dtype] * (1 + _size(best)), loop.about


@pytest.mark.parametrize("profile", [CPU.profile, H200.profile], ids=["cpu", "h200"])
@pytest.mark.parametrize("seed", [*range(FEW), 379, 508])
def test_the_kernel_of_a_drawn_loop_keeps_its_order(seed: int, profile: Profile) -> None:
    """Read, written and bounded as it should be, on targets that order their loops in other ways, too."""
    loop, context = draw(seed), on(profile, tune="off")
    arguments = [np.asarray(x).astype(loop.dtype) for x in loop.arguments]
    graph = graph_of(loop.function, arguments, context)
    for pattern in find_recurrences(graph, context).patterns:
        kernel = lower_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, profile)
        assert check_kernel(kernel) == (), loop.about


def _in_float64(loop: Loop, arguments: list[Any]) -> list[Any]:
    with jax.enable_x64(True):
        wide = [_wide(x) for x in arguments]
        return [np.asarray(x) for x in jax.tree.leaves(jax.jit(loop.function)(*wide))]


def _distance(a: Any, b: Any) -> float:
    return float(np.max(np.abs(_wide(a) - _wide(b)), initial=0.0))


def _size(a: Any) -> float:
    return float(np.max(np.abs(_wide(a)), initial=0.0))


def _wide(a: Any) -> np.ndarray:
    return np.asarray(a).astype(np.float64)
