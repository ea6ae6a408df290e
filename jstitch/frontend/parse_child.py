"""A program that parses a StableHLO module under limits: `safe_parse` starts it, nobody imports it.

standard input: text, MLIR bytecode or a portable artifact -> standard output: the module as MLIR bytecode, or
with status 3 what is wrong with it. MLIR ends the process on some input; then this is the process.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, mpmd, sdy, stablehlo

try:
    import resource
except ModuleNotFoundError:  # Windows: the parent's time limit remains
    resource = None  # type: ignore[assignment]

PORTABLE = b"ML\xefR"
BAD_INPUT = 3
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_NAME = re.compile(r'(?:@|\bloc\()"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-9A-F]{2}|.)")
STACK = 2 << 20  # bytes; the parent's is larger, so what is parsed here is parsed there
LONGEST = 4000  # characters of a message


def main(memory: int, seconds: int) -> int:
    """memory: bytes of address space, seconds: of processor time."""
    if resource is not None:
        for what, limit in (
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_STACK, STACK),
            (resource.RLIMIT_CORE, 0),
        ):
            _, most = resource.getrlimit(what)
            with contextlib.suppress(ValueError, OSError):  # macOS refuses some; the others remain
                resource.setrlimit(what, (limit if most < 0 else min(limit, most), most))
    try:
        module = _parse(sys.stdin.buffer.read(), _context())
        _check_names(module.operation.get_asm(enable_debug_info=True, large_elements_limit=8))
        code = _bytecode(module)
        _parse(code, _context())  # what is read there must not end the parent either
    except (ir.MLIRError, RuntimeError, ValueError) as error:
        sys.stdout.write(str(error)[:LONGEST])
        return BAD_INPUT
    except MemoryError:
        sys.stdout.write(f"parsing it takes more than {memory:,} bytes of memory")
        return BAD_INPUT
    sys.stdout.buffer.write(code)
    return 0


def _check_names(text: str) -> None:
    """Raises ValueError where a symbol or location is not UTF-8: to ask for one would end the process."""
    for line in text.splitlines():
        for name in (_STRING if line.startswith("#loc") else _NAME).findall(line):
            _ESCAPE.sub(_byte, name.encode()).decode()


def _byte(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)]) if len(escape[1]) == 2 else escape[1]


def _context() -> ir.Context:
    """With the dialects of JAX's own contexts, which cannot be had without importing all of JAX."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    context.enable_multithreading(False)
    for register in (
        sdy.register_dialect,
        mpmd.register_dialect,
        mhlo.register_mhlo_dialect,
        chlo.register_dialect,
        stablehlo.register_dialect,
    ):
        register(context)
    return context


def _parse(source: bytes, context: ir.Context) -> ir.Module:
    with context, ir.Location.unknown():
        if source.startswith(PORTABLE):
            # MLIR also reads a portable artifact, but leaves its versioned ops (vhlo) as they are.
            try:
                return stablehlo.deserialize_portable_artifact(context, source)
            except (ir.MLIRError, ValueError):
                return ir.Module.parse(source)
        return ir.Module.parse(source.decode())


def _bytecode(module: ir.Module) -> bytes:
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
