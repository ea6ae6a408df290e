"""`jax.jit` and `jstitch.jit` of one function, checked against each other and raced.

sides = prepare(subject, options)         compiled, both
check(sides)                              whether they compute the same
race_both(sides, 5.0)                     in turn: Race of runtime/race.py
race_alone(sides, 5.0)                    each in runs of its own, which take turns against drift

XLA frees a program's temporaries after its result is ready: in turn the next call, whoever's, pays for them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from ml_dtypes import finfo

from jstitch.api import jit
from jstitch.cli.subjects import FunctionSubject, ModuleSubject, Subject
from jstitch.frontend.importer import import_module
from jstitch.frontend.jitted import Jitted
from jstitch.frontend.mlir import ir
from jstitch.frontend.probe import program_p
from jstitch.inspection.compare import OutputComparison, compare
from jstitch.inspection.execute import program_of_module, random_arguments
from jstitch.inspection.lowered import dynamic_arguments, lower_function
from jstitch.inspection.subject import platform_of
from jstitch.options import CompileOptions
from jstitch.runtime.race import Race, race
from jstitch.runtime.report import last_report, record_count, stitch_count

TURNS = 3  # runs of each side alone
CLOSE = 5e-5  # of an output's largest element


@dataclass(frozen=True)
class Times:
    """Seconds per call: the median, the first and third quartile, of so many samples."""

    median: float
    low: float
    high: float
    samples: int

    @staticmethod
    def of(samples: Sequence[float]) -> Times:
        values = samples if samples[1:] else [*samples, *samples]
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return Times(median, low, high, len(samples))


class Step:
    """One call to the end. Arguments that a call uses up are taken from its results for the next one."""

    def __init__(self, jitted: Any, args: Any) -> None:
        leaves, self._tree = jax.tree.flatten(args)
        self._leaves = [jax.device_put(x, may_alias=False) if _is_array(x) else x for x in leaves]
        self._jitted = jitted

    def __call__(self) -> Any:
        args, kwargs = jax.tree.unflatten(self._tree, self._leaves)
        results = jax.block_until_ready(self._jitted(*args, **kwargs))  # type: ignore[no-untyped-call]
        self._replace(jax.tree.leaves(results))
        return results

    def _replace(self, results: list[Any]) -> None:
        for n, leaf in enumerate(self._leaves):
            if isinstance(leaf, jax.Array) and leaf.is_deleted():
                kind = leaf.shape, leaf.dtype
                taken = next(k for k, r in enumerate(results) if (r.shape, r.dtype) == kind)
                self._leaves[n] = results.pop(taken)


@dataclass(frozen=True)
class Sides:
    """Both programs. args: (positional, by name). given: arguments of `module`."""

    plain: Any
    stitched: Any
    args: Any
    module: ir.Module
    given: Sequence[np.ndarray]

    def steps(self) -> tuple[Step, Step]:
        """With arrays of their own."""
        return Step(self.plain, self.args), Step(self.stitched, self.args)


def prepare(subject: Subject, options: CompileOptions) -> Sides:
    """Raises what tracing raises."""
    match subject:
        case ModuleSubject(_, module):
            program = program_of_module(module).program
            given = _made_up(module)
            bound: Callable[..., Any] = partial(program_p.bind, program=program)
            plain, stitched = jax.jit(bound), jit(bound, options=options)
            return Sides(plain, stitched, (tuple(given), {}), module, given)
        case FunctionSubject(_, f, args, kwargs):
            jitted = Jitted.of(f)
            module, known = lower_function(f, args, kwargs, platform_of(options))
            given = _made_up(module) if known is None else known
            filled = _fill(
                (args, dict(kwargs)), jax.tree.leaves(dynamic_arguments(jitted, args, kwargs)), given
            )
            function, settings = jitted.function, dict(jitted.settings)
            plain, stitched = jax.jit(function, **settings), jit(function, options=options, **settings)
            return Sides(plain, stitched, filled, module, given)


def _made_up(module: ir.Module) -> list[np.ndarray]:
    return random_arguments(import_module(module), 0, jax.devices()[0], positive=True)


def _fill(args: Any, leaves: Sequence[Any], arrays: Sequence[np.ndarray]) -> Any:
    """Arrays in the place of `jax.ShapeDtypeStruct`s; all of these are dynamic arguments."""
    made = iter([a for leaf, a in zip(leaves, arrays, strict=True) if isinstance(leaf, jax.ShapeDtypeStruct)])
    return jax.tree.map(lambda x: next(made) if isinstance(x, jax.ShapeDtypeStruct) else x, args)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


@dataclass(frozen=True)
class Checked:
    """complaint: how results differ, None where they do not. worst: their largest difference, relative to the
    largest element of its output. kernels: that were stitched. reasons: why there are no more."""

    complaint: str | None
    worst: float
    kernels: int
    reasons: tuple[str, ...]
    result_bytes: int


def check(sides: Sides) -> Checked:
    """Run both once and compare what they return."""
    since = record_count()
    plain, stitched = sides.steps()
    xla, ours = ([np.array(r) for r in jax.tree.leaves(step())] for step in (plain, stitched))
    outputs = [(o, _relative(o, x)) for o, x in zip(compare(ours, xla).outputs, xla, strict=True)]
    wrong = (_complaint(o, found, x.dtype) for (o, found), x in zip(outputs, xla, strict=True))
    reasons = tuple(dict.fromkeys(r.reason for r in last_report(since) if r.reason))
    worst = max((found for _, found in outputs), default=0.0)
    nbytes = sum(r.nbytes for r in xla)
    return Checked(next(filter(None, wrong), None), worst, stitch_count(since), reasons, nbytes)


def _relative(output: OutputComparison, xla: np.ndarray) -> float:
    """Its largest difference over its largest element."""
    size = np.abs(np.where(np.isfinite(xla), xla, 0).astype(np.float64)).max(initial=0.0)
    return output.max_abs / float(size) if output.max_abs and size else output.max_abs


def _complaint(output: OutputComparison, found: float, dtype: np.dtype[Any]) -> str | None:
    """Floats may be CLOSE, and a step of their type apart; all else must be equal."""
    if output.wrong is None:
        return None
    where = f"output {output.number}, {output.type}"
    if output.nans or output.infs or output.ulps is None:
        return f"{where}: {output.wrong}"
    narrow = float(finfo(dtype).eps) if dtype.itemsize < 4 else 0.0
    allowed = CLOSE + 2 * narrow
    return None if found <= allowed else f"{where}: {found:.1e} of its largest element apart"


def race_both(sides: Sides, seconds: float) -> Race:
    """In turn, until the order is clear or the time is over."""
    return race(sides.steps(), seconds)


def race_alone(sides: Sides, seconds: float) -> tuple[Times, Times]:
    """Of plain and stitched."""
    steps = sides.steps()
    samples: tuple[list[float], list[float]] = [], []
    for _ in range(TURNS):
        for step, taken in zip(steps, samples, strict=True):
            found = race([step], seconds / TURNS / len(steps))
            taken += (times[0] for times in found.rounds)
    return Times.of(samples[0]), Times.of(samples[1])


def times_of(found: Race) -> tuple[Times, Times]:
    """Of plain and stitched, over rounds."""
    plain, stitched = zip(*found.rounds, strict=True)
    return Times.of(plain), Times.of(stitched)
