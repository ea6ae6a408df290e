"""Programs on a GPU: jstitch.jit beside jax.jit, results compared, then the time of all kernels of each.

The suite at its largest size, and norms, losses and optimizers at sizes that fill a GPU. Times are those of
kernels, by JAX's profiler: calls overlap with kernels of earlier ones, and what they cost is `overhead`'s.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
from jax import Array

import jstitch
from benchmarks.check import allowed
from benchmarks.kernel_times import NoTimesError, kernel_times
from benchmarks.timeline import PROGRAMS
from benchmarks.workload import Size, Workload
from benchmarks.workloads import FAMILIES
from jstitch.runtime.report import stitch_count

Row = dict[str, Any]
TF32 = 1e-3  # of products of f32, on GPUs
LONG_SUMS = 1e-4  # of 401,408 rows
WORKERS = min(14, os.cpu_count() or 1)
COMPILING = 12


@dataclass(frozen=True)
class GpuCase:
    """args: arrays of the host, or what is to be drawn on the device. tolerance: as a Problem has it."""

    function: Callable[..., Any]
    args: Any
    tolerance: float = LONG_SUMS

    @property
    def structs(self) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.args)

    def on_device(self) -> Any:
        """The arguments, every time the same."""
        leaves, tree = jax.tree.flatten(self.args)
        return jax.tree.unflatten(tree, [_there(x, jax.random.key(n)) for n, x in enumerate(leaves)])


def case_names() -> list[str]:
    """The suite's workloads, and the programs of `benchmarks timeline`."""
    return [*_suite(), *(p.name for p in PROGRAMS)]


def gpu_case(name: str) -> GpuCase:
    """Raises KeyError."""
    if name in _suite():
        problem = _suite()[name].problem(Size.DRAM)
        return GpuCase(problem.function, problem.args, problem.tolerance)
    program = {p.name: p for p in PROGRAMS}[name]
    return GpuCase(program.function, program.args)


@cache
def _suite() -> Mapping[str, Workload]:
    return {w.name: w for workloads in FAMILIES.values() for w in workloads}


def _there(struct: Any, key: Array) -> Array:
    """Of what is drawn: sizes of normal numbers, for second moments are not negative; small whole numbers."""
    if not isinstance(struct, jax.ShapeDtypeStruct):
        return jnp.asarray(struct)
    if jnp.issubdtype(struct.dtype, jnp.integer):
        return jax.random.randint(key, struct.shape, 0, 31).astype(struct.dtype)
    return jnp.abs(jax.random.normal(key, struct.shape, jnp.float32)).astype(struct.dtype)


def tolerance_on_gpu(function: Callable[..., Any], args: Any, tolerance: float) -> float:
    """For float32: where there are products, those of a GPU are rounded as tf32."""
    return max(tolerance, TF32) if "dot_general" in str(jax.make_jaxpr(function)(*args)) else tolerance


def check(name: str) -> Row:
    """Whether both sides of a case agree; plans and kernels are kept then, so that others need no time."""
    begun = time.perf_counter()
    try:
        case = gpu_case(name)
        args = case.on_device()
        since = jstitch.record_count()
        found, expected = jstitch.jit(case.function)(*args), jax.jit(case.function)(*args)
        tolerance = tolerance_on_gpu(case.function, case.structs, case.tolerance)
        row = _compared(found, expected, tolerance) | {"kernels": stitch_count(since)}
    except Exception as error:
        row = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]}
    return {"name": name, **row, "seconds": time.perf_counter() - begun}


def _compared(found: Any, expected: Any, tolerance: float) -> Row:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    differences = [(difference(a, b), allowed(b.dtype, tolerance)) for a, b in pairs]
    far = [found for found, most in differences if not found <= most]
    row: Row = {"difference": max((found for found, _ in differences), default=0.0)}
    return row | ({"error": f"differs from jax.jit by {max(far):.1e} of the largest number"} if far else {})


