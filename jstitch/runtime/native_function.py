"""Functions of the native handler: Numba's Python, each compiled once under a symbol of its own.

Addresses are integers, and so is everything else. Imported only when the handler is compiled; afterwards its
machine code comes from the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from jstitch.runtime.numba_compiler import NativeFunction

FUNCTIONS: list[NativeFunction] = []
"""Every function of the handler, to be compiled into one object."""


def export(function: Callable[..., Any]) -> Callable[..., Any]:
    """Export the function under `jstitch_<name>`."""
    returns = function.__annotations__["return"] != "None"
    symbol = f"jstitch_{function.__name__.lstrip('_')}"
    FUNCTIONS.append(NativeFunction(symbol, function, function.__code__.co_argcount, returns))
    return function


def helper(function: Callable[..., Any]) -> Callable[..., int]:
    """Export the function; others call it by symbol, so each is compiled once (njit callees cost twice)."""
    export(function)
    made = FUNCTIONS[-1]
    result = types.int64 if made.returns else types.void
    external: Callable[..., int] = types.ExternalFunction(made.symbol, result(*[types.int64] * made.arity))
    return external


@helper
def smaller(x: int, y: int) -> int:
    # the builtin min would be compiled as a callee of its own
    if x < y:
        return x
    return y


@helper
def larger(x: int, y: int) -> int:
    if x > y:
        return x
    return y


@helper
def round_up(size: int, multiple: int) -> int:
    return (size + multiple - 1) & -multiple
