"""Names that the functions of a text take from their module: what it has to import.

def f(x): return sqrt(x) + inf     ->     {"sqrt", "inf"}
"""

from __future__ import annotations

from types import CodeType


def global_names(text: str) -> set[str]:
    """Of all functions of the text, as Python's own compiler finds them. Raises SyntaxError."""
    module = compile(text, "<kernel>", "exec", dont_inherit=True)
    functions = [part for part in module.co_consts if isinstance(part, CodeType)]
    return {name for function in functions for name in function.co_names} - {"range"}
