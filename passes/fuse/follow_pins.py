"""Find a saved plan's kernels in a graph, and make them the patterns of its frames.

    saved:   k0 {mul.4f1a, add.09bc}, left {dot.77aa}          the same graph: op by op
    graph:   mul.4f1a, dot.77aa, tanh.c3d2, add.09bc           else: by a diff of both; k0's ops are no longer
                                                               connected as they were, so k0 is planned anew

A kernel is found where all its ops are, joined as they were. What the plan leaves to XLA stays XLA's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.op_keys import graph_key, op_keys, pattern_key
from jstitch.passes.base.plan import Again, FusionPattern, FusionPlan, is_free, make_patterns, with_constants
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.passes.fuse.check_plan import waiting_patterns
from jstitch.plan_file import XLA, PinnedCall

OTHERWISE = "its ops are joined otherwise, or others read what they make"
HELD = "the loop or branch around it is part of a kernel"
LONG = 4000  # ops of both graphs, above which common ones are no anchors of the diff


@dataclass(frozen=True)
class PinnedFrame:
    """A frame, in which ops are copied that kernels compute again. left: op -> why it stays XLA's."""

    frame: Graph
    patterns: tuple[FusionPattern, ...]
    left: Mapping[Op, str]


@dataclass(eq=False)
class Pins:
    """A saved call, matched with a graph.

    keys: of all ops of the graph. found: of the saved ops, in order. lost: kernel -> why it is planned anew.
    """

    call: PinnedCall
    graph: Graph
    keys: Mapping[Op, str]
    found: Sequence[Op | None]
    lost: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.owners = self.call.owners
        self._whose = {op: who for op, who in zip(self.found, self.owners, strict=True) if op is not None}
        self._of_value = {op.results[0]: op for op in self._whose if op.results}
        for op, who in zip(self.found, self.owners, strict=True):
            if op is None:
                self.lost |= {n: "ops of it are gone" for n in self._kernels(who)}
        self._holder = dict(self._held(self.graph))
        kept = {p.pinned for frame in _frames(self.graph) for p in self.frame(frame).patterns}
        for n, kernel in enumerate(self.call.kernels):
            if kernel not in kept:
                self.lost.setdefault(n, OTHERWISE)

    def _kernels(self, who: Sequence[int]) -> list[int]:
        return [n for n in who if 0 <= n < len(self.call.kernels)]

    def _held(self, graph: Graph) -> Iterator[tuple[Value, int]]:
        """Values inside loops and branches that are part of a kernel, and the kernel."""
        for op in filter(is_control, graph.ops):
            owner, *_ = self.whose(op) or (XLA,)
            for region in op.regions:
                if 0 <= owner < len(self.call.kernels):
                    yield from ((v, owner) for inner in region.walk() for v in inner.results)
                else:
                    yield from self._held(region)

    def frame(self, frame: Graph) -> PinnedFrame:
        """What the plan says of one frame of the graph. Kernels that are not there any more are `lost`."""
        while True:
            made = self._made(frame)
            if not made.bad:
                return PinnedFrame(made.graph, made.patterns, dict(self._left(made.graph)))
            self.lost.update(made.bad)

    def _made(self, frame: Graph) -> _Made:
        copier = _Copier(self, self._again(frame))
        copier.begin(XLA)
        for op in frame.ops:
            copier.visit(op)
        graph = Graph(frame.inputs, sort_ops(copier.ops), frame.outputs) if copier.again else frame
        producers = graph.producers()
        numbers = sorted(copier.groups)
        groups = [with_constants(copier.groups[n], producers) for n in numbers]
        kernels = [self.call.kernels[n] for n in numbers]
        patterns = tuple(
            replace(p, origin=kernel.origin, template=kernel.template, pinned=kernel)
            for p, kernel in zip(make_patterns(graph, groups, "pinned"), kernels, strict=True)
        )
        return _Made(graph, patterns, self._bad(graph, numbers, patterns))

    def _again(self, frame: Graph) -> dict[int, list[Op]]:
        """Ops that each kernel, or XLA, computes again."""
        found: dict[int, list[Op]] = {}
        for op in frame.ops:
            for reader in () if is_free(op) else (self.whose(op) or ())[1:]:
                if reader not in self.lost:
                    found.setdefault(reader, []).append(op)
        return found

    def maker(self, op: Op) -> int:
        """The kernel that has the op as it is, or XLA."""
        owner = XLA if is_free(op) or self._is_held(op) else (self.whose(op) or (XLA,))[0]
        return owner if owner < len(self.call.kernels) and owner not in self.lost else XLA

    def _bad(
        self, graph: Graph, numbers: Sequence[int], patterns: Sequence[FusionPattern]
    ) -> Mapping[int, str]:
        """Kernels that are not the saved ones, and why."""
        both = zip(numbers, patterns, strict=True)
        found = {n: OTHERWISE for n, p in both if pattern_key(p) != self.call.kernels[n].id}
        if found:
            return found
        waiting = waiting_patterns(FusionPlan(graph, tuple(patterns)))
        return {numbers[max(waiting)]: "ops that it waits for would wait for it"} if waiting else {}

    def _left(self, graph: Graph) -> Iterator[tuple[Op, str]]:
        for op in graph.ops:
            why = HELD if self._is_held(op) else self.why_left(op)
            if why is not None and op.results and not is_free(op):
                yield op, why

    def _is_held(self, op: Op) -> bool:
        """Whether a loop or branch around it is part of a kernel."""
        return bool(op.results) and self._holder.get(op.results[0], XLA) not in (XLA, *self.lost)

    def why_left(self, op: Op) -> str | None:
        """Why the plan leaves an op to XLA; None where it does not."""
        owner, *_ = self.whose(op) or (XLA,)
        first = len(self.call.kernels)
        return self.call.left[owner - first].why if owner >= first else None

    def whose(self, op: Op) -> tuple[int, ...] | None:
        """Who makes an op, and who computes it again; None for one that the plan does not know."""
        known = self._of_value.get(op.results[0]) if op.results else op
        return None if known is None else self._whose.get(known)

    @property
    def new(self) -> list[Op]:
        """Ops that the plan does not know."""
        return [op for op in self.keys if op not in self._whose]

    def gone(self) -> list[tuple[str, str]]:
        """Saved ops that the graph does not have, with their source lines."""
        return [old for old, op in zip(self.call.sequence, self.found, strict=True) if op is None]


