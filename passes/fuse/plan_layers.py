"""The FS-2018 planner of one frame: layers, intra-layer fusion, subgraph fusion (section 3.2).

    for layer in 0, 1, ... :                     roots first: what nobody in the frame waits for
        groups = fuse_elementwise(layer's ops that no pattern has yet)
        for group in groups: grow it up to the roof; its members are taken

Every producer-consumer edge that is not inside one pattern gets a `NoFuse` with the rule and the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OPS, OpClass, lookup
from jstitch.ir.types import DType, OpaqueType, TensorType
from jstitch.passes.base.plan import FREE_ELEMENTS, FusionPlan, NoFuse, Reason, is_free, make_patterns
from jstitch.passes.base.remember import per_object
from jstitch.passes.fuse.cut_lc_layers import cut_lc_layers, roof
from jstitch.passes.fuse.follow_schedules import Follower
from jstitch.passes.fuse.fuse_elementwise import fuse_elementwise
from jstitch.passes.fuse.fuse_subgraph import Frame, FusionOptions, Growth
from jstitch.passes.fuse.layer_work_span import layer_work_span, layers
from jstitch.passes.graph.keep_counters import ADDED, LEFT
from jstitch.passes.lower.propagate_schedule import op_class

Emitable = Callable[[Graph, Sequence[Op]], str | None]
OUTSIDE = frozenset({DType.S4, DType.U4, DType.C64, DType.C128})
_KERNEL_CLASSES = frozenset(
    {OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.REDUCTION, OpClass.SHAPE, OpClass.INDEX, OpClass.CONSTANT}
)
_ATTEMPTS = 8
_MOST_APART = 64  # ops of a frame that are left alone, so that what they read stays together
STOPPED = Reason("attempts", "growth stopped after {found} of {bound} attempts", _ATTEMPTS, _ATTEMPTS)
DEFAULT = FusionOptions()


def plan_layers(
    frame: Graph, options: FusionOptions = DEFAULT, emitable: Emitable | None = None
) -> FusionPlan:
    """Patterns of the frame, disjoint (but for free ops) and acyclic, and a reason for every unfused edge.

    emitable: (frame, ops in program order) -> why no kernel can hold exactly these ops, or None.
    """
    return _Planner(frame, options, emitable).plan()


def partition_reason(op: Op, fuse_batch_dot: bool = False) -> Reason | None:
    """Why no pattern holds the op at all, or None."""
    return _partition_reason(op, fuse_batch_dot)


@per_object
def _partition_reason(op: Op, fuse_batch_dot: bool) -> Reason | None:
    kind = op_class(op)
    if kind is OpClass.CONTRACTION and fuse_batch_dot and op.attrs.get("lhs_batching_dimensions"):
        return None
    if LEFT in op.attrs:
        text = f"{op.name} {op.attrs[LEFT]}: left to XLA"
        return Reason("library", text) if op.attrs[LEFT] == ADDED else Reason("counter", text)
    if kind not in _KERNEL_CLASSES:
        return _left(op, kind)
    if kind is OpClass.CONSTANT and not is_free(op):
        text = "a constant of {found} elements is an input of kernels, copied in up to {bound}"
        return Reason("constant", text, op.result.tensor.size, FREE_ELEMENTS)
    return _type_reason(op) or _table_reason(op, kind)


def _left(op: Op, kind: OpClass) -> Reason:
    """Of an op whose class is no kernel's."""
    if not op.attrs.get("pure", True):
        return Reason("effect", f"{op.name} has, or may have, an effect: left to XLA")
    types = [v.type for v in (*op.operands, *op.results) if isinstance(v.type, OpaqueType)]
    if kind is OpClass.OPAQUE and types:
        return Reason("type", f"{op.name} has a value of type {types[0]}: left to XLA")
    return Reason(kind.value, f"{op.name} is {kind.value}: left to XLA")


def _type_reason(op: Op) -> Reason | None:
    for value in _computed_with(op):
        match value.type:
            case OpaqueType(text):
                return Reason("type", f"{op.name} has a value of type {text}")
            case TensorType(_, dtype) if dtype in OUTSIDE:
                text = f"{op.name} has a value of type {dtype.value}, which kernels do not compute with"
                return Reason("type", text)
    if not any(v.tensor.size for v in op.results):
        text = f"{op.name} makes {op.results[0].type}: {{found}} elements, at least {{bound}} needed"
        return Reason("empty", text, 0, 1)
    if OPS[op.name].op_class is OpClass.REDUCTION and not op.operands[0].tensor.size:
        text = f"{op.name} reduces {op.operands[0].type}: {{found}} elements, at least {{bound}} needed"
        return Reason("empty", text, 0, 1)
    return None


