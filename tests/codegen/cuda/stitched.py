"""Graphs stitched into kernels, and every machine that runs kernels without a GPU.

simulator          the emitted text, in lockstep, with races and bounds checked
PTX interpreter    the PTX of that text, with every access checked
CPU                the same graph's kernels for the CPU backend, compiled
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import util
from typing import Any

import numpy as np
import pytest

from jstitch.codegen.backend import Built, CannotBuildError, KernelCall
from jstitch.codegen.cpu import build as cpu_build
from jstitch.codegen.cpu.emit import emit as cpu_emit
from jstitch.codegen.cuda.backend import CudaBackend
from jstitch.codegen.cuda.build import TARGET
from jstitch.codegen.cuda.emit import Emitted, emit
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.ptx import run_ptx
from jstitch.codegen.cuda.ptx_text import entry_name
from jstitch.codegen.cuda.simulate import simulate_launch
from jstitch.codegen.cuda.source import CudaSource, Launch
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.kernel_queries import array_type
from jstitch.device_spec import find_spec
from jstitch.frontend import rewrite
from jstitch.frontend.dump import open_dump
from jstitch.frontend.rewrite import stitch_graph
from jstitch.frontend.target import cuda_profile
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import KERNEL, OPS
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.profile import Profile
from jstitch.passes.pipeline import run
from tests.codegen.cuda.machines import RunLaunch, run_kernel
from tests.contexts import CPU

Arrays = Sequence[np.ndarray]
Machine = Callable[[Kernel, Arrays], Arrays]
MakeMachine = Callable[[Emitted], RunLaunch]

SPEC = find_spec("h200")
OPTIONS = CompileOptions(tune="off", strict=True, verify=True, without=("widen_teams",))
"""Programs here have few rows, and are to have the teams that many rows would."""
PTX = (SPEC.capability, SPEC.ptx_version)
WHY_NO_PTX = None if util.find_spec("numba_cuda") else "numba-cuda is not installed, so there is no PTX"

PROFILES: dict[str, Profile] = {
    "h200": cuda_profile(SPEC),
    "many programs": replace(cuda_profile(SPEC), program_work=16, partial_rows=2, max_programs=6),
    "small arena": replace(cuda_profile(SPEC), program_work=256, partial_rows=4, max_programs=40),
}


@dataclass
class Recorder:
    """A backend that emits kernels and builds nothing. refused: kernels that it had no form for."""

    arena_bytes: int = SPEC.shared_optin
    emitted: dict[Kernel, Emitted] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def build(self, kernel: Kernel, cache_dir: str | None) -> Built:
        try:
            found = emit(kernel, self.arena_bytes)
        except NoRoom as error:
            self.refused.append(str(error))
            raise CannotBuildError(str(error)) from None
        self.emitted[kernel] = found
        calls = (KernelCall(TARGET, {}, b.operands, b.results, b.aliases) for b in found.made.buffers)
        return Built(found.source.text, tuple(calls))


@dataclass(frozen=True)
class Stitched:
    """A graph with kernels for CUDA, and what the emitter made of each."""

    graph: Graph
    recorder: Recorder

    @property
    def kernels(self) -> Mapping[Kernel, Emitted]:
        return self.recorder.emitted

    @property
    def sources(self) -> list[CudaSource]:
        return [e.source for e in self.kernels.values()]

    def run(self, args: Arrays, machine: MakeMachine) -> Arrays:
        def run_one(kernel: Kernel, given: Arrays) -> Arrays:
            emitted = self.kernels[kernel]
            return run_kernel(kernel, emitted, given, machine(emitted))

        return execute(self.graph, args, run_one)


def stitch(
    graph: Graph, wanted: Profile, donate: bool = False, options: CompileOptions = OPTIONS
) -> Stitched:
    """Kernels for CUDA in the place of every pattern; `donate`: inputs' memory may be taken by outputs."""
    device = wanted.machine.device or SPEC
    recorder, canonical, context = Recorder(device.shared_optin), run(graph, CPU), Context(options, wanted)
    donated = _pairs(canonical) if donate else {}
    made = stitch_graph(canonical, context, "k", open_dump(context, "k"), recorder, donated)
    return Stitched(made, recorder)


