"""Again what left a reproducer: the module through all that `jit` does, as it was asked for then.

prepare(read_crash(data), safe_parse(data))()      raises what was raised, if it still is
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jstitch.errors import ParseError
from jstitch.frontend.crash import Crash
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.dump import open_dump
from jstitch.frontend.exporter import export_module
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import ir
from jstitch.frontend.observe import observing
from jstitch.frontend.op_times import with_times
from jstitch.frontend.rewrite import rewrite_graph
from jstitch.inspection.subject import target_of
from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context


def prepare(crash: Crash, module: ir.Module) -> Callable[[], None]:
    """What runs it. Raises ParseError and OptionError for what does not fit together."""
    graph = import_module(module)
    named = [*(k for k, _ in crash.donated), *(crash.arguments or ())]
    if outside := [k for k in named if k not in range(len(graph.inputs))]:
        raise ParseError(f"inputs of a module that has {len(graph.inputs)}", f"input {outside[0]}")
    return partial(_run, crash, graph, crash.compile_options())


def _run(crash: Crash, graph: Graph, options: CompileOptions) -> None:
    target = target_of(options)
    context = with_times(Context(options, target.profile))
    with observing(kernels=crash.kernels):
        stitched = rewrite_graph(
            *(graph, context, crash.name, open_dump(context, crash.name), target.backend),
            donated=dict(crash.donated),
            arguments=crash.arguments,
        )
        if crash.kernels:
            export_module(stitched, emit_kernel=emit_kernel)