def _computed_with(op: Op) -> tuple[Value, ...]:
    """Its operands and results; complex numbers are read or written by parts."""
    if lookup(op.name).part is not None:
        return op.results
    return op.operands if lookup(op.name).parts else (*op.operands, *op.results)


def _table_reason(op: Op, kind: OpClass) -> Reason | None:
    definition = OPS[op.name]
    if (
        kind.is_elementwise
        and not definition.is_of_complex
        and (definition.scalar is None or definition.scalar(op) is None)
    ):
        types = ", ".join(str(v.type) for v in op.operands)
        return Reason("expression", f"{op.name} has no kernel expression for {types}")
    if kind is OpClass.REDUCTION and (inner := _inexpressible(op)) is not None:
        return Reason("expression", f"{op.name} combines by {inner.name}, which has no kernel expression")
    if definition.in_place:
        return Reason(
            "in place", f"{op.name} is done in place by XLA; a kernel would copy {op.operands[0].type}"
        )
    return None


def _inexpressible(op: Op) -> Op | None:
    """An op in a reduction's region that a kernel cannot write down, or None."""
    inside = (inner for region in op.regions for inner in region.ops)
    return next((inner for inner in inside if not (is_free(inner) or _is_scalar(inner))), None)


def _is_scalar(op: Op) -> bool:
    rule = lookup(op.name).scalar
    return rule is not None and rule(op) is not None


