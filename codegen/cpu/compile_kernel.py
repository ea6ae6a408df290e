"""Compile a KernelSource with Numba. Importing this module imports Numba."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from jstitch.codegen.cpu import math
from jstitch.codegen.cpu.emit import MATH, MODULES
from jstitch.codegen.cpu.lower_text import Unsupported, lower_text
from jstitch.codegen.kernel_source import KernelSource
from jstitch.codegen.parse_text import parse_text
from jstitch.runtime.machine_code import compile_modules
from jstitch.runtime.numba_compiler import NativeFunction, compile_functions
from jstitch.runtime.process_block import available_threads


def compile_kernel(source: KernelSource, symbols: Sequence[str], as_text: bool = False) -> tuple[bytes, ...]:
    """Objects with the phase functions of `source` exported as `symbols`; as_text: their assembly.

    Raises numba.core.errors.NumbaError, SyntaxError, or KeyError for a phase that the text does not define.
    """
    tree = _plain(source.text)
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = _run(source, ast.Module([*imports], []))
    functions = {s: phase.function for s, phase in zip(symbols, source.phases, strict=True)}
    try:
        parts = (lower_text(defined, names, part, source.arena_bytes) for part in _shares(functions, defined))
        made = compile_modules(parts, as_text)
    except Unsupported:
        made = (_by_numba(source, tree, functions, as_text),)
    linecache.cache.pop(names["__file__"], None)  # kept only where a traceback may still quote it
    return made


def _shares(functions: Mapping[str, str], defined: Mapping[str, ast.FunctionDef]) -> list[Mapping[str, str]]:
    """The functions in as many parts as there are cores, of about as many lines."""
    lines = {s: (defined[name].end_lineno or 0) - defined[name].lineno for s, name in functions.items()}
    parts: list[dict[str, str]] = [{} for _ in range(available_threads())]
    for symbol in sorted(functions, key=lambda s: -lines[s]):
        least = min(parts, key=lambda part: sum(lines[s] for s in part))
        least[symbol] = functions[symbol]
    return [part for part in parts if part]


def _by_numba(source: KernelSource, tree: ast.Module, functions: Mapping[str, str], as_text: bool) -> bytes:
    names = _run(source, tree)
    items = [NativeFunction(symbol, names[name], 3) for symbol, name in functions.items()]
    return compile_functions(items, [*functions], as_text)


def load_text(source: KernelSource) -> dict[str, Any]:
    """Run the text as a module whose globals are the functions of `jstitch.codegen.cpu.math`.

    Raises SyntaxError for a text that would do anything but define functions.
    """
    return _run(source, _plain(source.text))


def _run(source: KernelSource, tree: ast.Module) -> dict[str, Any]:
    filename = f"<jstitch {source.name} {source.digest[:8]}>"
    # tracebacks and Numba's errors quote lines of the text
    linecache.cache[filename] = (len(source.text), None, source.text.splitlines(keepends=True), filename)
    module = ModuleType(f"jstitch_{source.name}")
    module.__dict__.update(math.functions())
    module.__file__ = filename
    exec(compile(tree, filename, "exec"), module.__dict__)
    return module.__dict__


def _plain(text: str) -> ast.Module:
    """The text, parsed.

    Texts come with exported programs and from dumps, too: loading one runs nothing of it. Raises SyntaxError
    for what is neither an import that the emitter writes nor a function, which has nothing that is evaluated
    where it is defined.
    """
    tree = parse_text(text)
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                known = math.functions().keys() if module == MATH else MODULES.get(module, ())
                good = all(alias.name in known and alias.asname is None for alias in names)
            case ast.FunctionDef(args=args, decorator_list=[], returns=None):
                good = not (args.defaults or args.kw_defaults) and not any(a.annotation for a in _all(args))
            case _:
                good = False
        if not good:
            found = ast.unparse(node)[:80]
            raise SyntaxError(f"expected the text of a kernel, functions and no more, found {found!r}")
    return tree


def _all(args: ast.arguments) -> list[ast.arg]:
    more = [a for a in (args.vararg, args.kwarg) if a is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *more]
