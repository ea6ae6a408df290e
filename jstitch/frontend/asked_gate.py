"""The asked gate: no kernel stays that gives the program more launches or bytes than XLA's own has.

    XLA's own            14 launches, 41.10 MB
    with all kernels     15 launches, 42.08 MB      a sum over rows that XLA makes of the product's parts
    without layer_norm   14 launches, 41.09 MB      stays

XLA makes sums, conversions, even norms while it multiplies matrices, and what it makes depends on its
version, its flags and the shapes. So it is asked: the function is compiled without kernels and with them, for
a device like the one that it is for, and kernels are taken out until neither number is larger. Only functions
that multiply matrices are in question. What was found is kept in the performance library.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jstitch.codegen.kernel_ir import Kernel, Lane
from jstitch.device_spec import DeviceSpec
from jstitch.frontend.ask import WAYS, Asker, Cost, Question, UnansweredError, compile_seconds
from jstitch.frontend.measured_gate import nameless, ordered, paired
from jstitch.frontend.probe import program_text
from jstitch.frontend.target import NO_TF32
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import KERNEL, OpClass, lookup
from jstitch.ir.types import TensorType
from jstitch.options import CompileOptions
from jstitch.passes.base.plan import FusionPattern, Reason
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.rewrite import map_frames
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.runtime.performance_library import Verdict, library_path, shared_library, verdict_key
from jstitch.runtime.versions import asked_with

WORTH = 0.95  # of the time of XLA's own: what is left of a function's kernels had better save so much
COMPILATIONS = 4  # at least, to learn anything: without kernels and with them, in two ways
KIND = "asked"
Costs = Mapping[str, Cost]


@dataclass(frozen=True)
class Preparation:
    """What is done to a function's matrix products before it is planned, and what plans may do.

    products: they are written as the library will run them. sums: theirs are left to the library. columns:
    programs may own columns, which saves launches, and may read again what a kernel of rows reads.
    """

    products: bool
    sums: bool
    columns: bool = True

    def profile(self, profile: Profile) -> Profile:
        return replace(
            profile,
            products=profile.products and self.products,
            sums=profile.sums and self.sums,
            columns=profile.columns and self.columns,
        )


_BOTH = True, False
PREPARATIONS = tuple(Preparation(p, s, columns) for columns in _BOTH for p in _BOTH for s in _BOTH)
"""In this order they are tried; the first one is taken where nobody can be asked."""


@dataclass(frozen=True)
class Form:
    """A function with kernels. donated: inputs whose memory may be written -> the output that takes it."""

    stitched: Graph
    donated: Mapping[Value, Value]


@dataclass(frozen=True)
class Answer:
    """stays: whether any kernel does. dropped: texts of kernels that do not. why: the numbers."""

    preparation: Preparation
    stays: bool
    dropped: frozenset[str]
    why: str


@dataclass
class AskedGate:
    """The answer, told to each pattern. met: texts of the kernels so far."""

    answer: Answer
    met: set[str] = field(default_factory=set)

    def keeps(self, pattern: FusionPattern, attrs: Mapping[str, Any]) -> bool:
        self.met.add(nameless(attrs))
        return self.answer.stays and nameless(attrs) not in self.answer.dropped

    @property
    def stays(self) -> bool:
        """Whether any kernel does, of a function whose kernels are those that XLA was asked about."""
        return self.answer.stays and self.met >= self.answer.dropped

    @property
    def reason(self) -> Reason:
        return Reason("asked", f"XLA's compiler was asked: {self.answer.why}")


def is_in_question(graph: Graph, options: CompileOptions) -> bool:
    """Whether what XLA makes of the graph depends on more than its kernels do."""
    kinds = (lookup(op.name).op_class for op in graph.walk())
    return options.tune == "model" and options.ask_seconds > 0 and OpClass.CONTRACTION in kinds


def ask(
    graph: Graph,
    donated: Mapping[Value, Value],
    make: Callable[[Preparation], Form],
    options: CompileOptions,
    spec: DeviceSpec,
) -> Answer:
    """How to prepare the graph, and which kernels of it stay. make: the graph, prepared and stitched.

    Raises UnansweredError.
    """
    if (why := _why_not_ask(graph, options)) is not None:
        raise UnansweredError(why)
    library = shared_library(library_path(options.cache_dir), spec.title, asked_with())
    how = (
        *(options.planner, options.schemes, options.without, options.tune),
        *(options.templates, options.template),
    )
    around = (os.environ.get(name) for name in ("XLA_FLAGS", NO_TF32))
    limits = (options.arena_bytes, options.ask_seconds, *around)
    key = verdict_key(KIND, program_text(graph), str(paired(graph, donated)), str(how), str(limits))
    known = library.verdict(key)
    if known is not None:
        return _remembered(known)
    asker = Asker(spec, options.ask_seconds)
    answer = _Search(graph, donated, make, asker).answer()
    fields = [PREPARATIONS.index(answer.preparation), answer.stays, sorted(answer.dropped), answer.why]
    library.decide(key, Verdict(KIND, 0.0, 0.0, asker.asked, json.dumps(fields)))
    return answer


def _remembered(verdict: Verdict) -> Answer:
    preparation, stays, dropped, why = json.loads(verdict.choice)
    return Answer(PREPARATIONS[preparation], stays, frozenset(dropped), why)


def _why_not_ask(graph: Graph, options: CompileOptions) -> str | None:
    if not graph.inputs or not all(isinstance(v.type, TensorType) for v in (*graph.inputs, *graph.outputs)):
        return "it takes or gives values that are not tensors"
    needed = COMPILATIONS * compile_seconds(graph)
    if needed > options.ask_seconds:
        return f"it would take about {needed:.0f} s, and ask_seconds is {options.ask_seconds:g}"
    return None


@dataclass(frozen=True)
class _Found:
    """A preparation, the function so stitched, without some kernels, and what it costs by XLA's word."""

    preparation: Preparation
    form: Form
    costs: Costs
    excess: float
    dropped: frozenset[str] = frozenset()

    def answer(self, why: str, *, stays: bool = True) -> Answer:
        return Answer(self.preparation, stays, self.dropped, why)


