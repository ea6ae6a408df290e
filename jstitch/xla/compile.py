"""Compile a JAX function with XLA:GPU for a device that is not here, and read what the compiler dumps.

compiled(jax.jit(f), args, {}, find_spec("h200")) == Program(module, thunks, spec)
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled, Lowered

from jstitch import _jax
from jstitch.device_spec import DeviceSpec, to_target_config
from jstitch.errors import JstitchError
from jstitch.xla.hlo import parse_module
from jstitch.xla.launches import Program
from jstitch.xla.thunks import parse_thunks

_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
_SKIP = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"


class AnalysisError(JstitchError):
    """A program cannot be compiled or read for a GPU that is not here."""


def device_sharding(spec: DeviceSpec, count: int = 1) -> NamedSharding:
    """Whole arrays on imagined devices. Raises AnalysisError when JAX's CUDA plugin is not installed."""
    return NamedSharding(device_mesh(spec, count), PartitionSpec())  # type: ignore[no-untyped-call]


def device_mesh(spec: DeviceSpec, count: int) -> Mesh:
    """Some imagined devices in a row. Raises AnalysisError when JAX's CUDA plugin is not installed."""
    # First JAX's own devices, as without us: they must not depend on whether something was analysed before.
    jax.devices()
    try:
        topology = _topology(spec, count)
    except NotImplementedError:
        with _without_device_checks():
            _plugin().initialize()
        topology = _topology(spec, count)
    return Mesh(np.array(topology.devices), ("device",))


def _topology(spec: DeviceSpec, count: int) -> Any:
    return topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=to_target_config(spec), topology=f"1x1x{count}"
    )


def _plugin() -> Any:
    for name in _PLUGINS:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise AnalysisError(
        "JAX's CUDA plugin, which compiles for GPUs that are not here",
        f"none of {', '.join(_PLUGINS)}",
        hint="pip install 'jstitch[analyze]' (no GPU, driver or CUDA toolkit needed)",
    )


@contextmanager
def _without_device_checks() -> Iterator[None]:
    """The plugin looks for CUDA's libraries, which a compiler does not need, unless this variable is set."""
    before = os.environ.get(_SKIP)
    os.environ[_SKIP] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SKIP]
        else:
            os.environ[_SKIP] = before


def compile_lowered(lowered: Lowered, spec: DeviceSpec, *, library_gemms: bool) -> Program:
    """XLA:GPU's program. library_gemms: matrix products by cuBLAS only; else also in kernels of XLA's own.

    Raises AnalysisError when XLA refuses the program.
    """
    with tempfile.TemporaryDirectory(prefix="jstitch-analyze-") as folder:
        options: dict[str, Any] = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        if library_gemms:
            options["xla_gpu_enable_triton_gemm"] = False
        try:
            with _jax.keep_out_of_cache():
                compiled = lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            raise _refused(str(error)) from error
        return _read(Path(folder), spec, compiled)


def _refused(message: str) -> AnalysisError:
    first = message.splitlines()[0]
    if "No PTX compilation provider" in first:
        return AnalysisError("NVIDIA's assembler ptxas", "none", hint="pip install 'jstitch[analyze]'")
    return AnalysisError("a program that XLA:GPU compiles", first)


def _read(folder: Path, spec: DeviceSpec, compiled: Compiled) -> Program:
    module = parse_module(_text(folder, "*gpu_after_optimizations.txt"))
    thunks = parse_thunks(_text(folder, "*.thunk_sequence.txt"), _text(folder, "*.thunk_metadata.txt"))
    memory = compiled.memory_analysis()
    return Program(module, thunks, spec, temporaries=memory.temp_size_in_bytes if memory is not None else 0)


def _text(folder: Path, pattern: str) -> str:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise AnalysisError(
            f"one dump file {pattern}", names, hint="this version of XLA is not known: report it, please"
        )
    return found[0].read_text()
