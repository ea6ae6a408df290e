"""LLVM modules -> machine code for this processor, as many at once as there are cores.

    compile_modules([text of phase 0, text of phase 1])  ->  (object, object)

llvmlite makes all calls into LLVM under one lock of the process. LLVM itself asks for less: modules in
contexts of their own, each with a target machine of its own, may be compiled at the same time. So what takes
long is called without that lock. Importing this module imports Numba.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi
from numba.core.cgutils import normalize_ir_text
from numba.core.compiler_lock import global_compiler_lock
from numba.core.llvm_bindings import create_pass_builder
from numba.core.registry import cpu_target

from jstitch.runtime.process_block import available_threads

_own = threading.local()
_pool: list[ThreadPoolExecutor] = []  # at most one
_lock = threading.Lock()


def compile_modules(modules: Iterable[Any], as_text: bool = False) -> tuple[bytes, ...]:
    """The object of each module of llvmlite.ir, begun as soon as it is there.

    Functions that are not internal are exported. as_text: LLVM's assembly instead. Raises RuntimeError for
    what LLVM rejects, and what `modules` raises.
    """
    return tuple(_threads().map(partial(_compiled, as_text=as_text), map(str, modules)))


def _threads() -> ThreadPoolExecutor:
    with _lock:
        if not _pool:
            _pool.append(ThreadPoolExecutor(available_threads(), "jstitch compiles"))
        return _pool[0]


def _compiled(text: str, as_text: bool) -> bytes:
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(normalize_ir_text(text), context)
    except BaseException:
        context.detach()  # a traceback may hold a module, which must not outlive its context
        raise
    module.data_layout = str(_machine().target_data)
    made = machine_code(module, as_text)
    module.close()
    context.close()
    return made


def machine_code(module: Any, as_text: bool) -> bytes:
    """A module, which nothing else reads meanwhile, optimised once; as_text: assembly instead of an object.

    Raises RuntimeError for what LLVM rejects.
    """
    machine = _machine()
    builder = create_pass_builder(machine, opt=3, loop_vectorize=True, slp_vectorize=False)
    manager = builder.getModulePassManager()
    _unlocked("LLVMPY_RunNewModulePassManager")(manager, module, builder)
    _free(manager, "LLVMPY_DisposeNewModulePassManger")
    builder.close()  # it refers to the module
    return _written(machine, module, as_text)


def _written(machine: Any, module: Any, as_text: bool) -> bytes:
    with ffi.OutputString() as said:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, int(not as_text), said)
        if not buffer:
            raise RuntimeError(str(said))
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return bytes(ctypes.string_at(start, size))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _unlocked(name: str) -> Any:
    """A function of llvmlite's library without the lock around it."""
    function = getattr(ffi.lib, name)
    return getattr(function, "_cfn", function)


def _machine() -> Any:
    """A target machine like Numba's own, of this thread."""
    if not hasattr(_own, "machine"):
        with global_compiler_lock:
            codegen = cpu_target.target_context.codegen()
        options: dict[str, Any] = {"opt": 3}
        codegen._customize_tm_options(options)
        options["features"] = ",".join(filter(None, (options.get("features"), *_without_scatters())))
        target = llvm.Target.from_triple(llvm.get_process_triple())
        _own.machine = target.create_target_machine(**options)
    return _own.machine


def _without_scatters() -> Iterator[str]:
    """What belongs apart is stored one by one, as quick as by one instruction or quicker: as XLA has it."""
    if llvm.get_host_cpu_features().get("avx512f"):
        yield "+prefer-no-scatter"


def _free(manager: Any, dispose: str) -> None:
    """Free a pass manager: llvmlite 0.50 never does, and a tenth of a megabyte would stay with each."""
    if type(manager)._dispose is llvm.ffi.ObjectRef._dispose:
        getattr(llvm.ffi.lib, dispose, lambda _: None)(manager)
    manager.close()


def _renew() -> None:
    """A forked child has neither its parent's threads nor the locks that they held."""
    global _lock
    _lock = threading.Lock()
    _pool.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def _hold_llvm_over_forks() -> None:
    """A fork waits for what other threads do in LLVM.

    Their modules die with them in the child, which takes llvmlite's lock: it would wait for it for ever.
    """
    lock = getattr(ffi.lib, "_lock", None)
    if lock is not None and hasattr(os, "register_at_fork"):
        release = partial(lock.__exit__, None, None, None)
        os.register_at_fork(before=lock.__enter__, after_in_parent=release, after_in_child=release)


_hold_llvm_over_forks()
