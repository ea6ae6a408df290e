"""Which step of the pipeline is to blame when a stitched program's results are not XLA's.

    import  canonicalize  ...  clone_indices  copy_returned  copy_carried  plan  absorb_updates   kernels
    same    same               same           same           DIFFERS ->  the step is found by halving

Every version of the program up to there runs through XLA without kernels. If all agree, kernels are put in,
in program order, until the results differ: the last one put in is to blame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.kernel_ir import Kernel
from jstitch.inspection.compare import Comparison
from jstitch.inspection.evidence import Range, expose, range_of
from jstitch.inspection.execute import Arrays, ExecutionError
from jstitch.inspection.experiment import Experiment, keep_kernels, kernel_ops
from jstitch.ir.graph import Graph, Op
from jstitch.passes.base.context import Context, Returned
from jstitch.passes.base.rewrite import is_control, map_frames
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.contract_patterns import contract_patterns
from jstitch.passes.fuse.copy_returned import copy_returned
from jstitch.passes.graph.copy_carried import copy_carried
from jstitch.passes.graph.keep_counters import keep_counters
from jstitch.passes.pipeline import frames
from jstitch.passes.plan_frame import plan_frame

PLANNING = ("copy_carried", "plan", "absorb_updates")
"""What happens to every frame, inner ones first: copies for updates, ops computed again, updates in place."""


@dataclass(frozen=True)
class KernelEvidence:
    """A kernel to blame. ops: name and source line of each. inputs: what it was given, None where that cannot
    be had. in_place: it is wrong only where it writes in the memory of an argument. together: alone it does
    no harm, only with those before it."""

    name: str
    frame: str
    ops: tuple[tuple[str, str], ...]
    inputs: tuple[Range, ...] | None
    in_place: bool
    together: bool


@dataclass(frozen=True)
class Culprit:
    """What is to blame. kind: 'import', 'pass', 'planning' or 'kernel'. name: the step's, or the kernel's.

    comparison: of the first version that differs. frame: for planning, the frame that it was done to.
    program, arguments: where it shows, as a program of its own.
    """

    kind: str
    name: str
    comparison: Comparison
    program: Graph
    arguments: Arrays | None
    frame: str = ""
    kernel: KernelEvidence | None = None


@dataclass(frozen=True)
class _Version:
    """The program after a step."""

    kind: str
    name: str
    make: Callable[[], Graph]

    @cached_property
    def graph(self) -> Graph:
        return self.make()


Advance = Callable[[str], None]


def bisect(experiment: Experiment, advance: Advance = lambda _: None) -> Culprit | None:
    """The step to blame, None when the stitched program's results are XLA's.

    advance: told what is tried next. Raises what the pipeline raises.
    """
    return _Bisection(experiment, advance).find()


class _Bisection:
    def __init__(self, experiment: Experiment, advance: Advance) -> None:
        self.experiment, self.advance = experiment, advance
        self.target = experiment.target
        self.context = Context(experiment.options, experiment.target.profile)

    def find(self) -> Culprit | None:
        kernels = self.experiment.kernels
        self.advance(f"all {len(kernels)} kernels")
        whole = self.experiment.judge(self.experiment.ours)
        if whole.same:
            return None
        versions = self.versions()
        last = self.compare(versions[-1].name, versions[-1].graph)
        return self.kernel(whole) if last.same else self.step(versions, last)

    def compare(self, what: str, graph: Graph, kernels: Sequence[str] = ()) -> Comparison:
        self.advance(what)
        return self.experiment.compare(graph, kernels)

    # -- steps ----------------------------------------------------------------------------------------------

    def versions(self) -> list[_Version]:
        """Before the first step the program is the module itself; planning is done by the last ones."""
        call, source = self.experiment.call, self.experiment.source
        found = [_Version("import", "import", lambda: source.graph)]
        found += [_Version("pass", s.name, partial(lambda graph: graph, s.value)) for s in call.steps]
        passed = found[-1].graph
        returned = Returned(range(len(passed.inputs)), source.donated)
        copied = copy_returned(passed, replace(self.context, returned=returned))
        found.append(_Version("planning", "copy_returned", lambda: copied))
        number = sum(1 for _ in frames(copied))
        for level, name in enumerate(PLANNING):
            found.append(_Version("planning", name, partial(self.planned, copied, level, number)))
        return found

    def planned(self, graph: Graph, level: int, number: int) -> Graph:
        """The first `number` frames have gone through PLANNING[: level + 1], the others through one less."""
        count = 0

        def change(frame: Graph) -> Graph:
            nonlocal count
            count += 1
            return self.plan(frame, level if count <= number else level - 1)

        return keep_kernels(map_frames(keep_counters(graph), change), ())

    def plan(self, frame: Graph, level: int) -> Graph:
        if level < 0:
            return frame
        copied = copy_carried(frame, self.context)
        if level == 0:
            return copied
        plan = plan_frame(copied, self.context)
        if level == 1:
            return plan.frame
        return contract_patterns(absorb_updates(plan, self.context), lambda pattern: {"name": ""})

    def step(self, versions: Sequence[_Version], last: Comparison) -> Culprit:
        """The step whose result differs, while that of the step before does not."""
        seen: dict[int, Comparison] = {len(versions): last}

        def differs(number: int) -> bool:
            version = versions[number - 1]
            seen[number] = self.compare(version.name, version.graph)
            return not seen[number].same

        number = first_guilty(len(versions), differs)
        version, before = versions[number - 1], versions[max(number - 2, 0)]
        found = Culprit(version.kind, version.name, seen[number], before.graph, self.experiment.args)
        if version.name not in PLANNING:
            return found
        return replace(found, frame=self.frame(versions, PLANNING.index(version.name)))

    def frame(self, versions: Sequence[_Version], level: int) -> str:
        """The frame to which this step of planning does harm."""
        graph = versions[-len(PLANNING) - 1].graph
        places = describe_frames(graph)

        def differs(number: int) -> bool:
            what = f"{PLANNING[level]}, {places[number - 1]}"
            return not self.compare(what, self.planned(graph, level, number)).same

        return places[first_guilty(len(places), differs) - 1]

    # -- kernels --------------------------------------------------------------------------------------------

    def kernel(self, whole: Comparison) -> Culprit:
        """The kernel with which the results differ, while with those before it they do not."""
        kernels, stitched = self.experiment.kernels, self.experiment.stitched

        def differs(number: int) -> bool:
            return not self.compare(kernels[number - 1], stitched, kernels[:number]).same

        name = kernels[first_guilty(len(kernels), differs) - 1]
        alone = self.compare(f"{name} alone", stitched, (name,))
        op = next(op for op in kernel_ops(stitched) if op.attrs["name"] == name)
        arguments = self.arguments(op)
        evidence = KernelEvidence(
            name=name,
            frame=frame_of(stitched, op),
            ops=tuple((inner.name, inner.loc) for inner in op.regions[0].ops),
            inputs=None if arguments is None else tuple(map(range_of, arguments)),
            in_place=not alone.same and self.in_place_only(stitched, op),
            together=alone.same,
        )
        comparison = whole if alone.same else alone
        return Culprit("kernel", name, comparison, op.regions[0], arguments, kernel=evidence)

    def arguments(self, op: Op) -> Arrays | None:
        """What the kernel's inputs are, when all kernels are XLA's ops."""
        exposed = expose(keep_kernels(self.experiment.stitched, ()), op.regions[0].inputs)
        if exposed is None:
            return None
        self.advance(f"inputs of {op.attrs['name']}")
        try:
            return self.experiment.run(exposed, donating=False)
        except ExecutionError:
            return None

    def in_place_only(self, stitched: Graph, op: Op) -> bool:
        """Whether the kernel is right when its results have memory of their own."""
        apart = self.apart(op)
        if apart is None:
            return False

        def change(frame: Graph) -> Graph:
            return replace(frame, ops=tuple(apart if other is op else other for other in frame.ops))

        name = apart.attrs["name"]
        return self.compare(f"{name}, not in place", map_frames(stitched, change), (name,)).same

    def apart(self, op: Op) -> Op | None:
        """The kernel op, built so; None where it is, or has to be what it is."""
        kernel: Kernel = op.attrs["kernel"]
        # Updates, the last results, are made in place by nature.
        own = len(kernel.results) - len(self.experiment.built(op.attrs["name"]).pattern.updates)
        kept = {result: arg for result, arg in kernel.aliases.items() if result >= own}
        if len(kept) == len(kernel.aliases):
            return None
        kernel = replace(kernel, aliases=kept)
        try:
            built = self.target.backend.build(kernel, self.experiment.options.cache_dir)
            built.ready()
        except CannotBuildError:
            return None
        return replace(op, attrs={**op.attrs, "kernel": kernel, "calls": built.calls, "text": built.text})


def first_guilty(count: int, differs: Callable[[int], bool]) -> int:
    """A number n in 1..count with differs(n) and not differs(n - 1), by halving.

    differs(0) is taken to be false and differs(count) to be true; neither is asked.
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(middle) else (middle, high)
    return high


def describe_frames(graph: Graph, place: str = "the program") -> list[str]:
    """Where each frame stands, in the order of `map_frames`."""
    found: list[str] = []
    for op in filter(is_control, graph.ops):
        for number, region in enumerate(op.regions):
            found += describe_frames(region, _region(op, number))
    return [*found, place]


def _region(op: Op, number: int) -> str:
    parts = ("condition", "body") if op.regions[0].inputs else [f"branch {n}" for n in range(len(op.regions))]
    return f"{parts[number]} of {op.name}{f' at {op.loc}' if op.loc else ''}"


def frame_of(graph: Graph, wanted: Op, place: str = "the program") -> str:
    """Where the frame stands that has this op, "" where none does."""
    if wanted in graph.ops:
        return place
    inner = (
        frame_of(region, wanted, _region(op, number))
        for op in filter(is_control, graph.ops)
        for number, region in enumerate(op.regions)
    )
    return next(filter(None, inner), "")
