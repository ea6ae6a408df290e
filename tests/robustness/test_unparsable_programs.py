"""Text and bytes that are no StableHLO module: a clear ValueError, or a program that is left to XLA."""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import make_context, module_bytes, parse_module
from jstitch.ir.types import OpaqueType

TEXT = jax.jit(lambda x: jnp.tanh(x) + 1).lower(np.ones(4, np.float32)).as_text()
BYTECODE = module_bytes(parse_module(TEXT))
PORTABLE = bytes(jax.export.export(jax.jit(jnp.tanh))(np.ones(4, np.float32)).mlir_module_serialized)


def test_the_good_ones_parse() -> None:
    for source in (TEXT, TEXT.encode(), BYTECODE, PORTABLE):
        assert len(import_module(parse_module(source)).inputs) == 1


@pytest.mark.parametrize(
    "source",
    [
        "this is not MLIR",
        "module {",
        TEXT[: len(TEXT) // 2],
        TEXT.replace("stablehlo.tanh", "stablehlo.no_such_op"),
        TEXT.replace("stablehlo.tanh", "other_dialect.tanh"),
        TEXT.replace("tensor<4xf32>", "tensor<5xf32>", 1),
        "func.func @main() { return } }",
        "\x00\x01\x02",
        BYTECODE[: len(BYTECODE) // 2],
        BYTECODE[:10],
        PORTABLE[:-20],
        b"ML\xefR",
        b"ML\xefRgarbage" * 10,
        b"\xff\xfe\x00 not utf-8",
    ],
    ids=lambda s: repr(s[:12]),
)
def test_bad_sources_are_value_errors(source: str | bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="Expected a StableHLO module"):
        parse_module(source)


@pytest.mark.parametrize("source", ["", b"", "module {}"], ids=repr)
def test_a_module_without_a_program(source: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of the parser or of the importer
        import_module(parse_module(source))


def test_text_with_one_wrong_byte_is_an_error_or_a_module() -> None:
    """Not bytecode: MLIR's reader trusts it, and ends the process on some damage."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        data = bytearray(TEXT.encode())
        data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
        with contextlib.suppress(ValueError):
            parse_module(bytes(data))


def test_dynamic_shapes_are_never_looked_into() -> None:
    text = """
    func.func public @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %0 = stablehlo.tanh %x : tensor<?x4xf32>
      %1 = stablehlo.add %0, %x : tensor<?x4xf32>
      return %1 : tensor<?x4xf32>
    }"""
    graph = import_module(parse_module(text, make_context()))
    assert all(isinstance(v.type, OpaqueType) for v in (*graph.inputs, *graph.outputs))
    assert all(op.source is not None for op in graph.ops)
