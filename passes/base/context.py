"""What a pass must know besides what it changes: the options, the target's profile, the graph's program.

    run(value, Context(CompileOptions(), CPU))         every pass, whatever it takes and gives

Functions inside a pass take the least that they need: the profile, or the machine. Nothing has a default
target, or asks for one that somebody else has set: what is remembered of one target must not be taken for
another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from jstitch.codegen.kernel_ir import Kernel
from jstitch.ir.graph import Op
from jstitch.ir.reason import Reason
from jstitch.ir.schedule import Schedule
from jstitch.options import CompileOptions
from jstitch.passes.base.hashed_once import hashed_once
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.profile import Profile

OpTimes = Callable[[Op, Schedule], float]
S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Returned:
    """Where a graph stands in its program.

    owned: inputs that are the program's own arguments, by number. homes: inputs whose memory the caller gives
    away -> the output that takes it, None where XLA may choose.
    """

    owned: Collection[int]
    homes: Mapping[int, int | None]


@dataclass(frozen=True)
class Lost:
    """Kernels without which the program was faster in races: their `kernel_key`s, and each one's reason."""

    kernels: tuple[tuple[str, Reason], ...] = ()

    def why(self, key: str) -> Reason | None:
        return dict(self.kernels).get(key)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(key for key, _ in self.kernels)

    def and_also(self, keys: Iterable[str], why: Reason) -> Lost:
        return Lost((*self.kernels, *((key, why) for key in keys)))


@dataclass(frozen=True)
class Span:
    """A pass that ran. gives: the form of its result. begun, ended: seconds of `time.perf_counter`."""

    name: str
    gives: str
    begun: float
    ended: float


@hashed_once
@dataclass(frozen=True)
class Context:
    """options: the user's. profile: what the target wants. returned: None where the graph is a part.

    times: seconds of an op under a schedule, as a performance library has them; None: the analytic model's.
    clock: seconds of a kernel on the target, which is here; None: the latency-evaluator's.
    lost: what races took out. bold: patterns that the model is not sure of stay, too, as a race said.
    watch: is told of every pass that has run, of those inside others first.
    """

    options: CompileOptions
    profile: Profile
    returned: Returned | None = None
    times: OpTimes | None = None
    clock: Callable[[Kernel], float] | None = None
    lost: Lost = Lost()
    bold: bool = False
    watch: Callable[[Span], None] | None = field(default=None, compare=False)

    @property
    def machine(self) -> Machine:
        return self.profile.machine


def on_any_target(change: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, Context, P], R]:
    """The pass that does the same whatever the context."""

    @functools.wraps(change)
    def run(subject: S, context: Context, /, *args: P.args, **options: P.kwargs) -> R:
        return change(subject, *args, **options)

    return run
