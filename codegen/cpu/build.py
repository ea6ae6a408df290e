"""Build kernel sources for the CPU: memory, then the disk cache, then Numba; and hand them to XLA.

    KernelSource -> content key -> object bytes -> LoadedKernel (addresses and a descriptor)

`begin(source)` is what a lowering calls: another thread builds, LLVM beside the planning of the next kernel,
and the lowering waits for all of them at its end (so that errors surface there). `register()` is what
`import jstitch` calls, so that programs from an export or from JAX's persistent compilation cache find their
kernels. With a warm cache Numba is never imported.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from jstitch.codegen.kernel_source import KernelSource
from jstitch.errors import JstitchWarning
from jstitch.runtime import cpu_handler
from jstitch.runtime.cache import KernelCache, Label, kernel_store
from jstitch.runtime.direct_call import call_directly
from jstitch.runtime.native_object import host_processor, load_objects
from jstitch.runtime.process_block import LoadedKernel, LoadedPhase, available_threads, load_kernel
from jstitch.runtime.versions import COMPILER_FILES, toolchain

SOURCE = "src"
"""The attribute that a kernel can be built from, anywhere."""

_kernels: dict[str, LoadedKernel] = {}
_begun: dict[str, Future[LoadedKernel]] = {}
_lock = threading.Lock()
_builder: list[ThreadPoolExecutor] = []  # at most one
_SIZE = struct.Struct("<Q")


def attributes(source: KernelSource) -> Mapping[str, str]:
    """Of its custom call (target `cpu_handler.TARGET`)."""
    return {"h": source.digest, SOURCE: source.payload}


def register() -> None:
    """Register the FFI target with JAX; later calls do nothing."""
    cpu_handler.register(_build_payload, kernel_store())


def register_or_warn() -> None:
    """`register` for `import jstitch`: where nothing can be compiled, programs stay XLA's."""
    try:
        register()
    except Exception as error:
        warnings.warn(
            f"jstitch cannot run kernels on the CPU: {type(error).__name__}: {error}."
            " `python -m jstitch doctor` says what works.",
            JstitchWarning,
            stacklevel=2,
        )


def begin(source: KernelSource, cache_dir: str | None = None) -> Callable[[], LoadedKernel]:
    """Build it beside the caller, once per process. What is returned waits, and raises what `build` does.

    cache_dir: CompileOptions.cache_dir.
    """
    with _lock:
        if source.digest in _kernels:
            return partial(_kernels.__getitem__, source.digest)
        if source.digest not in _begun:
            if not _builder:
                _builder.append(ThreadPoolExecutor(available_threads(), "jstitch builds"))
            _begun[source.digest] = _builder[0].submit(_load, source, kernel_store(cache_dir))
        return partial(_end, source.digest, _begun[source.digest])


def _end(digest: str, future: Future[LoadedKernel]) -> LoadedKernel:
    try:
        return _kernels.setdefault(digest, future.result())
    finally:
        with _lock:
            _begun.pop(digest, None)


def build(source: KernelSource, cache_dir: str | None = None) -> LoadedKernel:
    """The kernel in memory; built once per process, from any number of threads.

    Raises numba.core.errors.NumbaError when Numba rejects the text.
    """
    found = _kernels.get(source.digest)
    return begin(source, cache_dir)() if found is None else found


def call(source: KernelSource, args: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]) -> None:
    """Build `source` and run it on NumPy arrays, serially and without JAX; `results` are written in place.

    Raises ValueError for another number of arrays or for arrays that are not C-contiguous.
    """
    call_directly(build(source), args, results)


def _build_payload(digest: str, payload: str) -> LoadedKernel:
    found = _kernels.get(digest)
    return build(KernelSource.from_payload(payload)) if found is None else found


def _load(source: KernelSource, store: KernelCache) -> LoadedKernel:
    symbols = _symbols(source)
    addresses = load_objects(_objects(source, symbols, store), symbols)
    phases = [
        LoadedPhase(address, phase.programs, phase.alone_ns)
        for address, phase in zip(addresses, source.phases, strict=True)
    ]
    return load_kernel(source.num_args, source.num_results, source.scratch_bytes, source.arena_bytes, phases)


def assembly(source: KernelSource) -> str:
    """LLVM's assembly of a kernel for this processor, compiled anew. Raises what `build` does."""
    # Imported here because Numba costs half a second, and nothing else needs it here.
    from jstitch.codegen.cpu.compile_kernel import compile_kernel

    return b"\n".join(compile_kernel(source, _symbols(source), as_text=True)).decode()


def _symbols(source: KernelSource) -> list[str]:
    return [f"jstitch_{source.digest}_{i}" for i in range(len(source.phases))]


def _objects(source: KernelSource, symbols: Sequence[str], store: KernelCache) -> list[bytes]:
    def make() -> bytes:
        # Imported here because Numba costs half a second, and a process with a warm cache never needs it.
        from jstitch.codegen.cpu.compile_kernel import compile_kernel

        objects = compile_kernel(source, symbols)
        return b"".join(_SIZE.pack(len(data)) + data for data in objects)

    key = hashlib.sha256(f"{source.digest} {_environment()}".encode()).hexdigest()
    label = Label(f"cpu {host_processor().split()[1]}", versions())
    return [*_apart(store.obtain(key, source.name, label, make))]


def _apart(kept: bytes) -> Iterator[bytes]:
    """The objects of one entry of the cache, each behind its size."""
    while kept:
        (size,), rest = _SIZE.unpack_from(kept), kept[_SIZE.size :]
        yield rest[:size]
        kept = rest[size:]


def versions() -> str:
    """What machine code depends on besides its source, in words."""
    return f"{toolchain()} cpu={_environment()[:12]}"


@cache
def _environment() -> str:
    """All that machine code depends on besides the source: this package's files, versions, processor."""
    digest = hashlib.sha256(f"{toolchain()} {host_processor()}".encode())
    for path in (*sorted(Path(__file__).parent.glob("*.py")), *COMPILER_FILES):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _renew_locks() -> None:
    """A forked child has neither its parent's threads, nor what they had begun, nor locks that they held."""
    global _lock
    _lock = threading.Lock()
    _builder.clear()
    _begun.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
