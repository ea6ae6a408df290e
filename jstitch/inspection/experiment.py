"""One program on one set of arguments: XLA's results, and those of any version of the program against them.

e = Experiment(module, args, CompileOptions(tune="off"))
e.compare(e.stitched, e.kernels)          with all kernels          ->   Comparison
e.compare(e.stitched, ())                 their ops run by XLA
e.compare(e.call.steps[3].value)          after the fourth pass
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.importer import entry_function, import_module
from jstitch.frontend.lowering import donation_map
from jstitch.frontend.mlir import ir
from jstitch.frontend.observe import Built, Observed
from jstitch.frontend.target import Target
from jstitch.inspection.compare import Comparison, compare, failed
from jstitch.inspection.execute import (
    Arrays,
    ExecutionError,
    program_of_graph,
    program_of_module,
    run_program,
)
from jstitch.inspection.reference import Reference, make_reference
from jstitch.inspection.subject import observe_module, platform_of, target_of
from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import KERNEL
from jstitch.options import CompileOptions
from jstitch.passes.base.rewrite import map_frames


def device_of(options: CompileOptions) -> Any:
    """The device here that a program with these options runs on. Raises ValueError when there is none."""
    platform = platform_of(options)
    try:
        return jax.local_devices(backend=platform)[0]
    except RuntimeError:
        raise ValueError(f"Expected a {platform} device to run on, found none that JAX can use.") from None


@dataclass(frozen=True)
class Source:
    """What is run. donated: arguments that the caller gives away -> the output that takes their memory."""

    module: ir.Module
    graph: Graph
    donated: Mapping[int, int | None]

    @staticmethod
    def of(module: ir.Module) -> Source:
        """Raises ValueError without an entry function."""
        arguments = list(entry_function(module).regions[0].blocks[0].arguments)
        return Source(module, import_module(module), donation_map(arguments))


class Experiment:
    """Everything is computed when it is first asked for, once."""

    def __init__(self, module: ir.Module, args: Arrays, options: CompileOptions) -> None:
        """Raises ValueError for a module that cannot be run here."""
        self.source, self.args, self.options = Source.of(module), args, options
        self.device = device_of(options)

    @cached_property
    def expected(self) -> list[np.ndarray]:
        """XLA's own results. Raises ExecutionError."""
        return run_program(program_of_module(self.source.module), self.args, self.device)

    @cached_property
    def reference(self) -> Reference:
        def run(graph: Graph, args: Arrays) -> list[np.ndarray]:
            return run_program(program_of_graph(graph), args, self.device, rounding=True)

        return make_reference(self.source.graph, self.args, run)

    @cached_property
    def call(self) -> Observed:
        """What `jstitch.jit` makes of the program, stage by stage. Raises what the pipeline raises."""
        return observe_module(self.source.module, self.options)

    @property
    def stitched(self) -> Graph:
        assert self.call.stitched is not None, "observe_module raises before"
        return self.call.stitched

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of its kernels, in program order."""
        return tuple(op.attrs["name"] for op in kernel_ops(self.stitched))

    def built(self, kernel: str) -> Built:
        return next(b for b in self.call.built if b.name == kernel)

    def run(self, graph: Graph, kernels: Collection[str] = (), *, donating: bool = True) -> list[np.ndarray]:
        """The graph's results; these kernels run, the ops of the others are XLA's. Raises ExecutionError.

        donating: the graph's outputs are the program's, which may take the memory of its arguments.
        """
        donated = self.source.donated if donating else {}
        made = program_of_graph(keep_kernels(graph, kernels), emit_kernel, donated)
        return run_program(made, self.args, self.device)

    @cached_property
    def ours(self) -> list[np.ndarray] | str:
        """The results of the stitched program, or why it does not run. Raises what the pipeline raises."""
        return self.attempt(self.stitched, self.kernels)

    def attempt(self, graph: Graph, kernels: Collection[str] = ()) -> list[np.ndarray] | str:
        """`run`, or why it does not."""
        try:
            return self.run(graph, kernels)
        except (ExecutionError, ValueError) as error:
            return " ".join(str(error).split())

    def compare(self, graph: Graph, kernels: Collection[str] = ()) -> Comparison:
        """The results of `run` against XLA's. A program that does not run differs."""
        return self.judge(self.attempt(graph, kernels))

    def judge(self, found: list[np.ndarray] | str) -> Comparison:
        """Results, or why there are none, against XLA's."""
        if isinstance(found, str):
            return failed(found)
        return compare(found, self.expected, self.reference)

    @property
    def target(self) -> Target:
        return target_of(self.options)


def kernel_ops(graph: Graph) -> Iterator[Op]:
    return (op for op in graph.walk() if op.name == KERNEL)


def keep_kernels(graph: Graph, kept: Collection[str]) -> Graph:
    """The graph in which all other kernels are their ops again."""

    def change(frame: Graph) -> Graph:
        # A constant that several patterns use is in each of them: it is written once.
        ops = dict.fromkeys(new for op in frame.ops for new in _opened(op, kept))
        return replace(frame, ops=tuple(ops))

    return map_frames(graph, change)


def _opened(op: Op, kept: Collection[str]) -> Sequence[Op]:
    if op.name != KERNEL or op.attrs["name"] in kept:
        return (op,)
    return op.regions[0].ops