def match_pins(call: PinnedCall, graph: Graph) -> Pins:
    """Both op by op, where the graph is the saved one; else by a diff of them."""
    keys = op_keys(graph)
    new, saved = list(keys), [op for op, _ in call.sequence]
    if graph_key(graph) == call.graph and [*keys.values()] == saved:
        return Pins(call, graph, keys, new)
    junk = len(saved) + len(new) > LONG
    matcher = SequenceMatcher(None, saved, [*keys.values()], autojunk=junk)
    found: list[Op | None] = [None] * len(saved)
    for i, k, size in matcher.get_matching_blocks():
        found[i : i + size] = new[k : k + size]
    return Pins(call, graph, keys, found)


def _frames(graph: Graph) -> Iterator[Graph]:
    """The outer ones first: what is lost there is planned inside."""
    yield graph
    for op in filter(is_control, graph.ops):
        for region in op.regions:
            yield from _frames(region)


@dataclass(frozen=True)
class _Made:
    """bad: kernels that are none, and why."""

    graph: Graph
    patterns: tuple[FusionPattern, ...]
    bad: Mapping[int, str]


@dataclass(eq=False)
class _Copier:
    """Ops of a frame with copies for those who compute them again, before the first of their own; as
    `recompute_outputs` has them. again: what each computes again. groups: ops of each kernel."""

    pins: Pins
    again: Mapping[int, Sequence[Op]]
    ops: list[Op] = field(default_factory=list)
    groups: dict[int, list[Op]] = field(default_factory=dict)
    values: dict[int, dict[Value, Value]] = field(default_factory=dict)

    def visit(self, op: Op) -> None:
        maker = self.pins.maker(op)
        if maker not in self.values:
            self.begin(maker)
        self._put(maker, self._reading(op, maker))

    def begin(self, maker: int) -> None:
        """Copies come before the first op that reads them."""
        values = self.values[maker] = {}
        for copied in self.again.get(maker, ()):
            made = tuple(Again(v.type, v) for v in copied.results)
            self._put(maker, replace(self._reading(copied, maker), results=made))
            values.update(zip(copied.results, made, strict=True))

    def _put(self, maker: int, op: Op) -> None:
        self.ops.append(op)
        if maker != XLA:
            self.groups.setdefault(maker, []).append(op)

    def _reading(self, op: Op, maker: int) -> Op:
        """The op on the copies of whoever makes it."""
        values = self.values[maker]
        if values.keys().isdisjoint(op.operands):
            return op
        return replace(op, operands=tuple(values.get(v, v) for v in op.operands))
