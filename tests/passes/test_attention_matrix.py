"""Attention in all its variants: found, and as close to float64 as `jax.jit`, forward and backward."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import jstitch
from jstitch.passes.fuse.find_chains import CHAIN
from tests.codegen.cuda.stitched import PROFILES, WHY_NO_PTX, interpreted, stitch
from tests.contexts import H200
from tests.passes.attention_variants import VARIANTS, Variant, close, gradient, make
from tests.passes.test_own_columns import graph_of
from tests.tf32 import as_tf32

QUICK = VARIANTS[::17]
AS_PTX = (*QUICK[1::2], *QUICK[2::4])  # all of bf16, some of f32
OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def _marked(variants: tuple[Variant, ...], quick: tuple[Variant, ...] = QUICK) -> list[Any]:
    """All of them, some in every run of the suite."""
    return [pytest.param(v, marks=() if v in quick else pytest.mark.slow, id=str(v)) for v in variants]


def test_the_matrix_is_large() -> None:
    assert len(set(VARIANTS)) >= 60


@pytest.mark.parametrize("variant", _marked(VARIANTS))
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "gradient"])
def test_on_this_machine(variant: Variant, backward: bool) -> None:
    f, args = make(variant)
    f = gradient(f) if backward else f
    jitted = jstitch.jit(f, options=OPTIONS)
    close(jitted, variant, backward)
    if not backward and variant.queries > 1:
        assert any(p.origin == CHAIN for p in jitted.plan(*args).patterns), jitted.explain(*args)


@pytest.mark.skipif(WHY_NO_PTX is not None, reason=str(WHY_NO_PTX))
@pytest.mark.parametrize("variant", _marked(VARIANTS, AS_PTX))
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "gradient"])
def test_as_ptx(variant: Variant, backward: bool) -> None:
    f, args = make(variant)
    f = gradient(f) if backward else f
    made = stitch(graph_of(f, args, H200), PROFILES["h200"])
    plain = as_tf32 if variant.dtype == "float32" else jax.jit
    close(lambda *args: made.run(args, interpreted), variant, backward, plain)
    found = sum(kernel.products for kernel in made.kernels)
    assert backward or variant.queries == 1 or found in (2, 4)  # rows may go in two parts
