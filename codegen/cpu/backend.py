"""The CPU backend: Kernel -> source -> one call of the typed-FFI handler."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jstitch.codegen.backend import Built, CannotBuildError, KernelCall
from jstitch.codegen.cpu.build import SOURCE, attributes, begin, register, versions
from jstitch.codegen.cpu.check_integers import check_integers
from jstitch.codegen.cpu.emit import Emitted, emit
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.kernel_source import KernelSource
from jstitch.codegen.memory_map import arena_map, memory_fields
from jstitch.runtime.cpu_handler import TARGET

MANY_RESULTS = 32
QUICK = 1 << 20  # bytes of results that are written in no more time than wrapping many takes
LARGE_RESULTS = 8 << 20
HEAP = 32 << 20  # bytes that a thread's own heap can hold


@dataclass(frozen=True)
class CpuBackend:
    """This machine's cores."""

    def build(self, kernel: Kernel, cache_dir: str | None) -> Built:
        emitted = emit(kernel)
        problems = check_integers(emitted.source)
        if problems:
            raise CannotBuildError(f"integers that may not fit: {problems[0]}")
        return _built(kernel, emitted, cache_dir)

    def resume(self, call: KernelCall, cache_dir: str | None) -> Callable[[], object]:
        register()
        return begin(KernelSource.from_payload(call.config[SOURCE]), cache_dir)

    def environment(self) -> str:
        return versions()


def _built(kernel: Kernel, emitted: Emitted, cache_dir: str | None) -> Built:
    register()
    ready = begin(emitted.source, cache_dir)
    aliases = {emitted.results.index(r): emitted.operands.index(a) for r, a in kernel.aliases.items()}
    call = KernelCall(
        TARGET,
        attributes(emitted.source),
        tuple(kernel.args[k] for k in emitted.operands),
        tuple(kernel.results[k] for k in emitted.results),
        aliases,
        beside=_is_beside(kernel),
    )

    def renamed(name: str) -> Built:
        source = replace(emitted.source, name=name)
        return _built(kernel, replace(emitted, source=source), cache_dir)

    return Built(
        emitted.source.text,
        (call,),
        describe=lambda: _describe(kernel, emitted),
        renamed=renamed,
        ready=ready,
    )


def _is_beside(kernel: Kernel) -> bool:
    """Whether another thread than the caller's had better run it.

    JAX wraps many results meanwhile, as long as the kernel does not need that core, too. Large new ones glibc
    finds in the same place again where nothing else takes memory; in the caller's heap small blocks between
    them send them to fresh pages on every other call (16 MB: a millisecond).
    """
    nbytes = sum(b.type.nbytes for b in kernel.results)
    fresh = sum(b.type.nbytes for n, b in enumerate(kernel.results) if n not in kernel.aliases)
    many = len(kernel.results) >= MANY_RESULTS
    return (many and nbytes <= QUICK) or (fresh >= LARGE_RESULTS and nbytes <= HEAP)


def _describe(kernel: Kernel, emitted: Emitted) -> dict[str, Any]:
    """source: all of it but its text."""
    fields = json.loads(emitted.source.payload)
    del fields["text"]
    return {"target": "cpu", "source": fields, "memory": memory_fields(arena_map(kernel))}
