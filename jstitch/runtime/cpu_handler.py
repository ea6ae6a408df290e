"""The FFI target `jstitch` on CPU: registration, and the instantiate stage in Python.

XLA instantiates every custom call once per executable: when it compiles a program and when it loads one from
a persistent cache or an export. The attributes name the kernel by content (`h`) and carry its source (`src`),
so the builder (`set_builder`) can find it in memory, on disk, or compile it. The instance state is the
kernel's descriptor; the execute stage is machine code (native_handler.py).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from jstitch.errors import JstitchError
from jstitch.runtime import ffi_layout as at
from jstitch.runtime import profile_watch
from jstitch.runtime.cache import KernelCache, Label
from jstitch.runtime.native_object import host_processor, load_objects
from jstitch.runtime.process_block import LoadedKernel, process_block, why_no_kernels
from jstitch.runtime.versions import toolchain

TARGET = "jstitch"
PLANNED = "jstitch_planned"
"""A call without a kernel: of programs that are compiled to see what XLA makes of them, and never run."""
LEAVES = "leaves"
"""The attribute of calls that may leave the thread which makes them: see native_threads.py."""
Builder = Callable[[str, str], LoadedKernel]
"""(content hash, payload) -> kernel in memory; called on any thread, raises when it cannot be built."""

_SYMBOLS = (
    "jstitch_execute",
    "jstitch_task",
    "jstitch_set_process",
    "jstitch_forget",
    *profile_watch.SYMBOLS,
)
_SOURCES = (
    "native_handler.py",
    "native_threads.py",
    "native_awake.py",
    "native_memory.py",
    "native_profiler.py",
    "native_function.py",
    "native_ops.py",
    "ffi_layout.py",
    "numba_compiler.py",
    "machine_code.py",
)
_lock = threading.Lock()
_keep: list[Any] = []
_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def register(builder: Builder, store: KernelCache) -> None:
    """Register the target and its instance type with JAX. Later calls do nothing.

    Raises JstitchError on a system that cannot run kernels.
    """
    if (why := why_no_kernels()) is not None:
        raise JstitchError("Linux or macOS, to run kernels on the CPU", why, hint="use WSL 2")
    with _lock:
        if not _keep:
            _register(builder, store)
        profile_watch.note_profile()


def _register(builder: Builder, store: KernelCache) -> None:
    execute, task, set_process, forget, *watching = load_objects([_handler_object(store)], _SYMBOLS)
    block = process_block()
    block[at.PROCESS_TASK] = task
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(set_process)(ctypes.addressof(block))
    type_info = (ctypes.c_int64 * 3)(24, 0, forget)
    instantiate = _HANDLER(lambda frame: _instantiate(builder, frame))
    _keep.extend([type_info, instantiate])
    type_id = ctypes.addressof(block) + 8 * at.PROCESS_TYPE_ID
    info = _capsule(ctypes.addressof(type_info))
    jax.ffi.register_ffi_type("jstitch_kernel", {"type_id": _capsule(type_id), "type_info": info}, "cpu")
    stages = {
        "instantiate": _capsule(ctypes.cast(instantiate, ctypes.c_void_p).value or 0),
        "execute": _capsule(execute),
    }
    jax.ffi.register_ffi_target(TARGET, stages, platform="cpu")
    jax.ffi.register_ffi_target(PLANNED, {"execute": stages["execute"]}, platform="cpu")
    profile_watch.watch_profiles(watching)


def _capsule(address: int) -> Any:
    return jax.ffi.pycapsule(ctypes.c_void_p(address))  # type: ignore[no-untyped-call]


def handler_key() -> str:
    """The key of the machine code of native_handler.py: its sources, versions, processor."""
    folder = Path(__file__).parent
    digest = hashlib.sha256(f"{toolchain()} {host_processor()}".encode())
    for name in _SOURCES:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def _handler_object(store: KernelCache) -> bytes:
    """The machine code of native_handler.py, compiled once per version and processor."""
    label = Label("calls from XLA", handler_versions())
    return store.obtain(handler_key(), "the handler", label, _compile_handler)


def handler_versions() -> str:
    """What the handler's machine code depends on, in words."""
    return f"{toolchain()} handler={handler_key()[:12]}"