def _pairs(graph: Graph) -> dict[Value, Value]:
    """Inputs, each with an output of its type, no output twice."""
    free = list(graph.outputs)
    found: dict[Value, Value] = {}
    for v in graph.inputs:
        taker = next((out for out in free if out.type == v.type), None)
        if taker is not None:
            found[v] = taker
            free.remove(taker)
    return found


def stitch_for_cpu(graph: Graph) -> Graph:
    """Kernels for the CPU backend; `on_cpu` compiles and runs them."""
    context = Context(OPTIONS, CPU.profile)
    return stitch_graph(run(graph, CPU), context, "k", open_dump(context, "k"), _Nothing(), {})


class _Nothing:
    def build(self, kernel: Kernel, cache_dir: str | None) -> Built:
        return Built("", ())


def execute(graph: Graph, args: Arrays, run_one: Machine) -> Arrays:
    """The graph's outputs: its kernels by `run_one`, everything else by the Graph interpreter."""
    env = dict(zip(graph.inputs, args, strict=True))
    for op in graph.ops:
        if op.name == KERNEL:
            found: Arrays = run_one(op.attrs["kernel"], [env[v] for v in op.operands])
        else:
            found = interpret(Graph(op.uses, (op,), op.results), [env[v] for v in op.uses])
        env.update(zip(op.results, found, strict=True))
    return [env[v] for v in graph.outputs]


# -- machines ---------------------------------------------------------------------------------------------


def simulated(emitted: Emitted) -> RunLaunch:
    source = emitted.source

    def run_launch(n: int, arrays: list[np.ndarray]) -> None:
        simulate_launch(source, source.launches[n], arrays)

    return run_launch


def interpreted(emitted: Emitted) -> RunLaunch:
    source = emitted.source
    return lambda n, arrays: run_as_ptx(source, source.launches[n], arrays)


def run_as_ptx(source: CudaSource, launch: Launch, arrays: Arrays) -> None:
    text, entry = ptx_of(source, launch, PTX), entry_name(source.name, launch.function)
    run_ptx(text, entry, launch.grid, launch.block, launch.shared_bytes, arrays)


@cache
def ptx_of(source: CudaSource, launch: Launch, target: tuple[tuple[int, int], str]) -> str:
    """PTX of one launch. Needs numba-cuda."""
    from jstitch.codegen.cuda.compile_kernel import compile_launch

    return compile_launch(source, launch, *target)


def on_cpu(kernel: Kernel, args: Arrays) -> Arrays:
    """A kernel that was lowered for the CPU, compiled and run."""
    emitted = cpu_emit(kernel)
    given = [np.array(a, order="C") for a in args]
    shared = {r: given[a] for r, a in kernel.aliases.items()}
    kinds = map(array_type, kernel.results)
    results = [shared.get(n, np.empty(t.shape, t.dtype.numpy)) for n, t in enumerate(kinds)]
    cpu_build.call(
        emitted.source, [given[k] for k in emitted.operands], [results[k] for k in emitted.results]
    )
    return results


# -- whole JAX programs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """What lowering for cuda stitched: each program before and after, and the text of each kernel."""

    programs: list[tuple[Graph, Graph]]
    recorder: Recorder

    def run(self, number: int, args: Arrays, machine: MakeMachine) -> Arrays:
        """A program's outputs, its kernels run by the machine, those in the bodies of loops among them."""

        def run_one(op: Op, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
            emitted = self.recorder.emitted[op.attrs["kernel"]]
            return run_kernel(op.attrs["kernel"], emitted, arrays[: len(op.operands)], machine(emitted))

        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(OPS, KERNEL, replace(OPS[KERNEL], reference=run_one))
            return interpret(self.programs[number][1], args)


def record(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """From now on, lowering for cuda emits kernels into the record and compiles nothing."""
    found = Recorded([], Recorder())

    def stitched(graph: Graph, *others: Any, **named: Any) -> Graph:
        made = stitch_graph(graph, *others, **named)
        found.programs.append((graph, made))
        return made

    monkeypatch.setattr(rewrite, "stitch_graph", stitched)
    monkeypatch.setattr(CudaBackend, "build", lambda self, *given: found.recorder.build(*given))
    return found
