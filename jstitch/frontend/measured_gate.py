"""The measured gate: a pattern is stitched where its kernel beats XLA's code for the same ops, here.

    kernel of the pattern  ->  in the library?  ->  else both versions are compiled and raced, once
    whole function         ->  XLA's version, what the gate kept, what the model planned: the fastest runs

Measuring happens while a program is being lowered, one measurement on the machine at a time. What the time
budget or the memory bound leaves over, the cost model decides; the record says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from jstitch.codegen.backend import Backend
from jstitch.codegen.comments import strip_comments
from jstitch.codegen.cpu.backend import CpuBackend
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.measurable import why_not_run
from jstitch.frontend.measure import Measurer, Rivals
from jstitch.frontend.probe import make_program, program_text
from jstitch.frontend.probe_inputs import describe_arguments
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import KERNEL
from jstitch.ir.types import TensorType
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, Reason
from jstitch.passes.base.profile import Profile
from jstitch.passes.fuse.absorb_updates import contracted
from jstitch.passes.fuse.gate import Verdict as Modelled
from jstitch.passes.fuse.gate import judge
from jstitch.runtime.device_name import cpu_device, gpu_device
from jstitch.runtime.performance_library import Verdict, library_path, shared_library, verdict_key
from jstitch.runtime.race import Race
from jstitch.runtime.tuning_session import TuningSession, UnmeasuredError
from jstitch.runtime.versions import measured_with

XLA, OURS = "xla", "ours"
CLEARLY = 0.8  # of XLA's modelled time: what ours must be expected to take for a tie to be ours
SHORT = 100e-6  # seconds modelled, below which a program is run many times per call
MOST_TURNS = 256
PATTERN_SECONDS = 1.5  # of racing, at most
PATTERN_SHARE = 0.6  # of the budget; the rest is for the function as a whole


@dataclass(frozen=True)
class Decision:
    """What runs a pattern, or the function, and why. ours, xla: seconds, None where there is no number.

    how: 'measured' now, 'stored' by an earlier measurement, 'modelled'. why: what kept it from being
    measured.
    """

    subject: str
    choice: str
    ours: float | None
    xla: float | None
    how: str
    why: str = ""

    def __str__(self) -> str:
        times = ""
        if self.ours is not None and self.xla is not None:
            times = f", {self.ours * 1e6:.1f} us against XLA's {self.xla * 1e6:.1f} us"
        return f"{self.subject}: {self.choice}, {self.how}{times}{f' ({self.why})' if self.why else ''}"

    @property
    def reason(self) -> Reason:
        """Why a pattern stays XLA's."""
        if self.ours is None or self.xla is None:
            return Reason("measured", str(self))
        why = f" ({self.why})" if self.why else ""
        text = f"{self.how} {{found}} us, and XLA's kernels take {{bound}} us{why}"
        return Reason("measured", text, self.ours * 1e6, self.xla * 1e6)


class Gate(Protocol):
    """Which kernels of a function stay."""

    def keeps(self, pattern: FusionPattern, attrs: Mapping[str, Any]) -> bool:
        """Whether the kernel with these attributes, made of the pattern, stays."""
        ...

    @property
    def reason(self) -> Reason:
        """Why the kernel that was asked for last does not."""
        ...


ELSEWHERE = Decision("all patterns", "as modelled", None, None, "modelled", "their device is not here")


