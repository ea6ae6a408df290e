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
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from importlib import metadata
from pathlib import Path

import jstitch
from jstitch.calibration import store
from jstitch.cli import machine_checks, works
from jstitch.cli.finding import Check, Finding, first_line, is_installed
from jstitch.cli.self_check import PROGRAMS, check_program
from jstitch.codegen.cuda.resources import find_tool
from jstitch.errors import OptionError
from jstitch.inspection.subject import platform_of, target_of
from jstitch.options import CompileOptions
from jstitch.runtime.cache import default_directory
from jstitch.runtime.cache_contents import entries
from jstitch.runtime.library_exchange import count
from jstitch.runtime.library_file import open_database
from jstitch.runtime.performance_library import library_path
from jstitch.runtime.trusted import open_folder

OLDEST_JAX, NEWEST_JAX = (0, 10, 2), (0, 13)  # the first tested, the first untested one
LITTLE_ROOM = 1 << 30  # bytes of disk


def look(name: str, check: Check) -> Finding:
    """What a check finds; what it raises is a failure, and what it warns of a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = check(name)
        except (Exception, SystemExit) as error:
            about_options = isinstance(error, OptionError) and name != "variables"
            hint = "" if about_options else _HINTS.get(name, "")
            return Finding(name, "fail", f"{type(error).__name__}: {first_line(str(error))}", hint)
    said = [str(w.message) for w in caught if not issubclass(w.category, DeprecationWarning)]
    return Finding(name, "warn", first_line(said[0]), found.hint) if said and found.status == "ok" else found


# -- versions ----------------------------------------------------------------------------------------------


def python(name: str) -> Finding:
    return Finding(name, "ok", f"{platform.python_version()}, {sys.executable}")


def own_version(name: str) -> Finding:
    """Where it is imported from; the version that pip knows may be that of another copy."""
    text = f"{jstitch.__version__}, {Path(jstitch.__file__).parent}"
    try:
        installed = metadata.version("jstitch")
    except metadata.PackageNotFoundError:
        return Finding(name, "ok", f"{text}, not installed by pip")
    if installed != jstitch.__version__:
        return Finding(name, "warn", f"{text}, but {installed} is installed", "pip install jstitch again")
    return Finding(name, "ok", text)


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
        if not is_installed(module):
            return Finding(name, "none", "not installed", f"pip install 'jstitch[{extra}]'")
        importlib.import_module(module)
        return Finding(name, "ok", metadata.version(package))

    return check


def tool(command: str) -> Check:
    """A program of the CUDA toolkit."""

    def check(name: str) -> Finding:
        found = find_tool(command)
        hint = "pip install 'jstitch[analyze]'" if command == "ptxas" else "pip install nvidia-cuda-nvdisasm"
        return Finding(name, "ok", str(found)) if found else Finding(name, "none", "not installed", hint)

    return check


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
        "jstitch": own_version,
        "python": python,
        "jax": jax_version,
        "numba": needed("numba"),
        "llvmlite": needed("llvmlite"),
        "numpy": needed("numpy"),
        "numba-cuda": optional("numba-cuda", "numba_cuda", "cuda"),
        "ptxas": tool("ptxas"),
        "nvdisasm": tool("nvdisasm"),
        "driver": machine_checks.driver,
    },
    "machine": {
        "system": machine_checks.system,
        "cores": machine_checks.cores,
        "devices": machine_checks.devices,
        "huge pages": machine_checks.huge_pages,
        "malloc": machine_checks.malloc,
    },
    "settings": {
        "variables": variables,
        "target": target,
        "cache folder": cache_folder,
        "performance library": library,
        "calibration": calibration,
    },
    "what works": {
        "cpu kernels": works.cpu_kernels,
        "cuda lowering": works.cuda_lowering,
        "cuda on a device": works.cuda_kernels,
        "analyze": works.analysis,
        "drawing": works.pictures,
        "demo": optional("optax", "optax", "demo"),
    },
}


SELF_CHECK: Mapping[str, Check] = {program.name: check_program(program) for program in PROGRAMS}


def sections(self_check: bool) -> dict[str, Mapping[str, Check]]:
    """What is looked at; with the programs of the self-check or without."""
    return {**CHECKS, "kernels against XLA": SELF_CHECK} if self_check else dict(CHECKS)


def run_checks(
    sections: Mapping[str, Mapping[str, Check]], begin: Callable[[str], None]
) -> Iterator[tuple[str, Finding]]:
    """(section, finding), in order. begin: told each check's name."""
    for section, checks in sections.items():
        for name, check in checks.items():
            begin(name)
            yield section, look(name, check)