def difference(a: Array, b: Array) -> float:
    """What `check.require_equal` compares, on the device, in float32: gigabytes would take long elsewhere."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.size == 0:
        return 0.0
    is_float = jnp.issubdtype(b.dtype, jnp.floating)
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    finite = jnp.isfinite(b)
    if not bool(jnp.all(jnp.where(finite, jnp.isfinite(a), (a == b) | (jnp.isnan(a) & jnp.isnan(b))))):
        return float("inf")
    distance = jnp.max(jnp.where(finite, jnp.abs(a - b), 0))
    largest = jnp.max(jnp.where(finite, jnp.abs(b), 0)) if is_float else 1.0
    return float(distance / jnp.maximum(largest, 1e-30))


def check_all(names: list[str], seconds: float) -> Iterator[Row]:
    """Rows of all cases that are checked in that time, in processes side by side."""
    end = time.monotonic() + seconds
    pool = ProcessPoolExecutor(WORKERS, get_context("spawn"))
    jobs = {pool.submit(check, name): name for name in names}
    try:
        for job in as_completed(jobs, timeout=max(1.0, end - time.monotonic())):
            error = job.exception()  # a process that died takes all that wait with it
            yield job.result() if error is None else {"name": jobs[job], "error": f"{error}"}
    except TimeoutError:
        pass
    finally:
        for process in (getattr(pool, "_processes", None) or {}).values():
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)


def measure(names: list[str], seconds: float) -> Iterator[Row]:
    """Rows of kernel times, one case after another; so many at a time are compiled side by side."""
    end = time.monotonic() + seconds
    for first in range(0, len(names), COMPILING):
        some = names[first : first + COMPILING]
        if time.monotonic() > end:
            yield from ({"name": name, "error": "not measured: no time was left"} for name in some)
            continue
        with ThreadPoolExecutor(COMPILING) as pool:
            compiled = list(pool.map(_compiled, some))
        for name, sides in zip(some, compiled, strict=True):
            found = {"error": sides} if isinstance(sides, str) else _guarded(name, *sides)
            yield {"name": name} | found


def _compiled(name: str) -> tuple[Any, Any] | str:
    try:
        case = gpu_case(name)
        jits: tuple[Any, Any] = jax.jit(case.function), jstitch.jit(case.function)
        plain, stitched = (jit.lower(*case.structs).compile() for jit in jits)
        return plain, stitched
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _guarded(name: str, plain: Any, stitched: Any) -> Row:
    try:
        return _measured(name, plain, stitched)
    except NoTimesError:
        return {"error": "not measured: JAX's profiler names no kernel of a GPU"}
    except jax.errors.JaxRuntimeError as error:  # too little memory, say
        return {"error": str(error).splitlines()[0]}


def _measured(name: str, plain: Any, stitched: Any) -> Row:
    args = gpu_case(name).on_device()
    results = jax.block_until_ready(plain(*args))  # type: ignore[no-untyped-call]
    jax.block_until_ready(stitched(*args))  # type: ignore[no-untyped-call]
    nbytes = sum(x.nbytes for x in (*jax.tree.leaves(args), *jax.tree.leaves(results)))
    del results
    theirs, ours = (kernel_times(partial(side, *args)) for side in (plain, stitched))
    sides = {"jax": _side(theirs), "jstitch": _side(ours)}
    ratio = sides["jax"]["seconds"] / sides["jstitch"]["seconds"]
    speed = nbytes / sides["jstitch"]["seconds"]
    return {"io_bytes": nbytes, **sides, "ratio": ratio, "bytes_per_second": speed}


def _side(times: Mapping[str, Any]) -> Row:
    total = sum(t.seconds for t in times.values())
    launches = sum(t.launches for t in times.values())
    return {"seconds": total, "launches": launches, "kernels": {n: asdict(t) for n, t in times.items()}}


@click.command("gpu-times", hidden=True)
@click.argument("names", nargs=-1)
@click.option("--seconds", default=120.0)
@click.option("--json", "path", type=click.Path(path_type=Path), required=True)
def gpu_times_command(names: tuple[str, ...], seconds: float, path: Path) -> None:
    """Kernel times of cases, in this process: what `benchmarks gpu` runs."""
    rows = list(measure(list(names) or case_names(), seconds))
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