@dataclass
class _Planner:
    graph: Graph
    options: FusionOptions
    emitable: Emitable | None
    owner: dict[Op, Growth] = field(default_factory=dict)
    grown: list[Growth] = field(default_factory=list)
    alone: dict[Op, str] = field(default_factory=dict)
    apart: int = 0

    def __post_init__(self) -> None:
        self.spans = layer_work_span(self.graph)
        users = self.graph.users()
        producers = self.graph.producers()
        place = {op: i for i, op in enumerate(self.graph.ops)}
        returned = frozenset(self.graph.outputs)
        self.reasons: dict[Op, Reason | None] = {}
        self.frame = Frame(
            self.graph, self.spans, users, producers, place, returned, self._partition, Follower()
        )

    def _partition(self, op: Op) -> Reason | None:
        if op not in self.reasons:
            self.reasons[op] = partition_reason(op, self.options.fuse_batch_dot)
        return self.reasons[op]

    def plan(self) -> FusionPlan:
        by_span = layers(self.spans)
        lc_layers = self._lc_layers()
        for span, layer in enumerate(by_span):
            ready = [op for op in layer if op not in self.owner and not is_free(op)]
            groups = fuse_elementwise(
                [op for op in ready if self._partition(op) is None], self.options.footprint, self._ties
            )
            for group in groups:
                self._take(group, roof(span, lc_layers, len(by_span)))
        groups_with_constants = [[*self._free(g.members), *g.members] for g in self.grown]
        patterns = make_patterns(self.graph, groups_with_constants, "plan_layers")
        return FusionPlan(self.graph, patterns, tuple(self._refusals()))

    def _lc_layers(self) -> tuple[int, ...]:
        if not self.options.whole_layer_roof:
            return ()
        return cut_lc_layers(self.spans, lambda op: not is_free(op) and self._partition(op) is not None)

    def _ties(self, value: Value) -> bool:
        producer = self.frame.producers.get(value)
        return producer is None or not is_free(producer)

    def _take(self, roots: Sequence[Op], roof_span: int) -> None:
        growth = self._grow(roots, roof_span)
        if growth is None:
            return
        self.grown.append(growth)
        self.owner.update(dict.fromkeys(growth.members, growth))
        left = [root for root in roots if root not in growth.members]
        if left:
            self._take(left, roof_span)

    def _grow(self, roots: Sequence[Op], roof_span: int) -> Growth | None:
        """The largest emitable pattern: what the hook refuses is cut at the op that made it refuse."""
        growth = self._grown(roots, roof_span)
        if growth.is_full and len(roots) > 1:
            roots = roots[:1]
            growth = self._grown(roots, roof_span)
        if growth.is_full and self.apart < _MOST_APART and self._joins(roots[0], roof_span):
            self.apart += 1
            return self._replay(roots, roof_span, roots, growth.refused_as_full, False)
        reason = self._why_not(growth.members)
        for attempt in range(_ATTEMPTS):
            if reason is None:
                return growth
            joined = list(growth.members)
            last = self._longest(joined)
            if last == 0:
                return self._split(roots, roof_span, reason)
            refused = {**growth.refused, joined[last]: Reason("not emitable", reason)}
            growth = self._replay(roots, roof_span, joined[:last], refused, attempt + 1 < _ATTEMPTS)
            reason = self._why_not(growth.members)
        return growth

    def _grown(self, roots: Sequence[Op], roof_span: int) -> Growth:
        growth = Growth(self.frame, roots, self.options, roof_span)
        growth.grow()
        return growth

    def _joins(self, root: Op, roof_span: int) -> bool:
        """Whether what an op reads is made by many ops apart: layer by layer all of them would be cut."""
        made = (self.frame.producers.get(v) for v in root.operands)
        cones = [
            self._cone(op, roof_span) for op in dict.fromkeys(made) if op is not None and not is_free(op)
        ]
        many = self.options.max_ops // 8
        for n, cone in enumerate(cones):
            others = set[Op]().union(*cones[:n], *cones[n + 1 :])
            if len(cone - others) >= many and len(others) >= many:
                return True
        return False

    def _cone(self, op: Op, roof_span: int) -> set[Op]:
        """What an op is made of, below the roof: so many ops as matter."""
        found, todo = {op}, [op]
        while todo and len(found) <= 4 * self.options.max_ops:
            made = (self.frame.producers.get(v) for v in todo.pop().uses)
            new = {p for p in made if p is not None and p not in found and not is_free(p)}
            new = {p for p in new if self.spans[p] < roof_span and self._partition(p) is None}
            found |= new
            todo += new
        return found

    def _split(self, roots: Sequence[Op], roof_span: int, reason: str) -> Growth | None:
        """Roots that no kernel holds together are tried one by one."""
        if len(roots) == 1:
            self.alone[roots[0]] = reason
            return None
        for root in roots:
            self._take([root], roof_span)
        return None

    def _longest(self, joined: Sequence[Op]) -> int:
        """The length of an emitable beginning (0: not even the first op), by bisection."""
        low, high = 0, len(joined)
        while high - low > 1:
            middle = (low + high) // 2
            if self._why_not(joined[:middle]) is None:
                low = middle
            else:
                high = middle
        return low

    def _replay(
        self,
        roots: Sequence[Op],
        roof_span: int,
        joined: Sequence[Op],
        refused: dict[Op, Reason],
        again: bool,
    ) -> Growth:
        """The same growth up to `joined`, without the refused ops, then on (unless this was the last try)."""
        growth = Growth(self.frame, [r for r in roots if r in joined], self.options, roof_span)
        growth.replay(joined, refused)
        if again:
            growth.grow()
        return growth

    def _why_not(self, members: Iterable[Op]) -> str | None:
        if self.emitable is None:
            return None
        ops = {*members, *self._free(members)}
        return self.emitable(self.graph, sorted(ops, key=self.frame.place.__getitem__))

    def _free(self, members: Iterable[Op]) -> list[Op]:
        """The free ops whose results these ops use."""
        found = (self.frame.producers.get(v) for op in members for v in op.operands)
        return list(dict.fromkeys(op for op in found if op is not None and is_free(op)))

    def _refusals(self) -> Iterator[NoFuse]:
        for consumer in self.graph.ops:
            if is_free(consumer):
                continue
            made = dict.fromkeys(self.frame.producers.get(v) for v in consumer.uses)
            for producer in made:
                if producer is None or is_free(producer) or self._together(producer, consumer):
                    continue
                yield NoFuse(producer, consumer, self._reason(producer, consumer))

    def _together(self, producer: Op, consumer: Op) -> bool:
        return producer in self.owner and self.owner[producer] is self.owner.get(consumer)

    def _reason(self, producer: Op, consumer: Op) -> Reason:
        for op in (consumer, producer):
            reason = self._partition(op)
            if reason is not None:
                return reason
        if consumer in self.alone:
            return Reason("not emitable", self.alone[consumer])
        return self.owner[consumer].refused.get(producer, STOPPED)
