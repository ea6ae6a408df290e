"""What the planner decides: patterns, and a reason for every edge that was not fused.

FusionPlan    ::= patterns: FusionPattern*  refusals: NoFuse*
FusionPattern ::= ops in program order, inputs, outputs, score
Score         ::= seconds saved: memory + calls - penalty             FS-2021 section 5.4, FS-2019 section 4.3
Schedule      ::= (split_dim, sword, Row | Column)                    FS-2018 section 4.1
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OPS, OpClass
from jstitch.ir.ops.build import is_splat
from jstitch.ir.reason import Reason
from jstitch.ir.schedule import SchedType, Schedule
from jstitch.plan_file import PinnedKernel
from jstitch.template import Template

__all__ = [
    "Again",
    "FusionPattern",
    "FusionPlan",
    "NoFuse",
    "Reason",
    "SchedType",
    "Schedule",
    "Score",
    "Update",
    "is_free",
    "make_pattern",
    "make_patterns",
]

FREE_ELEMENTS = 16
"""Dense constants up to this many elements are copied into kernels; larger ones are inputs."""


@dataclass(frozen=True, eq=False)
class Again(Value):
    """What is computed a second time, of the value that it equals."""

    of: Value


@dataclass(frozen=True)
class NoFuse:
    """Why `producer` and `consumer` are not in one kernel: the rule, with the number that failed."""

    producer: Op
    consumer: Op
    why: Reason

    @property
    def rule(self) -> str:
        return self.why.rule

    @property
    def reason(self) -> str:
        """As a sentence."""
        return str(self.why)


@dataclass(frozen=True, eq=False)
class Update:
    """A dynamic_update_slice that a kernel makes in place: `op` writes `value`, reshaped by `chain`.

    alone: nobody else outside the kernel reads the value.
    """

    op: Op
    value: Value
    chain: tuple[Op, ...]
    alone: bool

    @property
    def starts(self) -> tuple[Value, ...]:
        """Of the dimensions in which the slice can move."""
        whole, part = self.op.operands[0].shape, self.op.operands[1].shape
        return tuple(v for v, n, m in zip(self.op.operands[2:], whole, part, strict=True) if n > m)


@dataclass(frozen=True)
class Score:
    """Seconds that a kernel saves against its ops on their own: `memory` of traffic not moved, `calls` of
    launches not made, less the `penalty` of a kernel that runs worse than its parts."""

    memory: float = 0.0
    calls: float = 0.0
    penalty: float = 0.0

    def __add__(self, other: Score) -> Score:
        return Score(self.memory + other.memory, self.calls + other.calls, self.penalty + other.penalty)

    @property
    def seconds(self) -> float:
        return self.memory + self.calls - self.penalty


@dataclass(frozen=True, eq=False)
class FusionPattern:
    """Ops of one frame that become one kernel.

    ops: in program order. inputs: values from outside, in order of first use. outputs: values that the
    frame uses outside the pattern (or returns), in program order. origin: the pass that made it. updates:
    ops outside it that its kernel makes as well. score: what the planner that chose it expects of it.
    template: the schedules that it chose, None: what lowering chooses. pinned: the kernel of a saved plan
    that it is, which nobody judges again.
    """

    ops: tuple[Op, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: str
    updates: tuple[Update, ...] = ()
    score: Score | None = None
    template: Template | None = None
    pinned: PinnedKernel | None = None


@dataclass(frozen=True, eq=False)
class FusionPlan:
    """The patterns of one frame (a Graph), disjoint and acyclic, and the edges left unfused."""

    frame: Graph
    patterns: tuple[FusionPattern, ...]
    refusals: tuple[NoFuse, ...] = ()


def is_free(op: Op) -> bool:
    """Constants and iota: every pattern that uses one has its own copy, and no edge leads from it."""
    definition = OPS.get(op.name)
    if definition is None:
        return False
    if definition.op_class is not OpClass.CONSTANT:
        return definition.position is not None
    value = op.attrs["value"]
    return is_splat(value) or 0 < value.size <= FREE_ELEMENTS


def with_constants(ops: Iterable[Op], producers: Mapping[Value, Op]) -> list[Op]:
    """The ops, after the free ops that they read."""
    found = dict.fromkeys(ops)
    makers = dict.fromkeys(producers[v] for op in found for v in op.operands if v in producers)
    return [*(op for op in makers if is_free(op) and op not in found), *found]


def make_pattern(frame: Graph, ops: Iterable[Op], origin: str) -> FusionPattern:
    """The pattern of these ops of `frame`, with its inputs and outputs worked out.

    Free ops are copied, never outputs: their results stay available to the rest of the frame.
    """
    (pattern,) = make_patterns(frame, [ops], origin)
    return pattern


def make_patterns(frame: Graph, groups: Sequence[Iterable[Op]], origin: str) -> tuple[FusionPattern, ...]:
    """`make_pattern` for many groups."""
    index = _indices.get(frame)
    if index is None:
        place = {op: i for i, op in enumerate(frame.ops)}
        index = _indices[frame] = _Index(place, frame.users(), frozenset(frame.outputs))
    return tuple(_pattern(ops, index, origin) for ops in groups)


@dataclass(frozen=True)
class _Index:
    """What making a pattern needs to know about its frame, worked out once."""

    place: Mapping[Op, int]
    users: Mapping[Value, list[Op]]
    returned: frozenset[Value]


_indices: WeakKeyDictionary[Graph, _Index] = WeakKeyDictionary()


def _pattern(ops: Iterable[Op], index: _Index, origin: str) -> FusionPattern:
    chosen = set(ops)
    ordered = sorted(chosen, key=index.place.__getitem__)
    users, returned = index.users, index.returned
    made = {v for op in ordered for v in op.results}
    inputs = dict.fromkeys(v for op in ordered for v in op.uses if v not in made)
    results = (v for op in ordered if not is_free(op) for v in op.results)
    outputs = tuple(v for v in results if v in returned or not chosen.issuperset(users.get(v, ())))
    return FusionPattern(tuple(ordered), tuple(inputs), outputs, origin)
