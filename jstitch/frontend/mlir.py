"""The one import of jaxlib's MLIR bindings: core IR and the StableHLO, CHLO, Shardy and func dialects.

module = parse_module(text_or_bytes)
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo

__all__ = [
    "chlo",
    "func",
    "ir",
    "make_context",
    "module_bytes",
    "parse_module",
    "print_ops",
    "sdy",
    "stablehlo",
    "walk",
]

_PORTABLE = b"ML\xefR"


def make_context() -> ir.Context:
    """A context with every dialect that JAX itself emits."""
    return jax_mlir.make_ir_context()


def parse_module(source: str | bytes, context: ir.Context | None = None) -> ir.Module:
    """Parse StableHLO text, MLIR bytecode or a portable StableHLO artifact.

    Raises ValueError, with MLIR's own diagnostic, when the source does not parse or verify. Bytes must come
    from a writer that is trusted: MLIR ends the process on some bytecode that was altered.
    """
    context = context or make_context()
    try:
        with context, ir.Location.unknown():
            return _parse(source, context)
    except (ir.MLIRError, ValueError, UnicodeDecodeError) as error:
        raise ValueError(
            f"Expected a StableHLO module (text, MLIR bytecode or a portable artifact), found"
            f" {_describe(source)}: {error}. Print one with `jax.jit(f).lower(*args).as_text()`."
        ) from error


def _parse(source: str | bytes, context: ir.Context) -> ir.Module:
    if isinstance(source, bytes) and source.startswith(_PORTABLE):
        # MLIR also reads a portable artifact, but leaves its versioned ops (vhlo) as they are.
        try:
            return stablehlo.deserialize_portable_artifact(context, source)
        except (ir.MLIRError, ValueError):
            return ir.Module.parse(source)
    return ir.Module.parse(source.decode() if isinstance(source, bytes) else source)


def _describe(source: str | bytes) -> str:
    kind = "characters of text" if isinstance(source, str) else "bytes"
    return f"{len(source)} {kind} starting {source[:40]!r}"


def print_ops(ops: Sequence[Any]) -> str:
    """The text of some operations of one block, numbered once: `str` numbers the whole function for each."""
    if not ops:
        return ""
    state, text = ir.AsmState(ops[0].operation.parent), io.StringIO()
    for op in ops:
        op.operation.print(state, file=text)
        text.write("\n")
    return text.getvalue().rstrip("\n")


def module_bytes(module: ir.Module) -> bytes:
    """The module as MLIR bytecode."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def walk(op: ir.Operation) -> list[ir.Operation]:
    """The operation and all that are inside it."""
    found: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        found.append(inner)
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return found
