"""What the statements of a kernel's text assign."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence


def assignments(body: Sequence[ast.stmt]) -> Counter[str]:
    """How often each name is assigned in the statements, those of inner blocks included."""
    found, todo = Counter[str](), list(body)
    while todo:
        match todo.pop():
            case ast.Assign(targets):
                found.update(t.id for t in targets if isinstance(t, ast.Name))
            case ast.For(_, _, inner):
                todo += inner
            case ast.If(_, inner, orelse):
                todo += [*inner, *orelse]
    return found
