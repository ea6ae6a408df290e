"""Ops carry the user's source line: constants and simplified ops too, and never the frontend's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jstitch


def scaled(x: Any) -> Any:
    y = jnp.where(x > 0, x, 3.0)
    return y / y.sum(-1, keepdims=True)


def dumped(folder: Path, f: Any) -> list[str]:
    """The ops of all dumped graphs, as text."""
    options = jstitch.CompileOptions(tune="off", strict=True, dump_dir=str(folder))
    x = jnp.ones((8, 4))
    jax.jit(f(jstitch.stitch(scaled, options=options)))(x)
    texts = [path.read_text() for path in folder.rglob("*_c*.txt")]  # canonicalize, cse
    lines = [line for text in texts for line in text.splitlines() if " = stablehlo." in line]
    assert lines
    return lines


@pytest.mark.parametrize("f", [lambda g: g, lambda g: jax.grad(lambda x: g(x).sum())], ids=["f", "grad"])
def test_every_op_has_a_line_of_the_user(tmp_path: Path, f: Any) -> None:
    for line in dumped(tmp_path, f):
        where = line.rpartition("  // ")[2]
        assert where.startswith(f"{__file__}:"), line


def test_locations_are_the_users_alone() -> None:
    """Every op's, behind the kernel's; no frame of ours between the user's, no scope but `jax.jit`'s."""
    f = jstitch.jit(lambda x: jnp.sin(x) / 3, options=jstitch.CompileOptions(tune="off", strict=True))
    text = f.lower(jnp.ones((8, 8))).as_text(debug_info=True)
    assert "stablehlo.custom_call @jstitch" in text
    for scope in ("jit(<lambda>)/sin", "jit(<lambda>)/div"):
        assert f'"{scope}"' in text
    assert 'jstitch.ops = "stablehlo.sine, stablehlo.constant, stablehlo.divide"' in text
    assert str(Path(jstitch.__file__).parent) not in text
