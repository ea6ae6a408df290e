"""What `jstitch doctor` looks at: each check is a function that says what it found, or raises.

A check that raises is a failure with the error's first line: a broken library costs its own lines only.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pydot

from jstitch.analysis import analyze
from jstitch.api import jit
from jstitch.calibration import store
from jstitch.codegen.cuda.resources import find_tool
from jstitch.errors import OptionError
from jstitch.inspection.subject import observe_function, platform_of, target_of
from jstitch.options import CompileOptions
from jstitch.runtime.cache import default_directory
from jstitch.runtime.cache_contents import entries
from jstitch.runtime.device_name import cpu_device, usable_cores
from jstitch.runtime.library_exchange import count
from jstitch.runtime.library_file import open_database
from jstitch.runtime.performance_library import library_path
from jstitch.runtime.report import last_report, record_count, stitch_count
from jstitch.runtime.trusted import open_folder

Status = Literal["ok", "warn", "fail", "none"]
OLDEST_JAX, NEWEST_JAX = (0, 10, 2), (0, 13)  # the first tested, the first untested one
LITTLE_ROOM = 1 << 30  # bytes of disk
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
DRIVER = Path("/proc/driver/nvidia/version")
MALLOC = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Finding:
    """status: `none` is something optional that is not here. hint: what to do next."""

    name: str
    status: Status
    text: str
    hint: str = ""

    def fields(self) -> dict[str, str]:
        return asdict(self)


Check = Callable[[str], Finding]


def look(name: str, check: Check) -> Finding:
    """What a check finds; what it raises is a failure, and what it warns of a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = check(name)
        except (Exception, SystemExit) as error:
            about_options = isinstance(error, OptionError) and name != "variables"
            hint = "" if about_options else _HINTS.get(name, "")
            return Finding(name, "fail", f"{type(error).__name__}: {_first(str(error))}", hint)
    said = [str(w.message) for w in caught if not issubclass(w.category, DeprecationWarning)]
    return Finding(name, "warn", _first(said[0]), found.hint) if said and found.status == "ok" else found


def _first(text: str) -> str:
    return text.strip().partition("\n")[0][:300]


# -- versions ----------------------------------------------------------------------------------------------


def python(name: str) -> Finding:
    return Finding(name, "ok", f"{platform.python_version()}, {sys.executable}")


def jax_version(name: str) -> Finding:
    version = metadata.version("jax")
    text = f"{version}, jaxlib {metadata.version('jaxlib')}"
    if OLDEST_JAX <= tuple(map(int, re.findall(r"\d+", version)[:3])) < NEWEST_JAX:
        return Finding(name, "ok", text)
    return Finding(name, "warn", f"{text}: not tested", "pip install 'jax>=0.10.2,<0.13'")


def needed(package: str) -> Check:
    """A library that kernels need."""

    def check(name: str) -> Finding:
        importlib.import_module(package)
        return Finding(name, "ok", metadata.version(package))

    return check


def optional(package: str, module: str, extra: str) -> Check:
    """A library that some commands need."""

    def check(name: str) -> Finding:
        if not _is_installed(module):
            return Finding(name, "none", "not installed", f"pip install 'jstitch[{extra}]'")
        importlib.import_module(module)
        return Finding(name, "ok", metadata.version(package))

    return check


