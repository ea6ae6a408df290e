"""Measure one family of workloads in this process; one JSON line per workload and size on stdout."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax

import jstitch
from benchmarks import timing, twins
from benchmarks.check import require_equal
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.workload import Problem, Size, Workload
from jstitch.demo.hlo import program_cost

Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How to measure: subject, sizes, seconds per workload and size, which of the two ways."""

    side: Side
    sizes: tuple[Size, ...]
    seconds: float
    interleaved: bool = True
    alone: bool = True


def emit(rows: Iterator[Row]) -> None:
    for row in rows:
        print(json.dumps(row), flush=True)


def compare(workloads: tuple[Workload, ...], settings: Settings) -> Iterator[Row]:
    """Rows of `jax.jit` against the subject: seconds, ratios, kernels; or the error met instead."""
    for workload in workloads:
        for size in settings.sizes:
            row = {"workload": workload.name, "size": size.value}
            yield row | _guarded(partial(_compare, workload, size, settings))
            jax.clear_caches()  # type: ignore[no-untyped-call]


def torch_twins(workloads: tuple[Workload, ...], settings: Settings) -> Iterator[Row]:
    """Rows with the seconds of the `torch.compile` twins, each checked against JAX first."""
    for workload in workloads:
        if workload.torch is None:
            continue
        for size in settings.sizes:
            row = {"workload": workload.name, "size": size.value}
            yield row | _guarded(partial(_twin, workload, size, settings))


def _guarded(measure: Callable[[], Row]) -> Row:
    try:
        return measure()
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def _compare(workload: Workload, size: Size, settings: Settings) -> Row:
    problem = workload.problem(size)
    plain, stitched = jax_jit(problem), subject_jit(problem, settings.side)
    expected = plain(*problem.fresh_args())
    since = jstitch.record_count()
    worst = require_equal(stitched(*problem.fresh_args()), expected, problem.tolerance, settings.side.value)
    del expected
    row: Row = {"io_bytes": problem.io_bytes, "max_difference": worst, "tuning": _tuning(since)}
    row |= _kernels(problem, plain, stitched)
    steps = timing.JaxStep(plain, problem), timing.JaxStep(stitched, problem)
    ways = settings.interleaved + settings.alone
    if settings.interleaved:
        pairs = timing.interleaved(*steps, settings.seconds / ways)
        row["interleaved"] = _times(pairs.first, pairs.second, pairs.ratio)
    if settings.alone:
        reference, subject = timing.alone(steps, settings.seconds / ways / 2)
        row["alone"] = _times(reference, subject, reference.median / subject.median)
    return row


def _tuning(since: int) -> list[str]:
    """What CompileOptions(tune="measure") decided, and why."""
    records = jstitch.last_report(since)
    return [str(decision) for record in records for decision in record.details.get("tuning", ())]


def _times(reference: timing.Timing, subject: timing.Timing, ratio: float) -> Row:
    return {"jax": asdict(reference), "jstitch": asdict(subject), "ratio": ratio}


def _kernels(problem: Problem, reference: Callable[..., Any], subject: Callable[..., Any]) -> Row:
    before, after = (program_cost(_optimized(jitted, problem)) for jitted in (reference, subject))
    return {
        "stitched_kernels": len(after.stitched),
        "jax_kernels": len(before.kernels),
        "jstitch_kernels": len(after.kernels),
        "jax_kernel_bytes": before.nbytes,
        "jstitch_kernel_bytes": after.nbytes,
    }


def _optimized(jitted: Any, problem: Problem) -> str:
    return str(jitted.lower(*problem.args).compile().as_text())


def _twin(workload: Workload, size: Size, settings: Settings) -> Row:
    problem = workload.problem(size)
    expected = jax.tree.leaves(jax.jit(problem.function)(*problem.args))
    assert workload.torch is not None
    step = twins.finished(workload.torch(problem.args))
    outputs = step()
    found = [leaf.cpu().numpy() for leaf in (outputs if isinstance(outputs, tuple | list) else [outputs])]
    require_equal(found, expected[: len(found)], max(problem.tolerance, 1e-4), "torch")
    (taken,) = timing.alone([step], settings.seconds / 2)
    return {"torch": asdict(taken)}
