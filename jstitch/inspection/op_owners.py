"""Whose each op of a planned call is: a kernel's, XLA's and why, and who computes it again.

%3 tanh      kernel 0, and again in kernel 2          (0, 2)
%4 dot       XLA's, for the first reason of `why`     (3,), behind kernels 0 to 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.frontend.observe import Observed
from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.op_keys import op_keys
from jstitch.passes.base.plan import Again, FusionPattern, FusionPlan, is_free
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.fuse.follow_pins import Pins
from jstitch.passes.fuse.plan_layers import partition_reason
from jstitch.plan_file import XLA

ALONE = "alone: nothing next to it that a kernel could hold with it"


@dataclass(frozen=True, eq=False)
class Owners:
    """keys: of the ops in program order. whose: of the same, owner first. why: what is XLA's is so."""

    keys: Mapping[Op, str]
    whose: Mapping[Op, tuple[int, ...]]
    why: tuple[str, ...]

    def ops_of(self, owner: int) -> Iterator[Op]:
        """Those that it makes, or computes again."""
        return (op for op, who in self.whose.items() if owner in who)


def find_owners(seen: Observed, patterns: Sequence[FusionPattern], refused: Mapping[Op, str]) -> Owners:
    """patterns: that become kernels. refused: ops of others, and why they do not."""
    assert seen.ready is not None
    search = _Search(patterns, refused, seen.pins)
    for plan in seen.plans:
        search.visit(plan)
    return search.owners(seen.ready)


@dataclass(eq=False)
class _Search:
    """owner: kernel of a value of the graph. again: who computes it again. said: why edges are open."""

    patterns: Sequence[FusionPattern]
    refused: Mapping[Op, str]
    pins: Pins | None
    owner: dict[Value, int] = field(default_factory=dict)
    again: dict[Value, dict[int, None]] = field(default_factory=dict)
    said: dict[Value, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kernel = {op: n for n, p in enumerate(self.patterns) for op in p.ops if not is_free(op)}

    def visit(self, plan: FusionPlan) -> None:
        """A frame's plan: who has its ops, and which of them are copies."""
        for op in plan.frame.ops:
            if is_free(op) or not op.results:
                continue
            first, owner = op.results[0], self.kernel.get(op, XLA)
            if isinstance(first, Again):
                self.again.setdefault(first.of, {})[owner] = None
                continue
            self.owner[first] = owner
            if op in self.refused:
                self.said[first] = self.refused[op]
        for side in ("consumer", "producer"):
            for refusal in plan.refusals:
                op = getattr(refusal, side)
                for v in op.results[:1]:
                    self.said.setdefault(v, f"{refusal.rule}: {refusal.reason}")

    def owners(self, graph: Graph) -> Owners:
        why: dict[str, int] = {}
        whose: dict[Op, tuple[int, ...]] = {}
        for op, around in self._around(graph, XLA):
            first = op.results[0] if op.results else None
            owner = around if around != XLA else self.owner.get(first, XLA) if first else XLA
            if owner == XLA:
                owner = len(self.patterns) + why.setdefault(self._why(op), len(why))
            whose[op] = (owner, *(n for n in self.again.get(first, ()) if n != owner)) if first else (owner,)
        return Owners(op_keys(graph), whose, tuple(why))

    def _around(self, graph: Graph, kernel: int) -> Iterator[tuple[Op, int]]:
        """Ops in order, with the kernel that holds the loop or branch which they are in."""
        for op in graph.ops:
            if is_free(op):
                continue
            yield op, kernel
            inner = kernel if kernel != XLA or not op.results else self.owner.get(op.results[0], XLA)
            for region in op.regions if is_control(op) else ():
                yield from self._around(region, inner)

    def _why(self, op: Op) -> str:
        """What a saved plan said, else why no kernel takes the op, else why none next to it has it."""
        saved = self.pins.why_left(op) if self.pins is not None else None
        own = partition_reason(op)
        said = self.said.get(op.results[0], ALONE) if op.results else ALONE
        return saved or (f"{own.rule}: {own}" if own is not None else said)
