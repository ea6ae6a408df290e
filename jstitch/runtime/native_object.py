"""Load relocatable objects into this process with llvmlite alone; Numba is not imported.

Loaded code stays for the life of the process: XLA may hold its addresses in any executable.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm

_lock = threading.Lock()


@cache
def host_processor() -> str:
    """Name and features of this processor, as LLVM spells them: part of the key of compiled code."""
    features = llvm.get_host_cpu_features().flatten()
    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {features}"


@cache
def _engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def load_objects(objects: Sequence[bytes], symbols: Sequence[str]) -> tuple[int, ...]:
    """The addresses of `symbols` of objects, now in memory. Symbols must be unique in the process.

    Raises RuntimeError when an object cannot be read, or none has a symbol.
    """
    with _lock:
        engine = _engine()
        for data in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        addresses = tuple(int(engine.get_function_address(symbol)) for symbol in symbols)
    if not all(addresses):
        missing = [s for s, address in zip(symbols, addresses, strict=True) if not address]
        raise RuntimeError(
            f"expected the symbols {missing} in compiled objects of {sum(map(len, objects))} bytes"
        )
    return addresses


def _renew_lock() -> None:
    """A forked child must not inherit a lock that another thread of the parent held."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