def _is_installed(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def tool(command: str) -> Check:
    """A program of the CUDA toolkit."""

    def check(name: str) -> Finding:
        found = find_tool(command)
        hint = "pip install 'jstitch[analyze]'" if command == "ptxas" else "pip install nvidia-cuda-nvdisasm"
        return Finding(name, "ok", str(found)) if found else Finding(name, "none", "not installed", hint)

    return check


def driver(name: str) -> Finding:
    if not DRIVER.exists():
        return Finding(name, "none", "no NVIDIA driver")
    return Finding(name, "ok", _first(DRIVER.read_text()))


# -- the machine -------------------------------------------------------------------------------------------


def cores(name: str) -> Finding:
    usable, there = usable_cores(), os.cpu_count() or 1
    text = f"{cpu_device()} (of {there})"
    hint = (
        "kernels use those that the process may use: see taskset, cgroups, XLA_FLAGS"
        if usable < there
        else ""
    )
    return Finding(name, "ok", text, hint)


def devices(name: str) -> Finding:
    found = ", ".join(f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices())
    return Finding(name, "ok", f"{jax.default_backend()}: {found}")


def huge_pages(name: str) -> Finding:
    if not HUGE_PAGES.exists():
        return Finding(name, "none", "unknown on this system")
    text = HUGE_PAGES.read_text()
    chosen = text.partition("[")[2].partition("]")[0] or text.strip()
    hint = f"echo madvise > {HUGE_PAGES}, as root: large arrays then fault in 512 times less often"
    return Finding(name, "ok", chosen) if chosen != "never" else Finding(name, "warn", chosen, hint)


def malloc(name: str) -> Finding:
    if platform.libc_ver()[0] != "glibc":
        return Finding(name, "none", "not glibc")
    said = [f"{v}={os.environ[v]}" for v in (*MALLOC, "GLIBC_TUNABLES") if v in os.environ]
    if said:
        return Finding(name, "ok", ", ".join(said))
    hint = "call jstitch.runtime.malloc.tune_malloc() first, or set " + ", ".join(MALLOC)
    return Finding(name, "warn", "glibc's defaults: more than 32 MB are mapped afresh in every call", hint)


# -- settings ----------------------------------------------------------------------------------------------


def variables(name: str) -> Finding:
    CompileOptions()  # raises for values that an option cannot have
    known = {f"JSTITCH_{field.upper()}" for field in CompileOptions.__dataclass_fields__}
    said = {n: v for n, v in sorted(os.environ.items()) if n.startswith("JSTITCH_")}
    text = ", ".join(f"{n}={v}" for n, v in said.items()) or "none is set"
    unknown = sorted(said.keys() - known)
    if unknown:
        return Finding(
            name, "warn", f"{', '.join(unknown)} means nothing", f"known: {', '.join(sorted(known))}"
        )
    return Finding(name, "ok", text)


def target(name: str) -> Finding:
    options = CompileOptions()
    found = target_of(options)
    return Finding(name, "ok", f"{options.target or platform_of(options)}, {type(found.backend).__name__}")


def cache_folder(name: str) -> Finding:
    folder = default_directory()
    with open_folder(folder, make=True) as opened:
        opened.write("doctor.txt", b"written")
        opened.remove("doctor.txt")
    free, found = shutil.disk_usage(folder).free, entries(folder)
    text = f"{folder}: {len(found)} kernels, {sum(e.nbytes for e in found):,} bytes, {free / 1e9:.1f} GB free"
    if free < LITTLE_ROOM:
        return Finding(name, "warn", text, "jstitch cache clear --stale, or another JSTITCH_CACHE_DIR")
    return Finding(name, "ok", text)


def library(name: str) -> Finding:
    path = library_path()
    if not path.exists():
        return Finding(name, "ok", f"{path}: nothing was measured yet")
    with closing(open_database(path)) as database:
        try:
            total = sum(group["entries"] for group in count(database))
        except sqlite3.Error as error:
            return Finding(name, "warn", f"{path}: {error}", "jstitch library clear")
    return Finding(name, "ok", f"{path}: {total} entries")


def calibration(name: str) -> Finding:
    place = store.place()
    if store.load(place) is None:
        return Finding(name, "none", "the shipped defaults", "jstitch calibrate, on an idle machine")
    return Finding(name, "ok", str(place.path))


# -- what works --------------------------------------------------------------------------------------------


def _softmax(x: Any) -> Any:
    e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    return e / jnp.sum(e, axis=-1, keepdims=True)


def _options(folder: str | None, target: str | None) -> CompileOptions:
    """Everything is stitched, whatever is measured or set; errors are raised."""
    return CompileOptions(
        target=target,
        planner="layers",
        tune="off",
        cache_dir=folder,
        dump_dir=None,
        print_after=(),
        calibrated=False,
        async_compile=False,
        verify=True,
        strict=True,
    )


def _runs_on(platform_name: str, name: str) -> Finding:
    """Compile a kernel, run it there, and compare with XLA."""
    device = jax.devices(platform_name)[0]
    x = np.linspace(-3.0, 3.0, 64 * 96, dtype=np.float32).reshape(64, 96)
    since = record_count()
    with tempfile.TemporaryDirectory(prefix="jstitch-doctor-") as folder, jax.default_device(device):
        expected = np.asarray(jax.jit(_softmax)(x))
        found = np.asarray(jit(_softmax, options=_options(folder, None))(x))
    if not stitch_count(since):
        reasons = "; ".join(r.reason or "" for r in last_report(since))
        return Finding(
            name, "fail", f"nothing was stitched: {reasons}", "JSTITCH_STRICT=1 shows the traceback"
        )
    worst = float(np.abs(found - expected).max() / np.abs(expected).max())
    if not worst <= TOLERANCE:
        return Finding(name, "fail", f"results differ from XLA's by {worst:.1e}", "please report this")
    return Finding(name, "ok", f"compiled, run, and equal to XLA's to {worst:.0e}")


def cpu_kernels(name: str) -> Finding:
    return _runs_on("cpu", name)


def cuda_kernels(name: str) -> Finding:
    try:
        jax.devices("cuda")
    except RuntimeError:
        return Finding(name, "none", "JAX has no CUDA device here")
    return _runs_on("cuda", name)


def cuda_lowering(name: str) -> Finding:
    if not _is_installed("numba_cuda"):
        return Finding(name, "none", "numba-cuda is not installed", "pip install 'jstitch[analyze]'")
    shape = jax.ShapeDtypeStruct((64, 96), jnp.float32)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="jstitch-doctor-") as folder:
        calls = observe_function(_softmax, (shape,), {}, _options(folder, "h200"))
    kernels = sum(len(call.built) for call in calls)
    status: Status = "ok" if kernels else "fail"
    return Finding(name, status, f"{kernels} kernel for an H200 that need not be here")


