"""Bytes and operations that kernels say of themselves, against what can be counted by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.ir.scope import common_scope

EVERYTHING = jstitch.CompileOptions(tune="off", strict=True)
X, TABLE, ROWS = np.ones((64, 96), np.float32), np.ones((5000, 96), np.float32), np.arange(64, dtype=np.int32)


def said(f: Callable[..., Any], *args: Any) -> dict[str, int]:
    """Of the only kernel of f."""
    text = jstitch.jit(f, options=EVERYTHING).lower(*args).as_text()
    found = re.findall(r'jstitch\.(bytes|flops|launches) = "(\d+)"', text)
    assert len(found) == 3
    return {name: int(value) for name, value in found}


def test_a_softmax() -> None:
    found = said(lambda x: jax.nn.softmax(x, -1), X)
    assert found["bytes"] == 2 * X.nbytes
    # The maximum, the difference, the exponential, the sum, the quotient.
    assert found["flops"] == (1 + 1 + 10 + 1 + 1) * X.size


def test_of_a_table_only_what_is_gathered_counts() -> None:
    found = said(lambda table, rows: jnp.tanh(table[rows] * 2), TABLE, ROWS)
    assert 2 * X.nbytes <= found["bytes"] <= 2 * X.nbytes + 4 * ROWS.nbytes


def test_a_loop_counts_every_turn() -> None:
    def turns(count: int) -> dict[str, int]:
        def turn(state: Any, x: Any) -> Any:
            return state * 0.5 + x, state

        return said(lambda xs: jax.lax.scan(turn, jnp.zeros(96), xs)[1], np.ones((count, 96), np.float32))

    short, long = turns(32), turns(64)
    assert long["flops"] == 2 * short["flops"]
    assert short["flops"] >= 2 * 32 * 96


def test_empty_arrays_are_no_work() -> None:
    text = jstitch.jit(lambda x: jnp.tanh(x) * 2 + 1, options=EVERYTHING).lower(np.ones((0, 4), np.float32))
    assert "jstitch.flops" not in text.as_text() or 'jstitch.flops = "0"' in text.as_text()


@pytest.mark.parametrize(
    ("scopes", "common"),
    [
        (["jit(f)/mlp/act", "jit(f)/mlp"], "jit(f)/mlp"),
        (["jit(f)/jvp(mlp)/act", "jit(f)/transpose(jvp(mlp))/act"], "jit(f)/mlp/act"),
        (["jit(f)/transpose(jvp(mlp))/act#3", ""], "jit(f)/transpose(jvp(mlp))/act"),
        (["jit(f)/jvp()/a", "jit(f)/transpose(jvp())/b"], "jit(f)"),
        (["jit(f)/ab", "jit(f)/ac"], "jit(f)"),
        (["jit(f)", "jit(g)"], ""),
        ([], ""),
    ],
)
def test_common_scopes(scopes: list[str], common: str) -> None:
    assert common_scope(scopes) == common