class MeasuredGate:
    """The verdicts on one function's patterns, and on the function."""

    def __init__(
        self,
        graph: Graph,
        donated: Mapping[Value, Value],
        profile: Profile,
        measurer: Measurer,
        session: TuningSession,
    ) -> None:
        self.graph, self.profile, self.measurer, self.session = graph, profile, measurer, session
        self.decisions: list[Decision] = []
        self.why_whole = why_not_run(graph)
        self._pairs = paired(graph, donated)
        self._own: int | None = None

    def keeps(self, pattern: FusionPattern, attrs: Mapping[str, Any]) -> bool:
        """Whether the kernel with these attributes, made of the pattern, stays."""
        decision = self._pattern(pattern, attrs)
        self.decisions.append(decision)
        return decision.choice == OURS

    @property
    def reason(self) -> Reason:
        """Why the last pattern stays XLA's."""
        return self.decisions[-1].reason

    def _pattern(self, pattern: FusionPattern, attrs: Mapping[str, Any]) -> Decision:
        model, name = judge(pattern, self.profile), str(attrs["name"])
        plain, stitched, donated = both_versions(pattern, attrs)
        turns = turns_of(model)
        key = verdict_key("pattern", program_text(plain), nameless(attrs), str(donated), str(turns))

        def measure(seconds: float) -> Verdict:
            own = self._own_bytes()
            programs = make_program(plain), make_program(stitched, emit_kernel)
            rivals = Rivals(programs, describe_arguments(plain), donated, turns)
            race = self.measurer.race(rivals, min(seconds, PATTERN_SECONDS), own)
            clearly = model.ours_seconds < CLEARLY * model.xla_seconds
            return _pattern_verdict(race, turns, clearly)

        try:
            share = 1.0 if self.why_whole else PATTERN_SHARE
            verdict, how = self.session.settle(key, name, measure, share)
            return Decision(name, verdict.choice, verdict.ours, verdict.xla, how)
        except UnmeasuredError as error:
            ours, xla = model.ours_seconds, model.xla_seconds
            choice = OURS if model.pays else XLA
            self.session.library.decide(key, Verdict("pattern", ours, xla, 0, choice))
            return Decision(name, choice, ours, xla, "modelled", str(error))

    def choose(self, candidates: Mapping[str, Graph]) -> Graph:
        """The fastest of the function without and with kernels; the first one when nothing can be measured.

        candidates: name -> the function with kernels. Of two with equal kernels the first one is taken.
        """
        kernels = {name: kernel_texts(graph) for name, graph in candidates.items()}
        unique = {tuple(texts): name for name, texts in reversed(kernels.items()) if texts}
        found = {name: graph for name, graph in candidates.items() if name in unique.values()}
        first = next(iter(candidates))
        first = first if kernels[first] else XLA
        if found:
            decision = self._function(found, kernels, first)
        else:
            decision = Decision("function", XLA, None, None, "modelled", "no kernel is left")
        self.decisions.append(decision)
        return found.get(decision.choice, self.graph)

    def _function(
        self, candidates: Mapping[str, Graph], kernels: Mapping[str, Sequence[str]], first: str
    ) -> Decision:
        if self.why_whole:
            return Decision("function", first, None, None, "modelled", self.why_whole)
        parts = (f"{name} {kernels[name]}" for name in candidates)
        key = verdict_key("function", program_text(self.graph), str(self._pairs), *parts)
        try:
            verdict, how = self.session.settle(
                key, "the function", lambda seconds: self._versions(candidates, seconds), 1.0
            )
        except UnmeasuredError as error:
            return Decision("function", first, None, None, "modelled", str(error))
        return Decision("function", verdict.choice, verdict.ours, verdict.xla, how)

    def _versions(self, candidates: Mapping[str, Graph], seconds: float) -> Verdict:
        race = self.measurer.race(self._rivals(candidates.values()), seconds, None)
        ratios = {name: race.ratio(n, 0) for n, name in enumerate(candidates, 1)}
        best = min(ratios, key=lambda name: ratios[name].value)
        ours = race.seconds(1 + list(candidates).index(best))
        choice = XLA if ratios[best].is_more else best
        return Verdict("function", ours, race.seconds(0), len(race.rounds), choice)

    def _rivals(self, candidates: Iterable[Graph]) -> Rivals:
        """XLA's version of the function, and others, results that take an argument's memory first."""
        graphs = [ordered(graph, self._pairs) for graph in (self.graph, *candidates)]
        programs = tuple(make_program(graph, emit_kernel) for graph in graphs)
        donated = {argument: n for n, (argument, _) in enumerate(self._pairs)}
        return Rivals(programs, describe_arguments(self.graph), donated)

    def _own_bytes(self) -> int:
        """What the function holds while it runs as XLA's code, or at least its arguments and results."""
        if self._own is None:
            values = dict.fromkeys((*self.graph.inputs, *self.graph.outputs))
            self._own = sum(v.type.nbytes for v in values if isinstance(v.type, TensorType))
            if not self.why_whole:
                self._own = max(self._own, self.measurer.footprint(self._rivals(())))
        return self._own


