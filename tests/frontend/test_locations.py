"""Ops carry the user's source line: constants and simplified ops too, and never the frontend's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jstitch
from jstitch.frontend.locations import describe_location, make_location
from jstitch.frontend.mlir import ir, parse_module


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


def test_frames_of_the_frontend_are_skipped() -> None:
    ours = str(Path(jstitch.__file__).parent / "frontend" / "primitive.py")
    with parse_module("module {}").context:
        bound, user = make_location(f"{ours}:3 (bind)"), make_location("model.py:7 (loss)")
        assert describe_location(ir.Location.callsite(bound, [user])) == "model.py:7 (loss)"
        assert describe_location(ir.Location.callsite(user, [bound])) == "model.py:7 (loss)"
        assert describe_location(ir.Location.fused([bound, user])) == "model.py:7 (loss)"
        assert describe_location(bound) == ""
        assert describe_location(ir.Location.file(ours, 3, 0)) == ""
