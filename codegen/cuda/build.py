"""Build CUDA sources: memory, then the disk cache, then Numba; and describe the calls that launch them.

    CudaSource, DeviceSpec -> content key -> PTX -> the attributes of one custom call per launch

Building needs no GPU, only the toolchain's wheels; a warm cache needs neither them nor Numba. The PTX is all
that the runtime gets, so an exported program needs nothing of this package.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import metadata, util
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jstitch.codegen.cuda.ptx_text import entry_name
from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.errors import UnsupportedError
from jstitch.runtime.cache import KernelCache, Label, kernel_store
from jstitch.runtime.versions import toolchain

TARGET = "__gpu$xla.gpu.ptx"
_ANONYMOUS = "jstitch_anonymous"  # the kernel's name while it is in the cache: equal kernels are one
_PACKAGES = ("numba-cuda", "cuda-bindings", "nvidia-nvvm")
_texts: dict[str, str] = {}
_lock = threading.Lock()


class Device(Protocol):
    """The part of device_spec.DeviceSpec that PTX depends on."""

    @property
    def capability(self) -> tuple[int, int]: ...

    @property
    def ptx_version(self) -> str: ...


def prepare(
    source: CudaSource, device: Device, cache_dir: str | None = None
) -> tuple[Mapping[str, Any], ...]:
    """Build every launch now and return the attributes of its custom call (target TARGET), in order.

    cache_dir: CompileOptions.cache_dir. Raises UnsupportedError for a device that cannot be built for.
    """
    texts = build(source, device, cache_dir)
    pairs = zip(source.launches, texts, strict=True)
    return tuple(
        _attributes(entry_name(source.name, launch.function), launch, text) for launch, text in pairs
    )


def build(source: CudaSource, device: Device, cache_dir: str | None = None) -> tuple[str, ...]:
    """The PTX of every launch; built once per process, from any number of threads."""
    store = kernel_store(cache_dir)
    return tuple(_named(source, device, position, store) for position in range(len(source.launches)))


def _attributes(name: str, launch: Launch, text: str) -> Mapping[str, Any]:
    one = np.int32(1)
    return {
        **{"name": name, "kernel_type": "ptx", "kernel_data": text},
        **{"grid_x": np.int32(launch.grid), "grid_y": one, "grid_z": one},
        **{"block_x": np.int32(launch.block), "block_y": one, "block_z": one},
        "shared_mem_bytes": np.int32(launch.shared_bytes),
    }


def _named(source: CudaSource, device: Device, position: int, store: KernelCache) -> str:
    function = source.launches[position].function
    text = _text(source, device, position, store)
    return text.replace(entry_name(_ANONYMOUS, function), entry_name(source.name, function))


def _text(source: CudaSource, device: Device, position: int, store: KernelCache) -> str:
    """The PTX under the anonymous name."""
    key = _key(source, device, position)
    found = _texts.get(key)
    if found is not None:
        return found
    with _lock:
        if key not in _texts:
            entry = entry_name(source.name, source.launches[position].function)
            make = partial(_compile, source, device, position)
            _texts[key] = store.obtain(key, entry, _label(device), lambda: make().encode()).decode()
        return _texts[key]


def _key(source: CudaSource, device: Device, position: int) -> str:
    major, minor = device.capability
    parts = source.digest, position, f"sm_{major}{minor}", f"ptx {device.ptx_version}", _environment()
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def _compile(source: CudaSource, device: Device, position: int) -> str:
    if not can_compile():
        raise UnsupportedError("the package numba-cuda", "none", hint="pip install 'jstitch[cuda]'")
    # Imported here because numba.cuda costs a second, and a process with a warm cache never needs it.
    from jstitch.codegen.cuda.compile_kernel import compile_launch

    anonymous = replace(source, name=_ANONYMOUS)
    launch = source.launches[position]
    return compile_launch(anonymous, launch, device.capability, device.ptx_version)


def can_compile() -> bool:
    """Whether the package that compiles kernels is installed. Planning does without."""
    return util.find_spec("numba_cuda") is not None


def versions() -> str:
    """What PTX depends on besides source and device, in words."""
    return f"{toolchain()} cuda={_environment()[:12]}"


def _label(device: Device) -> Label:
    major, minor = device.capability
    return Label(f"sm_{major}{minor}, PTX {device.ptx_version}", versions())


@cache
def _environment() -> str:
    """All that PTX depends on besides source and device: this package's files, the toolchain's versions."""
    digest = hashlib.sha256(" ".join([toolchain(), *map(_version, _PACKAGES)]).encode())
    room = Path(__file__).parents[1]
    for path in sorted([*room.glob("cuda/*.py"), *room.glob("cpu/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return f"{package}={metadata.version(package)}"
    except metadata.PackageNotFoundError:  # from a CUDA toolkit instead of a wheel
        return f"{package}=none"


def _renew_locks() -> None:
    """A forked child must not inherit a lock that another thread of the parent held."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
