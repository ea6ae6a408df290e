"""Compile a KernelSource with Numba. Importing this module imports Numba."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from jstitch.codegen.cpu import math
from jstitch.codegen.cpu.emit import MATH, MODULES
from jstitch.codegen.cpu.lower_text import Unsupported, lower_text
from jstitch.codegen.kernel_source import KernelSource
from jstitch.codegen.parse_text import parse_text
from jstitch.runtime.numba_compiler import NativeFunction, compile_functions, compile_ir


def compile_kernel(source: KernelSource, symbols: Sequence[str], as_text: bool = False) -> bytes:
    """The object with the phase functions of `source` exported as `symbols`; as_text: its assembly.

    Raises numba.core.errors.NumbaError, SyntaxError, or KeyError for a phase that the text does not define.
    """
    names = load_text(source)
    functions = {s: phase.function for s, phase in zip(symbols, source.phases, strict=True)}
    try:
        found = compile_ir(lower_text(source.text, names, functions, source.arena_bytes), as_text)
    except Unsupported:
        items = [NativeFunction(symbol, names[name], 3) for symbol, name in functions.items()]
        found = compile_functions(items, symbols, as_text)
    linecache.cache.pop(names["__file__"], None)  # kept only where a traceback may still quote it
    return found


def load_text(source: KernelSource) -> dict[str, Any]:
    """Run the text as a module whose globals are the functions of `jstitch.codegen.cpu.math`.

    Raises SyntaxError for a text that would do anything but define functions.
    """
    tree = _plain(source.text)
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
