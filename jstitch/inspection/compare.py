"""How far two runs of a program are apart, output by output, and whether the numerics rule allows it.

compare(ours, xla, reference)   ->   Comparison; .same, .outputs[0].ulps.most, .as_dict()
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from jstitch.inspection.numerics import alike, blind_difference, difference, program_difference, ulp
from jstitch.inspection.reference import Reference
from jstitch.ir.types import DType, TensorType

SHARES = (1, 4, 16)  # ulps


@dataclass(frozen=True)
class Ulps:
    """Distances of ours from XLA's, in units in the last place of the larger one, where both are finite.

    median: of the elements that differ. above: ulps -> the share of all elements that is further off.
    """

    most: float
    median: float
    above: Mapping[int, float]


@dataclass(frozen=True)
class First:
    """The first element, in row-major order, whose value differs."""

    index: tuple[int, ...]
    ours: str
    xla: str
    exact: str | None


@dataclass(frozen=True)
class OutputComparison:
    """One output. wrong: what the numerics rule objects to, None where it is satisfied.

    differing: elements with another value. nans, infs: elements that are NaN (infinite) on one side only.
    max_rel: the largest difference relative to XLA's element. ulps: of floats. xla_error, our_error: the
    largest error against the float64 reference, None without one.
    """

    number: int
    type: str
    elements: int
    differing: int
    wrong: str | None
    max_abs: float = 0.0
    max_rel: float = 0.0
    ulps: Ulps | None = None
    nans: int = 0
    infs: int = 0
    first: First | None = None
    xla_error: float | None = None
    our_error: float | None = None

    @property
    def nearer(self) -> str | None:
        """Who is nearer to the float64 reference: 'ours' or 'xla'; None when both are as near, or unknown."""
        if self.xla_error is None or self.our_error is None or self.xla_error == self.our_error:
            return None
        return "ours" if self.our_error < self.xla_error else "xla"


@dataclass(frozen=True)
class Comparison:
    """All outputs. reference: who computed the float64 answers, or why nobody did. failure: why ours has no
    results at all."""

    outputs: tuple[OutputComparison, ...]
    reference: str
    failure: str | None = None

    @property
    def same(self) -> bool:
        """Whether the numerics rule is satisfied everywhere."""
        return self.failure is None and all(output.wrong is None for output in self.outputs)

    @property
    def complaint(self) -> str | None:
        """The first thing that is wrong, None if nothing is."""
        wrong = (f"output {o.number}: {o.wrong}" for o in self.outputs if o.wrong is not None)
        return self.failure or next(wrong, None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        outputs = [{**asdict(o), "same": o.wrong is None, "nearer": o.nearer} for o in self.outputs]
        return {
            "same": self.same,
            "reference": self.reference,
            "failure": self.failure,
            "outputs": outputs,
        }


def compare(
    ours: Sequence[np.ndarray], xla: Sequence[np.ndarray], reference: Reference | None = None
) -> Comparison:
    """Judge `ours` next to `xla` by the numerics rule; without a reference, by BLIND_ULPS."""
    known = reference or Reference("no float64 reference", None)
    pairs = enumerate(zip(ours, xla, strict=True))
    return Comparison(tuple(_output(n, a, b, known) for n, (a, b) in pairs), known.how)


def failed(reason: str) -> Comparison:
    """Ours has no results."""
    return Comparison((), "", reason)


def _output(number: int, ours: np.ndarray, xla: np.ndarray, reference: Reference) -> OutputComparison:
    type_ = str(TensorType(xla.shape, DType.of(xla.dtype)))
    if ours.shape != xla.shape or ours.dtype != xla.dtype:
        found = TensorType(ours.shape, DType.of(ours.dtype))
        return OutputComparison(number, type_, xla.size, xla.size, f"expected {type_}, found {found}")
    elements = xla.size
    if DType.of(xla.dtype).is_complex:
        ours, xla = (_real_parts(a) for a in (ours, xla))
    with np.errstate(all="ignore"):
        return replace(_measured(number, type_, ours, xla, reference), elements=elements)


def _real_parts(a: np.ndarray) -> np.ndarray:
    """Real and imaginary parts, in a last dimension of their own."""
    return np.stack([a.real, a.imag], -1)


def _measured(
    number: int, type_: str, ours: np.ndarray, xla: np.ndarray, reference: Reference
) -> OutputComparison:
    a, b = ours.astype(np.float64), xla.astype(np.float64)
    # Integers beyond 2^53 may be told apart as integers only.
    off = ~alike(a, b) | (ours != xla) & ~(np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    distance = np.where(finite & off, np.abs(a - b), 0.0)
    exact = None if reference.arrays is None else reference.arrays[number][0]
    return OutputComparison(
        number=number,
        type=type_,
        elements=xla.size,
        differing=int(off.sum()),
        wrong=_judge(number, ours, xla, reference),
        max_abs=_most(distance),
        max_rel=_most(np.where(distance > 0, distance / np.maximum(np.abs(b), np.finfo(float).tiny), 0.0)),
        ulps=_ulps(a, b, distance, xla.dtype) if DType.of(xla.dtype).is_float else None,
        nans=int((np.isnan(a) != np.isnan(b)).sum()),
        infs=int(((np.isinf(a) | np.isinf(b)) & (a != b) & ~np.isnan(a) & ~np.isnan(b)).sum()),
        first=_first(off, ours, xla, exact),
        xla_error=_error(b, exact),
        our_error=_error(a, exact),
    )


def _judge(number: int, ours: np.ndarray, xla: np.ndarray, reference: Reference) -> str | None:
    """By element; where that objects, by block, which takes more runs of the reference."""
    if ours.tobytes() == xla.tobytes():
        return None
    if reference.arrays is None:
        return blind_difference(ours, xla)
    exact, *others = reference.arrays[number]
    if difference(ours, xla, exact, *others) is None:
        return None
    return program_difference(ours, xla, exact, *reference.nearby()[number], *others)


def _most(x: np.ndarray) -> float:
    return float(np.max(x, initial=0.0))


def _ulps(a: np.ndarray, b: np.ndarray, distance: np.ndarray, dtype: np.dtype[np.generic]) -> Ulps:
    size = np.maximum(*(np.abs(np.where(np.isfinite(x), x, 0)) for x in (a, b)))
    steps = distance / ulp(size, dtype)
    apart = steps[steps > 0]
    median = float(np.median(apart)) if apart.size else 0.0
    return Ulps(_most(steps), median, {n: float((steps > n).mean()) if steps.size else 0.0 for n in SHARES})


def _first(off: np.ndarray, ours: np.ndarray, xla: np.ndarray, exact: np.ndarray | None) -> First | None:
    if not off.any():
        return None
    at = tuple(map(int, np.unravel_index(int(np.argmax(off)), off.shape)))
    return First(at, str(ours[at]), str(xla[at]), None if exact is None else str(exact[at]))


def _error(found: np.ndarray, exact: np.ndarray | None) -> float | None:
    """The largest, where both are finite; infinite where only one is."""
    if exact is None:
        return None
    true = exact.astype(np.float64)
    finite = np.isfinite(found) & np.isfinite(true)
    if (~finite & ~alike(found, true)).any():
        return math.inf
    return _most(np.where(finite, np.abs(found - true), 0.0))
