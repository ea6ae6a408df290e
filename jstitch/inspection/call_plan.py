"""The plan of a stitched call in numbers: patterns by frames, and what they cost, XLA's and ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.frontend.observe import Observed
from jstitch.inspection.kernel_facts import KernelFacts
from jstitch.passes.base.plan import Reason


@dataclass(frozen=True)
class Cost:
    """launches: kernels (XLA's), or launches on a GPU and calls on a CPU (ours). seconds: modelled."""

    launches: int = 0
    nbytes: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.launches + other.launches, self.nbytes + other.nbytes, self.seconds + other.seconds)


@dataclass(frozen=True)
class PatternPlan:
    """A pattern. name: its kernel's. ops: how many of which. where: the last op's source line. origin: the
    pass that made it. xla, ours: the same ops as XLA's kernels and as one of ours.

    kernel: None where no kernel holds the pattern after all, and `refused` says why.
    """

    name: str
    ops: dict[str, int]
    where: str
    origin: str
    xla: Cost
    ours: Cost
    kernel: KernelFacts | None
    refused: Reason | None = None

    @property
    def size(self) -> int:
        return sum(self.ops.values())


@dataclass(frozen=True)
class FramePlan:
    """The call itself, or a region of a loop or branch. ops: but for constants. left: those in no pattern.

    chunks: of large products, by which rows they are made in chunks, or why they are made as a whole.
    """

    title: str
    ops: int
    left: dict[str, int]
    patterns: tuple[PatternPlan, ...]
    chunks: tuple[str, ...] = ()


@dataclass(frozen=True)
class CallPlan:
    """A stitched call. reason: why all of it stays XLA's, if it does. pinned: what became of a saved plan."""

    name: str
    frames: tuple[FramePlan, ...]
    reason: str | None = None
    pinned: tuple[str, ...] = ()


def target_name(seen: Sequence[Observed]) -> str:
    """'cpu' or a GPU's name; 'none' where no call was planned."""
    if not seen:
        return "none"
    device = seen[0].profile.machine.device
    return device.name if device else "cpu"
