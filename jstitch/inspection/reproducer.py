"""The smallest program that shows a culprit, in a folder: module.mlir and inputs.npz.

write_reproducer(culprit, experiment, Path("case"))
jstitch run case/module.mlir --inputs case/inputs.npz --compare
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jstitch.frontend.exporter import export_module
from jstitch.frontend.mlir import ir, parse_module
from jstitch.inspection.arrays import write_arrays
from jstitch.inspection.bisect import Culprit
from jstitch.inspection.execute import Arrays, random_arguments
from jstitch.inspection.experiment import Experiment
from jstitch.ir.graph import Graph
from jstitch.passes.graph.dce import dce
from jstitch.runtime.whole_file import write_whole

MODULE, INPUTS = "module.mlir", "inputs.npz"


@dataclass(frozen=True)
class Reproducer:
    """tune: the option with which it shows, None when it does not show in the small program."""

    folder: Path
    tune: str | None


def write_reproducer(culprit: Culprit, experiment: Experiment, folder: Path) -> Reproducer:
    """Write both files, with the first arguments on which it shows. Raises OSError."""
    module, candidates = _program(culprit, experiment)
    text = module.operation.get_asm(enable_debug_info=True).encode()
    tune = None
    for arguments in candidates:
        tune = _shows(text, arguments, experiment)
        if tune is not None:
            break
    else:
        arguments = candidates[0]
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / MODULE, lambda file: file.write(text))
    write_arrays(folder / INPUTS, arguments)
    return Reproducer(folder, tune)


def _shows(text: bytes, arguments: Arrays, experiment: Experiment) -> str | None:
    """How the program that was written differs again: with the same options, or with all of it stitched."""
    for tune in dict.fromkeys((experiment.options.tune, "off")):
        again = Experiment(parse_module(text), arguments, experiment.options.replace(tune=tune))
        if not again.compare(again.stitched, again.kernels).same:
            return tune
    return None


def _program(culprit: Culprit, experiment: Experiment) -> tuple[ir.Module, list[Arrays]]:
    """The module, and arguments to try: what a kernel's inputs are in a loop's last turn may all be alike."""
    if culprit.kind == "import":
        return experiment.source.module, [experiment.args]
    if culprit.kind == "kernel":
        drawn = random_arguments(culprit.program, 0, experiment.device)
        found = [culprit.arguments] if culprit.arguments is not None else []
        return export_module(culprit.program), [*found, drawn]
    graph, arguments = _narrowed(culprit, experiment)
    return export_module(graph), [arguments]


def _narrowed(culprit: Culprit, experiment: Experiment) -> tuple[Graph, Arrays]:
    """What the first wrong output needs, of the program before the step."""
    graph = culprit.program
    wrong = [o.number for o in culprit.comparison.outputs if o.wrong is not None]
    small = dce(Graph(graph.inputs, graph.ops, (graph.outputs[wrong[0]],))) if wrong else graph
    used = {*small.outputs, *(v for op in small.ops for v in op.uses)}
    kept = [n for n, v in enumerate(small.inputs) if v in used]
    inputs = tuple(small.inputs[n] for n in kept)
    return Graph(inputs, small.ops, small.outputs), [experiment.args[n] for n in kept]
