"""Kernels by themselves: what the planner and the lowering make of a function, and what a call of each takes.

A kernel's call stands in a loop of a program of its own; the time of many turns less that of few is what a
call costs inside a program, with no dispatch, no copies and no new memory in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax

from benchmarks.zoo import MOST_BYTES, Case, random_args
from jstitch.calibration.streams import looped, seconds_per_turn
from jstitch.codegen.backend import Backend, Built, KernelCall
from jstitch.codegen.cpu.backend import CpuBackend
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.dump import open_dump
from jstitch.frontend.importer import import_module
from jstitch.frontend.rewrite import stitch_graph
from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.base.profile import Profile
from jstitch.passes.fuse.finish_plan import FINISH, GATE, finish_plan
from jstitch.passes.pipeline import run
from jstitch.passes.planners import PLANNERS


@dataclass
class Recorder:
    """A backend that builds nothing and remembers the kernels."""

    kernels: list[Kernel] = field(default_factory=list)

    def build(self, kernel: Kernel, cache_dir: str | None) -> Built:
        self.kernels.append(kernel)
        return Built("", ())


def kernels_of(case: Case, target: Profile) -> dict[str, Kernel]:
    """By name, the kernels that a function becomes on a target when nothing is left to XLA, by no gate."""
    context = Context(CompileOptions(tune="off", calibrated=False), target)
    module = jax.jit(case.function).lower(*case.args).compiler_ir("stablehlo")
    recorder = Recorder()
    backend: Backend = recorder
    graph = run(import_module(module), context)
    stitch_graph(graph, context, "lone", open_dump(context, "lone"), backend, {}, planner=_ungated)
    small = [k for k in recorder.kernels if nbytes(k) <= MOST_BYTES and not k.updates]
    return {f"{case.name} #{n}": kernel for n, kernel in enumerate(small)}


def _ungated(frame: Graph, context: Context) -> FusionPlan:
    passes = tuple(p for p in FINISH if p is not GATE)
    return finish_plan(PLANNERS["layers"](frame, context), context, passes)


def nbytes(kernel: Kernel) -> int:
    """Of arguments, results and scratch."""
    return sum(b.type.nbytes for b in (*kernel.args, *kernel.results, *kernel.scratch))


def build(kernel: Kernel) -> KernelCall:
    """The kernel's custom call, its machine code ready."""
    (call,) = CpuBackend().build(kernel, None).calls
    return call


def seconds_per_call(call: KernelCall, budget: float = 0.05) -> float:
    """Of one call on random numbers, measured for about `budget` seconds."""
    operands = random_args([(b.type.shape, b.type.dtype.numpy) for b in call.operands])
    return seconds_per_turn(looped(call), [jax.device_put(x) for x in operands], budget)