def _pattern_verdict(race: Race, turns: int, clearly: bool) -> Verdict:
    """A tie is ours only if the model expects us to win clearly."""
    ratio = race.ratio(1, 0)
    choice = OURS if ratio.is_less or (clearly and not ratio.is_more) else XLA
    return Verdict("pattern", race.seconds(1) / turns, race.seconds(0) / turns, len(race.rounds), choice)


def both_versions(pattern: FusionPattern, attrs: Mapping[str, Any]) -> tuple[Graph, Graph, Mapping[int, int]]:
    """XLA's version, ours, and argument -> result in its memory.

    Such results come first, by argument: `jax.jit` pairs donated arguments with results in their order.
    """
    inputs, ops, outputs = contracted(pattern)
    pairs = sorted((argument, result) for result, argument in attrs["kernel"].aliases.items())
    kernel = Op(KERNEL, inputs, outputs, attrs, (Graph(inputs, ops, outputs),))
    plain = ordered(Graph(inputs, ops, outputs), pairs)
    return plain, Graph(inputs, (kernel,), plain.outputs), {a: n for n, (a, _) in enumerate(pairs)}


def turns_of(model: Modelled) -> int:
    """How often kernels are run in a loop, so that their time is not that of a call."""
    shortest = min(model.ours_seconds, model.xla_seconds)
    return 1 if shortest > SHORT else max(2, min(MOST_TURNS, round(3 * SHORT / max(shortest, 1e-9))))


def paired(graph: Graph, donated: Mapping[Value, Value]) -> list[tuple[int, int]]:
    """Argument and result that share memory, by position; no result twice."""
    place = {v: n for n, v in enumerate(graph.outputs)}
    given = [(n, donated[v]) for n, v in enumerate(graph.inputs) if v in donated]
    pairs = {place[v]: n for n, v in given if v in place and v.type == graph.inputs[n].type}
    return sorted((argument, result) for result, argument in pairs.items())


def ordered(graph: Graph, pairs: Sequence[tuple[int, int]]) -> Graph:
    """The graph with the paired results in front."""
    first = [result for _, result in pairs]
    order = [*first, *(n for n in range(len(graph.outputs)) if n not in first)]
    return Graph(graph.inputs, graph.ops, tuple(graph.outputs[n] for n in order))


def kernel_texts(graph: Graph) -> list[str]:
    """Of its kernels, sorted; two graphs made from one are the same when these are."""
    return sorted(nameless(op.attrs) for op in graph.walk() if op.name == KERNEL)


def nameless(attrs: Mapping[str, Any]) -> str:
    """The kernel's text, which has no name in it, without the user's lines: equal kernels are one."""
    return strip_comments(attrs["text"])


@contextmanager
def measured_gate(
    graph: Graph, donated: Mapping[Value, Value], context: Context, backend: Backend
) -> Iterator[MeasuredGate | None]:
    """The gate for one function; None unless the options ask for it and the device is here."""
    options = context.options
    device = _device_here(options, backend) if options.tune == "measure" else None
    if device is None:
        yield None
        return
    name = cpu_device() if device.platform == "cpu" else gpu_device(device.device_kind)
    library = shared_library(library_path(options.cache_dir), name, measured_with())
    with TuningSession(library, options.tune_seconds) as session:
        yield MeasuredGate(graph, donated, context.profile, Measurer(device), session)


def _device_here(options: CompileOptions, backend: Backend) -> Any:
    """Where the backend's kernels can run, None when that is another machine's device."""
    if options.target not in (None, "cpu"):
        return None
    try:
        return jax.local_devices(backend="cpu" if isinstance(backend, CpuBackend) else "cuda")[0]
    except RuntimeError:
        return None