def _compile_handler() -> bytes:
    # Imported here because Numba costs half a second, and a process with a warm cache never needs it.
    from jstitch.runtime.native_handler import FUNCTIONS
    from jstitch.runtime.numba_compiler import compile_functions

    return compile_functions(FUNCTIONS, _SYMBOLS)


def _word(base: int, index: int) -> int:
    return ctypes.c_int64.from_address(base + 8 * index).value


def _half(address: int) -> ctypes.c_int32:
    return ctypes.c_int32.from_address(address)


def _attributes(frame: int) -> dict[str, str]:
    """The string attributes of a call frame."""
    found = {}
    for i in range(_word(frame, at.FRAME_NUM_ATTRS)):
        name = _word(_word(frame, at.FRAME_ATTR_NAMES), i)
        value = _word(_word(frame, at.FRAME_ATTRS), i)
        found[_text(name)] = _text(value)
    return found


def _text(span: int) -> str:
    return ctypes.string_at(_word(span, 0), _word(span, 1)).decode()


def _instantiate(builder: Builder, frame: int) -> int:
    """XLA_FFI_Handler of the instantiate stage; no exception may leave it."""
    try:
        if _answer_metadata(frame):
            return 0
        attributes = _attributes(frame)
        kernel = builder(attributes["h"], attributes["src"])
        leaves = LEAVES in attributes and _has_one_device()
        return _set_state(frame, kernel.leaving if leaves else kernel.descriptor)
    except BaseException as error:
        return _error(
            frame, f"jstitch: cannot build a kernel of this program: {type(error).__name__}: {error}"
        )


def _has_one_device() -> bool:
    """Whether a program that goes on in XLA's pool finds a thread there.

    Several devices share the pool, and each blocks one of its threads while it waits for the others.
    """
    return jax.local_device_count("cpu") == 1


def _answer_metadata(frame: int) -> bool:
    """XLA asks each stage, at registration, for the API version and the type of its state."""
    extension = _word(frame, at.FRAME_EXTENSION)
    if not extension or _half(extension + at.EXTENSION_TYPE_BYTE).value != at.METADATA_TYPE:
        return False
    metadata = _word(extension, at.EXTENSION_METADATA)
    _half(metadata + at.METADATA_MAJOR_BYTE).value = at.API_MAJOR
    _half(metadata + at.METADATA_MINOR_BYTE).value = at.API_MINOR
    _half(metadata + at.METADATA_TRAITS_BYTE).value = 0
    type_id = ctypes.c_int64.from_address(metadata + 8 * at.METADATA_STATE_TYPE)
    type_id.value = process_block()[at.PROCESS_TYPE_ID]
    return True


def _set_state(frame: int, descriptor: int) -> int:
    type_id = ctypes.addressof(process_block()) + 8 * at.PROCESS_TYPE_ID
    args = (ctypes.c_int64 * 6)(48, 0, _word(frame, at.FRAME_CONTEXT), 0, type_id, descriptor)
    return _call_api(frame, at.API_STATE_SET, args)


def _error(frame: int, message: str) -> int:
    text = ctypes.create_string_buffer(message.encode())
    args = (ctypes.c_int64 * 4)(32, 0, ctypes.addressof(text), at.CODE_INTERNAL)
    return _call_api(frame, at.API_ERROR_CREATE, args)


def _call_api(frame: int, function: int, args: ctypes.Array[ctypes.c_int64]) -> int:
    call = _HANDLER(_word(_word(frame, at.FRAME_API), function))
    return call(ctypes.addressof(args)) or 0


def _renew_lock() -> None:
    """A forked child must not inherit a lock that another thread of the parent held."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