@dataclass
class _Search:
    """For a preparation and the kernels with which the function costs no more than XLA's own program."""

    graph: Graph
    donated: Mapping[Value, Value]
    make: Callable[[Preparation], Form]
    asker: Asker

    def answer(self) -> Answer:
        self.xla = self.costs(self.graph, self.donated)
        found: list[_Found] = []
        whole: list[tuple[_Found, _Found]] = []
        try:
            for one in self.found():
                found.append(one)
                if not one.excess:
                    return one.answer(_told(one.costs, self.xla))
            for one in sorted(found, key=self.promise):
                repaired = self.repaired(one)
                if repaired.excess:
                    continue
                whole.append((repaired, one))
                if self.seconds(repaired.costs) < WORTH * self.seconds(self.xla):
                    break
        except UnansweredError:
            if not found:
                raise
        if whole:
            repaired, one = min(whole, key=lambda pair: self.seconds(pair[0].costs))
            return repaired.answer(_told(one.costs, self.xla))
        first = found[0]
        demanded = any(op.attrs["demanded"] for op in _kernels(first.form.stitched))
        return first.answer(_told(first.costs, self.xla), stays=demanded)

    def promise(self, found: _Found) -> tuple[bool, float]:
        """What is mended first: kernels of rows, which read less, and of these the quickest."""
        return found.preparation.columns, self.seconds(found.costs)

    def seconds(self, costs: Costs) -> float:
        """As modelled, in all of XLA's ways: endless where XLA refuses one of them."""
        if not costs.keys() >= self.xla.keys():
            return math.inf
        return sum(costs[way].seconds(self.asker.spec) for way in self.xla)

    def found(self) -> Iterator[_Found]:
        """The function by each preparation, with all kernels; without columns where some kernel owns any."""
        owned = False
        for preparation in PREPARATIONS:
            if not (preparation.columns or owned):
                continue
            form = self.make(preparation)
            owned |= any(lane.owns for op in _kernels(form.stitched) for lane in _lanes(op))
            costs = self.costs(form.stitched, form.donated)
            yield _Found(preparation, form, costs, _excess(costs, self.xla))

    def repaired(self, found: _Found) -> _Found:
        """Without kernels that are taken out one by one: those first that halve the excess."""
        for share in (0.5, 1.0):
            groups, tried = _groups(found.form.stitched), 0
            while tried < len(groups) and found.excess:
                group = groups.pop(0)
                trial = found if group in found.dropped else self.without(found, group)
                if trial.excess < share * found.excess:
                    found, tried = trial, 0
                else:
                    groups.append(group)
                    tried += 1
        return found

    def without(self, found: _Found, group: str) -> _Found:
        """Without one more group of kernels. Costs are of the worst way only where that is bad enough."""
        dropped = found.dropped | {group}
        graph = without(found.form.stitched, dropped)
        ways = sorted(self.xla, key=lambda way: -_excess(found.costs, {way: self.xla[way]}))
        costs: dict[str, Cost] = {}
        for way in ways:
            costs |= self.costs(graph, found.form.donated, way)
            excess = _excess(costs, {way: self.xla[way] for way in ways[: ways.index(way) + 1]})
            if excess >= found.excess:
                break
        return replace(found, costs=costs, excess=excess, dropped=dropped)

    def costs(self, graph: Graph, donated: Mapping[Value, Value], *ways: str) -> Costs:
        pairs = paired(graph, donated)
        question = Question.of(ordered(graph, pairs), {a: n for n, (a, _) in enumerate(pairs)})
        return self.asker.costs(question, ways or tuple(WAYS))


