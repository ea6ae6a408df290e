"""Functions that many kernels call: each is compiled once for this machine, into an object of its own.

    declare(module, "jstitch_pack_f32", kinds, write)   ->   the function, for calls from `module`
    begin(module, keep)                                 ->   {"jstitch_pack_f32": its object, soon}

A symbol stands for one function: written once in a process, loaded once, kept by name in the kernel cache.
Entries of kernels have these objects, too, so that none depends on another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from jstitch.runtime.machine_code import compile_beside, compile_text

Keep = Callable[[str, Callable[[], bytes]], bytes]
"""keep(symbol, make): the object of that name, made where it is not kept yet."""

_written: dict[str, ir.Module] = {}
_made: dict[str, Future[bytes]] = {}
_lock = threading.Lock()


def declare(module: Any, symbol: str, kinds: Sequence[Any], write: Callable[..., None]) -> Any:
    """The function, for calls from `module`; write(builder, *arguments) says what it does."""
    found = module.globals.get(symbol)
    if found is None:
        kind = ir.FunctionType(ir.VoidType(), kinds)
        if symbol not in _written:
            _written[symbol] = _module_of(symbol, kind, write)
        found = ir.Function(module, kind, symbol)
    return found


def _module_of(symbol: str, kind: Any, write: Callable[..., None]) -> ir.Module:
    module = ir.Module(symbol)
    module.triple = llvm.get_process_triple()
    function = ir.Function(module, kind, symbol)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    write(builder, *function.args)
    builder.ret_void()
    return module


def begin(module: Any, keep: Keep) -> Mapping[str, Future[bytes]]:
    """The objects of what the module calls, made beside the caller where this process has not yet."""
    with _lock:
        symbols = called_by(module)
        for symbol in symbols:
            if symbol not in _made or _failed(_made[symbol]):
                make = partial(compile_text, str(_written[symbol]))
                _made[symbol] = compile_beside(partial(keep, symbol, make))
        return {symbol: _made[symbol] for symbol in symbols}


def _failed(future: Future[bytes]) -> bool:
    return future.done() and future.exception() is not None


def assembly_of(module: Any) -> Mapping[str, str]:
    """What the module calls, as LLVM's assembly, by symbol."""
    return {s: compile_text(str(_written[s]), as_text=True).decode() for s in called_by(module)}


def called_by(module: Any) -> Sequence[str]:
    """The shared functions that a module calls, and those that these call, sorted."""
    found: set[str] = set()
    left = [module]
    while left:
        declared = {f.name for f in left.pop().functions if f.is_declaration} & _written.keys()
        left.extend(_written[symbol] for symbol in declared - found)
        found |= declared
    return sorted(found)


def _renew() -> None:
    """A forked child has none of its parent's threads: what they were at is begun anew."""
    global _lock
    _lock = threading.Lock()
    _made.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
