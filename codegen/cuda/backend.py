"""The CUDA backend: Kernel -> text -> PTX -> one native launch for each phase, for one device."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jstitch.codegen.backend import Built, CannotBuildError, KernelCall
from jstitch.codegen.cuda.build import TARGET, prepare, versions
from jstitch.codegen.cuda.emit import Emitted, emit
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.memory_map import memory_fields
from jstitch.device_spec import DeviceSpec
from jstitch.runtime.versions import asked_with


@dataclass(frozen=True)
class CudaBackend:
    """GPUs like `spec`."""

    spec: DeviceSpec

    def build(self, kernel: Kernel, cache_dir: str | None) -> Built:
        try:
            emitted = emit(kernel, self.spec.shared_optin)
        except NoRoom as error:
            raise CannotBuildError(error.reason) from None
        return _built(emitted, self.spec, cache_dir)

    def resume(self, call: KernelCall, cache_dir: str | None) -> Callable[[], object]:
        return lambda: None  # its PTX is in the call

    def environment(self) -> str:
        return f"{self.spec} {versions()} {asked_with()}"


def _built(emitted: Emitted, spec: DeviceSpec, cache_dir: str | None) -> Built:
    configs = prepare(emitted.source, spec, cache_dir)
    calls = (
        KernelCall(TARGET, config, buffers.operands, buffers.results, buffers.aliases)
        for config, buffers in zip(configs, emitted.made.buffers, strict=True)
    )
    moved = {
        config["name"]: (launch.bytes_read, launch.bytes_written)
        for config, launch in zip(configs, emitted.source.launches, strict=True)
    }
    texts = zip(emitted.source.launches, configs, strict=True)
    compiled = {f"{launch.function}.ptx": config["kernel_data"] for launch, config in texts}

    def renamed(name: str) -> Built:
        source = replace(emitted.source, name=name)
        return _built(replace(emitted, source=source), spec, cache_dir)

    return Built(
        emitted.source.text, tuple(calls), moved, compiled, lambda: _describe(emitted, spec), renamed
    )


def _describe(emitted: Emitted, spec: DeviceSpec) -> dict[str, Any]:
    """source: all of it but its text."""
    fields = json.loads(emitted.source.payload)
    del fields["text"]
    return {"target": spec.name, "source": fields, "memory": memory_fields(emitted.made.memory)}
