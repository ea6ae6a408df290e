"""One process of the soak: it compiles programs, checks their results, and says how large it has become.

    python -m benchmarks soak-child --side jstitch --seconds 60 --trouble clock     one JSON line a round

A round is a few programs in several threads. Both sides compile every program twice, once with `jax.jit` for
the results that are expected, so that what grows on one side only is that side's.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np

import jstitch
from benchmarks.check import WrongResultError
from benchmarks.grammar.compare import UNITS, require_right
from benchmarks.grammar.draw import programs
from benchmarks.grammar.program import Program
from jstitch.codegen.cpu import build
from jstitch.runtime.cache import KernelCache, kernel_store

Row = dict[str, Any]
ROUND = 4  # programs between two looks at the process
MOST_BYTES = 1 << 18  # of a program's arguments: what is soaked is compiling
HOUR = 3600.0
OPTIONS = jstitch.CompileOptions(tune="off", calibrated=False)
_trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)


def _store() -> KernelCache:
    return kernel_store(OPTIONS.cache_dir)


def small_programs(seed: int) -> Iterator[Program]:
    return (program for program in programs(seed) if program.nbytes <= MOST_BYTES)


# -- what can go wrong around it ---------------------------------------------------------------------------


def _small_cache(folder: Path) -> None:
    """Room for a few kernels only."""
    _store().limit = 1 << 16


def _full_disk(folder: Path) -> None:
    """No file may become larger than 2 KB: writes end halfway."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _no_cache(folder: Path) -> None:
    """A file stands where the folder would be made: what a read-only home is to root, too."""
    _store().directory = folder / "taken" / "kernels"
    (folder / "taken").write_text("a file")


def _others_write(folder: Path) -> None:
    """Everybody may write to the folder: nothing may be read from it."""
    directory = _store().directory
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o777)


def _clock(folder: Path) -> None:
    """The clock jumps by hours, and files have times in the future."""
    real, numbers = time.time, random.Random(0)
    time.time = lambda: real() + numbers.uniform(-50, 50) * HOUR
    for path in _store().directory.glob("*"):
        os.utime(path, (real() + 1000 * HOUR,) * 2)


TROUBLES: dict[str, Callable[[Path], None]] = {
    "none": lambda folder: None,
    "small cache": _small_cache,
    "full disk": _full_disk,
    "no cache": _no_cache,
    "others write": _others_write,
    "clock": _clock,
}


# -- the loop ----------------------------------------------------------------------------------------------


@click.command("soak-child", hidden=True)
@click.option("--side", type=click.Choice(["jstitch", "jax"]), default="jstitch")
@click.option("--seconds", type=float, default=60.0)
@click.option("--count", type=int, help="Programs, at most.")
@click.option("--seed", default=0)
@click.option("--threads", default=2)
@click.option("--trouble", type=click.Choice(list(TROUBLES)), default="none")
def soak_child_command(
    side: str, seconds: float, count: int | None, seed: int, threads: int, trouble: str
) -> None:
    """A worker: rounds of programs, each a JSON line."""
    folder = _store().directory.parent
    TROUBLES[trouble](folder)
    for row in rounds(side, seconds, count, seed, threads):
        click.echo(json.dumps(row))


def rounds(side: str, seconds: float, count: int | None, seed: int, threads: int) -> Iterator[Row]:
    """What each found, and how large the process is after it."""
    jit: Any = jax.jit if side == "jax" else lambda f: jstitch.jit(f, options=OPTIONS)
    found, start, done = small_programs(seed), time.monotonic(), 0
    with ThreadPoolExecutor(threads) as pool:
        while time.monotonic() - start < seconds and (count is None or done < count):
            batch = list(islice(found, ROUND))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                problems = list(filter(None, pool.map(lambda program: check(jit, program), batch)))
            done += len(batch)
            said = [str(w.message) for w in caught if issubclass(w.category, jstitch.JstitchWarning)]
            so_far = {"programs": done, "seconds": time.monotonic() - start}
            yield {**so_far, "problems": problems, "said": said, **size_of_process()}


def check(jit: Callable[..., Any], program: Program) -> str | None:
    """What is wrong with the program's results, or with its compilation; None where nothing is."""
    args = program.args()
    try:
        # functions of their own: JAX remembers traces by function
        expected = jax.jit(lambda *given: program(*given))(*args)
        found = jit(lambda *given: program(*given))(*args)
        require_right(program, found, expected)
    except WrongResultError as error:
        right = is_noise(program, found, expected) or is_as_written(program, args, found)
        return None if right else f"{program}: {error}"
    except Exception as error:
        return f"{program}: {type(error).__name__}: {error}"
    return None


def is_as_written(program: Program, args: Sequence[Any], found: Any) -> bool:
    """Whether op by op, each rounded as the program says, the same comes out.

    `jax.jit` does not round between the bf16 ops of a fusion, and infinities may be lost with that.
    """
    with jax.disable_jit():
        expected = program(*args)
    try:
        require_right(program, found, expected)
    except WrongResultError:
        return is_noise(program, found, expected)
    return True


def is_noise(program: Program, found: Any, expected: Any) -> bool:
    """Whether results differ as sums do whose terms, of size 1 as the arguments are, cancel."""
    unit = UNITS[program.dtype]
    pairs = zip(
        *([np.asarray(x, np.float64) for x in jax.tree.leaves(y)] for y in (found, expected)), strict=True
    )
    return all(np.allclose(a, b, rtol=unit, atol=unit, equal_nan=True) for a, b in pairs)


def size_of_process() -> Row:
    """After everything that can go has gone. Bytes; temporary: files that somebody forgot."""
    jax.clear_caches()  # type: ignore[no-untyped-call]
    gc.collect()
    _trim(0)
    directory = _store().directory
    files = [(p.suffix, p.stat().st_size) for p in directory.glob("*")] if directory.is_dir() else []
    temporary = [p for p in Path(tempfile.gettempdir()).iterdir() if p.name.startswith("jstitch")]
    return {
        "resident": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"),
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "native_threads": len(os.listdir("/proc/self/task")),
        "objects": len(gc.get_objects()),
        "kernels": len(build._kernels),
        "cache_files": len(files),
        "cache_bytes": sum(size for _, size in files),
        "temporary": len(temporary) + sum(suffix == ".tmp" for suffix, _ in files),
    }