def analysis(name: str) -> Finding:
    if not any(_is_installed(f"jax_plugins.xla_cuda{n}") for n in (12, 13)):
        return Finding(name, "none", "JAX's CUDA plugin is not installed", "pip install 'jstitch[analyze]'")
    shape = jax.ShapeDtypeStruct((64, 96), jnp.float32)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="jstitch-doctor-") as folder:
        analyze(_softmax, shape, target="h200", options=_options(folder, None))
    return Finding(name, "ok", "XLA:GPU compiled a program for an H200 that need not be here")


def pictures(name: str) -> Finding:
    pydot.graph_from_dot_data("digraph { a -> b }")
    if shutil.which("dot") is None:
        return Finding(
            name, "none", "Graphviz's `dot` is not on the PATH", "install graphviz to draw --emit dot"
        )
    return Finding(name, "ok", str(shutil.which("dot")))


_HINTS = {
    "cpu kernels": "reinstall numba and llvmlite; JSTITCH_STRICT=1 shows the traceback",
    "cuda lowering": "pip install --upgrade 'jstitch[analyze]'",
    "cuda on a device": "see the driver and numba-cuda above",
    "analyze": "pip install --upgrade 'jstitch[analyze]'",
    "numba": "pip install --force-reinstall numba",
    "llvmlite": "pip install --force-reinstall llvmlite",
    "cache folder": "set JSTITCH_CACHE_DIR to a writable folder; without, kernels compile every time",
    "variables": "unset it, or give it a value that it can have",
}

CHECKS: dict[str, dict[str, Check]] = {
    "versions": {
        "python": python,
        "jax": jax_version,
        "numba": needed("numba"),
        "llvmlite": needed("llvmlite"),
        "numpy": needed("numpy"),
        "numba-cuda": optional("numba-cuda", "numba_cuda", "cuda"),
        "ptxas": tool("ptxas"),
        "nvdisasm": tool("nvdisasm"),
        "driver": driver,
    },
    "machine": {"cores": cores, "devices": devices, "huge pages": huge_pages, "malloc": malloc},
    "settings": {
        "variables": variables,
        "target": target,
        "cache folder": cache_folder,
        "performance library": library,
        "calibration": calibration,
    },
    "what works": {
        "cpu kernels": cpu_kernels,
        "cuda lowering": cuda_lowering,
        "cuda on a device": cuda_kernels,
        "analyze": analysis,
        "drawing": pictures,
        "demo": optional("optax", "optax", "demo"),
    },
}


def run_checks(begin: Callable[[str], None]) -> Iterator[tuple[str, Finding]]:
    """(section, finding), in order. begin: told each check's name."""
    for section, checks in CHECKS.items():
        for name, check in checks.items():
            begin(name)
            yield section, look(name, check)
