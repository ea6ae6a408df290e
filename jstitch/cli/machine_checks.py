"""What `jstitch doctor` says of the machine: its system, cores, devices and memory."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import jax

from jstitch.cli.finding import Finding, first_line
from jstitch.runtime.device_name import cpu_device
from jstitch.runtime.process_block import available_threads

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
DRIVER = Path("/proc/driver/nvidia/version")
WSL_DRIVER = Path("/usr/lib/wsl/lib/libcuda.so.1")
MALLOC = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
TESTED = "Linux x86_64"
UNTESTED = {
    "Linux aarch64": "kernels are compiled for it in the tests, and ran under emulation only",
    "Darwin arm64": "kernels are compiled for it in the tests, but were never run there",
    "Windows AMD64": "kernels need a POSIX system, so programs stay XLA's",
}


def system(name: str) -> Finding:
    """The operating system and processor, and what is known of kernels there."""
    known = f"{platform.system()} {platform.machine()}"
    is_wsl = "microsoft" in platform.release().lower()
    if known == TESTED and not is_wsl:
        return Finding(name, "ok", f"{known}: what the tests run on")
    why = UNTESTED.get(known, "nobody has tried it")
    hint = "use WSL 2" if platform.system() == "Windows" else "jstitch doctor --check compares kernels here"
    return Finding(name, "warn", f"{known}{' on WSL' if is_wsl else ''}: not tested; {why}", hint)


def cores(name: str) -> Finding:
    usable, there = available_threads(), os.cpu_count() or 1
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


def driver(name: str) -> Finding:
    if DRIVER.exists():
        return Finding(name, "ok", first_line(DRIVER.read_text()))
    if WSL_DRIVER.exists():
        return Finding(name, "ok", f"that of Windows, {WSL_DRIVER}")
    return Finding(name, "none", "no NVIDIA driver")


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
