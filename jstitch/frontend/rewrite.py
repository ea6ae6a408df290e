"""The pipeline's entry: operations of one stitched call in, operations with kernels out.

StableHLO -> Graph -> graph passes -> FusionPlan per frame -> Kernel per pattern -> source -> custom calls
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jstitch.codegen.backend import Backend, CannotBuildError
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.dump import Dump, open_dump
from jstitch.frontend.exporter import export_graph
from jstitch.frontend.importer import import_ops
from jstitch.ir.graph import Graph, Value
from jstitch.ir.ops import KERNEL
from jstitch.options import CompileOptions
from jstitch.passes.absorb_updates import absorb_updates, contracted
from jstitch.passes.alias_donated import alias_donated, carried_by_loops
from jstitch.passes.build_nest import CannotLowerError
from jstitch.passes.contract_patterns import contract_patterns, map_frames
from jstitch.passes.copy_carried import copy_carried
from jstitch.passes.lower_kernel import lower_kernel
from jstitch.passes.pipeline import PIPELINE, run
from jstitch.passes.plan import FusionPattern
from jstitch.passes.plan_frame import plan_frame
from jstitch.runtime.report import note

READY = True


def rewrite(
    ops: Sequence[Any],
    args: Sequence[Any],
    results: Sequence[Any],
    module: Any,
    options: CompileOptions,
    name: str,
    backend: Backend,
    *,
    donated: Mapping[int, int | None],
) -> list[Any] | None:
    """New results, with their operations at the end of the block; None leaves the block as it is."""
    imported = import_ops(ops, args, results, module)
    dump = open_dump(options, name)
    dump.text("input.mlir", lambda: "\n".join(map(str, ops)))
    graph = run(imported.graph, PIPELINE, dump.after_pass)
    given = {
        graph.inputs[k]: graph.outputs[out]
        for k, out in donated.items()
        if out is not None and out < len(graph.outputs)
    }
    stitched = stitch_graph(graph, options, name, dump, backend, given)
    kernels = sum(op.name == KERNEL for op in stitched.walk())
    if not kernels:
        note(reason="no pattern is expected to pay")
        return None
    arguments = {v: value for v, value in imported.values.items()}
    new = export_graph(stitched, arguments, emit_kernel)
    note(kernels=kernels)
    dump.text("output.mlir", lambda: str(module))
    return new


def stitch_graph(
    graph: Graph,
    options: CompileOptions,
    name: str,
    dump: Dump,
    backend: Backend,
    donated: Mapping[Value, Value],
) -> Graph:
    """Plan every frame and put a `jstitch.kernel` op in the place of every pattern.

    donated: graph inputs whose memory may be written -> the output that takes it.
    """
    builder = _Builder(name, options, dump, backend, {**carried_by_loops(graph), **donated})

    def change(frame: Graph) -> Graph:
        plan = plan_frame(copy_carried(frame), options)
        dump.plan(plan)
        return contract_patterns(absorb_updates(plan), builder.build)

    return map_frames(graph, change)


class _Builder:
    """Kernels of one stitched call, numbered."""

    def __init__(
        self,
        name: str,
        options: CompileOptions,
        dump: Dump,
        backend: Backend,
        donated: Mapping[Value, Value],
    ) -> None:
        self.name, self.options, self.dump = name, options, dump
        self.backend, self.donated = backend, donated
        self.count = 0
        self.traffic: dict[str, tuple[int, int]] = {}

    def build(self, pattern: FusionPattern) -> Mapping[str, Any] | None:
        """Attributes of the kernel op; None when no kernel can express the pattern (it stays XLA's)."""
        name = f"{self.name}_{self.count}"
        try:
            inputs, _, outputs = contracted(pattern)
            limit = self.options.arena_bytes
            kernel = lower_kernel(name, pattern.ops, inputs, outputs, limit, updates=pattern.updates)
            kernel = alias_donated(kernel, pattern, self.donated)
            self.dump.check(kernel)
            built = self.backend.build(kernel, self.options.cache_dir)
            self.dump.kernel(name, kernel, built.text)
        except (CannotLowerError, CannotBuildError) as error:
            note(details_refused=str(error))
            return None
        self.count += 1
        self.traffic |= built.traffic
        note(bytes=dict(self.traffic))
        return {
            "name": name,
            "kernel": kernel,
            "calls": built.calls,
        }
