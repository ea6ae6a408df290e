"""What one stitched call became, stage by stage, kept for those who ask: plan, explain, report, run.

with observing() as calls:              # this thread's lowerings, while the block is open
    jstitch.jit(f).lower(*args)
calls[0].plans[-1].refusals, calls[0].built[0].kernel
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from jstitch.codegen.kernel_ir import Kernel
from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context, Span
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.run_passes import Step
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.follow_pins import Pins
from jstitch.runtime.report import note


@dataclass(frozen=True, eq=False)
class Built:
    """A pattern that became a kernel, and the text that the target's compiler was given."""

    pattern: FusionPattern
    name: str
    kernel: Kernel
    text: str


@dataclass(eq=False)
class Observed:
    """One stitched call.

    context: the options, and the target that it was lowered for. kernels: whether patterns become kernels, or
    all is left as it is once it is planned. graph: as it was imported. steps: after each pass. ready: as it
    is planned: the plans' frames have the same values. pins: of a saved plan; pinned: what is said of them.
    spans: when passes of all kinds ran.
    plans: of every frame, those of inner loops first, the whole call's last; their frames may hold copies of
    the last step's ops. built: kernels, in program order within a frame. refused: patterns that stay XLA's
    after all, and why. stitched: the graph with `jstitch.kernel` ops; None when the pipeline did not end.
    """

    name: str
    context: Context
    kernels: bool = True
    graph: Graph | None = None
    steps: list[Step[Graph]] = field(default_factory=list)
    ready: Graph | None = None
    pins: Pins | None = None
    pinned: tuple[str, ...] = ()
    spans: list[Span] = field(default_factory=list)
    plans: list[FusionPlan] = field(default_factory=list)
    built: list[Built] = field(default_factory=list)
    refused: list[tuple[FusionPattern, Reason]] = field(default_factory=list)
    stitched: Graph | None = None

    @property
    def options(self) -> CompileOptions:
        return self.context.options

    @property
    def profile(self) -> Profile:
        return self.context.profile

    def beside(self) -> Observed:
        """The same call, to be stitched in another way."""
        return Observed(self.name, self.context, self.kernels, self.graph, self.steps)

    def become(self, other: Observed | None, why: Reason) -> None:
        """What the other way led to; None: nothing is stitched after all, and why."""
        if other is not None:
            self.ready, self.plans = other.ready, other.plans
            self.built, self.refused = other.built, other.refused
            return
        patterns = (p for plan in self.plans for p in absorb_updates(plan, self.context).patterns)
        refused = {pattern for pattern, _ in self.refused}
        self.refused += [(pattern, why) for pattern in patterns if pattern not in refused]
        self.built = []


class _Open(threading.local):
    """Lists that this thread's lowerings are appended to, innermost last."""

    def __init__(self) -> None:
        self.lists: list[tuple[list[Observed], bool]] = []
        self.depth = 0


_open = _Open()


@contextmanager
def observing(*, kernels: bool = True) -> Iterator[list[Observed]]:
    """Collect what this thread's stitched calls become while the block is open.

    kernels: make kernels of the plans, too; compiling them takes most of the time.
    """
    calls: list[Observed] = []
    _open.lists.append((calls, kernels))
    try:
        yield calls
    finally:
        _open.lists.pop()


@contextmanager
def enclosing() -> Iterator[None]:
    """Around the lowering of what a stitched call holds: calls that begin meanwhile are inside it."""
    _open.depth += 1
    try:
        yield
    finally:
        _open.depth -= 1


def is_enclosed() -> bool:
    """Whether the call that is being lowered is inside another stitched one."""
    return _open.depth > 0


def needs_stand_in() -> bool:
    """Whether the latest call, planned only, would hide its patterns from a call around it as kernels do."""
    if not _open.lists or not _open.depth:
        return False
    calls, kernels = _open.lists[-1]
    return not kernels and bool(calls) and any(plan.patterns for plan in calls[-1].plans)


def begin(name: str, context: Context) -> Observed | None:
    """The observation of one call, None when nobody looks. The call's record has its number as `observed`."""
    if not _open.lists:
        return None
    calls, kernels = _open.lists[-1]
    seen = Observed(name, context, kernels)
    note(observed=len(calls))
    calls.append(seen)
    return seen
