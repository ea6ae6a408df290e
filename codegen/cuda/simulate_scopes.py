"""Names that leave the block that makes them.

if p < 3:
    v = 1        # made here
x = v            # read outside: v escapes
"""

from __future__ import annotations

import ast
from collections.abc import Sequence


def escaping_names(function: ast.FunctionDef) -> frozenset[str]:
    """Variables that are read where neither the block nor one around it has assigned them before."""
    found: set[str] = set()
    _block(function.body, {a.arg for a in function.args.args}, found)
    return frozenset(found)


def _block(body: Sequence[ast.stmt], known: set[str], found: set[str]) -> None:
    for statement in body:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                _reads(value, known, found)
                known.add(name)
            case ast.For(ast.Name(name), ast.Call(ast.Name(kind)) as bounds, inner):
                _reads(bounds, known, found)
                _block(inner, (known if kind == "unroll" else set(known)) | {name}, found)
            case ast.If():
                _chain(statement, known, found)
            case _:
                _reads(statement, known, found)


def _chain(statement: ast.If, known: set[str], found: set[str]) -> None:
    """`if`, every `elif`, `else`: without recursion, for chains may be long."""
    while True:
        _reads(statement.test, known, found)
        _block(statement.body, set(known), found)
        match statement.orelse:
            case [ast.If() as statement]:
                continue
            case rest:
                _block(rest, set(known), found)
                return


def _reads(node: ast.AST, known: set[str], found: set[str]) -> None:
    calls = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    for name in ast.walk(node):
        if isinstance(name, ast.Name) and id(name) not in calls and name.id not in known:
            found.add(name.id)