def _excess(ours: Costs, xla: Costs) -> float:
    return sum(ours[way].excess(cost) if way in ours else 1.0 for way, cost in xla.items())


def _told(ours: Costs, xla: Costs) -> str:
    ways = (f"{ours[way]} against its own {cost}" for way, cost in xla.items() if way in ours)
    return "with all kernels " + ", or ".join(ways)


def _kernels(graph: Graph) -> Iterator[Op]:
    return (op for op in graph.walk() if op.name == KERNEL)


def _lanes(op: Op) -> Iterator[Lane]:
    kernel: Kernel = op.attrs["kernel"]
    return (lane for phase in kernel.phases for lane in phase.lanes)


def _groups(graph: Graph) -> list[str]:
    """Texts of kernels that the user does not demand, those first that are modelled to save least."""
    saved: dict[str, float] = {}
    for op in _kernels(graph):
        if not op.attrs["demanded"]:
            text = nameless(op.attrs)
            saved[text] = saved.get(text, 0.0) + op.attrs["saved"]
    return sorted(saved, key=saved.__getitem__)


def without(graph: Graph, dropped: frozenset[str]) -> Graph:
    """The graph with kernels of those texts written out as the ops that they were made of."""
    return written_out(graph, lambda op: nameless(op.attrs) in dropped)


def written_out(graph: Graph, dropped: Callable[[Op], bool]) -> Graph:
    """The graph with those of its kernels written out as the ops that they were made of."""

    def change(frame: Graph) -> Graph:
        gone = [op for op in frame.ops if op.name == KERNEL and dropped(op)]
        if not gone:
            return frame
        left = [op for op in frame.ops if op not in gone]
        made = {v for op in left for v in op.results}
        inner = [op for kernel in gone for op in kernel.regions[0].ops if made.isdisjoint(op.results)]
        unique = {op.results: op for op in inner}
        return Graph(frame.inputs, tuple(sort_ops([*left, *unique.values()])), frame.outputs)

    return map_frames(graph, change)
