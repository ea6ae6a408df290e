"""The syntax tree of generated source.

CPython 3.11.7, for one, counts the depth of the tree that it hands out per interpreter, not per parse
(CPython issue 106905): where a callback of the garbage collector (JAX has one) lets another thread parse
meanwhile, both find "AST constructor recursion depth mismatch". Kernels are built in threads, so such a parse
is done again.
"""

from __future__ import annotations

import ast

ATTEMPTS = 20  # each fails only where another thread's parse ends or begins within it


def parse_text(text: str) -> ast.Module:
    """`ast.parse` of the text, whatever other threads parse. Raises SyntaxError."""
    for _ in range(ATTEMPTS - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)


def functions_of(text: str) -> dict[str, ast.FunctionDef]:
    """The functions that the text defines, by their names."""
    return {node.name: node for node in parse_text(text).body if isinstance(node, ast.FunctionDef)}
