"""Knowing when `jax.profiler` takes a profile: as a plugin with a profiler of its own, which records nothing.

See native_profiler.py for what is done then.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from typing import Any

from jstitch import _jax
from jstitch.runtime import ffi_layout as at
from jstitch.runtime.process_block import process_block

NAMES = ("create", "destroy", "start", "stop", "collect")
"""Of PLUGIN_Profiler_Api, in its order; before them are those for errors, of which there are none."""
SYMBOLS = tuple(f"jstitch_profiler_{name}" for name in NAMES)
_ERRORS = 3
_PROFILER_EXTENSION = 1  # PJRT_Extension_Type_Profiler
_VERSION = (0, 1)
_keep: list[Any] = []


def watch_profiles(functions: Sequence[int]) -> None:
    """From now on `functions`, the addresses of SYMBOLS, are called around profiles.

    Where jaxlib takes no such plugin, kernels that leave their thread have short events in profiles.
    """
    words = _words(0, 0, *[0] * _ERRORS, *functions)
    extension = _words(0, _PROFILER_EXTENSION, 0, ctypes.addressof(words), 0)
    major, minor = _VERSION
    version = (24, 0, major | minor << 32)
    api = _words(0, ctypes.addressof(extension), *version, *[0] * at.PJRT_API_WORDS)
    try:
        _jax.register_profiler(_capsule(ctypes.addressof(api)))
    except Exception as error:
        logging.getLogger("jstitch").info("profiles are not watched: %s: %s", type(error).__name__, error)


def note_profile() -> None:
    """A profile that began before we watched is seen where this is called."""
    process_block()[at.PROCESS_TRACED] = _jax.profile_is_taken()


def _words(*values: int) -> ctypes.Array[ctypes.c_int64]:
    """A C struct whose first word is its size, kept as long as the process."""
    made = (ctypes.c_int64 * len(values))(*values)
    made[0] = ctypes.sizeof(made)
    _keep.append(made)
    return made


def _capsule(address: int) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, b"pjrt_c_api", None)
