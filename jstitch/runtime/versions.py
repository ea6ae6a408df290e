"""Versions that compiled code depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

COMPILER_FILES = tuple(Path(__file__).with_name(name) for name in ("numba_compiler.py", "machine_code.py"))
"""Their texts are part of the key of compiled code; finding them must not import Numba."""


@cache
def toolchain() -> str:
    """jstitch, Numba and llvmlite with their versions: part of the key of compiled code."""
    return " ".join(f"{name}={version_of(name)}" for name in ("jstitch", "numba", "llvmlite"))


@cache
def measured_with() -> str:
    """All that measured times depend on besides the device: the code generators, JAX, XLA, Numba."""
    packages = ("jax", "jaxlib", "numba", "llvmlite")  # XLA is part of jaxlib
    names = " ".join(f"{name}={version_of(name)}" for name in packages)
    return f"generators={generators()} {names}"


@cache
def asked_with() -> str:
    """All that XLA:GPU's answers depend on besides its flags: JAX, XLA, its plugin; and what we plan."""
    packages = ("jax", "jaxlib", "jax_cuda13_pjrt", "jax_cuda12_pjrt")
    names = " ".join(f"{name}={version_of(name)}" for name in packages)
    return f"planners={planners()} {names}"


@cache
def compiled_with() -> str:
    """All that XLA:CPU's answers depend on besides its flags and the machine: JAX, XLA."""
    return " ".join(f"{name}={version_of(name)}" for name in ("jax", "jaxlib"))


@cache
def planned_with() -> str:
    """All that plans and kernels' texts depend on besides options, target and XLA's answers."""
    return f"planners={planners()} numpy={version_of('numpy')} {compiled_with()}"


@cache
def planners() -> str:
    """A hash of all sources of the package."""
    root = Path(__file__).parent.parent
    rooms = (root, root / "passes", root / "codegen")  # the latter are links in a source tree
    return _hash({file for room in rooms for file in room.rglob("*.py")})


@cache
def generators() -> str:
    """A hash of the sources that turn a kernel's text into running code; the text is in keys itself."""
    here = Path(__file__).parent
    files = [*(here.parent / "codegen").rglob("*.py"), *here.glob("native_*.py"), *COMPILER_FILES]
    return _hash(files)


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree
        return "source"
