"""Where what a launch touches is, numbers of threads and CTAs, and what is asked of numbers."""

from __future__ import annotations

from dataclasses import dataclass

from jstitch.ir.index import Index, Var, var

MOST_CTAS = (1 << 31) - 1  # of a grid's first dimension
THREAD = var(Var("thread()", 1024))
"""The thread's number in its CTA."""
CTA = var(Var("block()", MOST_CTAS))
"""The CTA's number in the grid."""
FAR = 1 << 62  # of numbers whose range nobody asks for
PROGRAM = var(Var("p", FAR))
"""The number of the CTA, or of the task on a CPU, among those of its lane."""
TASK = var(Var("program", FAR))
"""The number of the task in its phase, on a CPU."""


@dataclass(frozen=True)
class Global:
    """A buffer, by the name of its pointer. invariant: nobody writes it while the launch runs."""

    pointer: str
    invariant: bool = False


@dataclass(frozen=True)
class Shared:
    """The shared memory of the CTA, from byte `base` on."""

    base: Index


@dataclass(frozen=True)
class Apart:
    """A buffer, by the name of its pointer, on a CPU. scope: buffers of two numbers share no byte."""

    pointer: str
    scope: int


Memory = Global | Shared | Apart


@dataclass(frozen=True)
class Elements:
    """Neighbours of an array of registers, from `first` on."""

    array: str
    first: Index


@dataclass(frozen=True)
class Less:
    """left < right"""

    left: Index
    right: Index


@dataclass(frozen=True)
class Equal:
    """left == right"""

    left: Index
    right: Index


@dataclass(frozen=True)
class IsSet:
    """A flag."""

    name: str


Test = Less | Equal | IsSet
