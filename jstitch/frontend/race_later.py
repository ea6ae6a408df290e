"""Measured in the background, once: a function with kernels against XLA's own version of it, on this CPU.

    jit(f)(x)               compiled as the cost model decides; a race is due       race_later
    nothing is compiled     both versions run on random arguments, on one thread    races, background_race
    next compilation        of the same call, also in other processes: the faster   settled

What runs does not change under its feet: a program that is compiled stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

import jax

from jstitch.codegen.backend import Backend
from jstitch.codegen.cpu.backend import CpuBackend
from jstitch.frontend.ask import compile_seconds
from jstitch.frontend.background_race import KIND, Due, library_of
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.measurable import why_not_run
from jstitch.frontend.measure import Rivals
from jstitch.frontend.measured_gate import Decision, ordered, paired
from jstitch.frontend.probe import make_program
from jstitch.frontend.probe_inputs import describe_arguments
from jstitch.frontend.races import RACES
from jstitch.ir.graph import Graph, Value
from jstitch.ir.ops import KERNEL
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.chunk.chunk_rows import chunks_of
from jstitch.passes.cost.leave_thread import leaves_thread
from jstitch.runtime.performance_library import (
    library_path,
    verdict_key,
)
from jstitch.runtime.telemetry import logger

RACED = "raced"
LARGEST = 1 << 20  # bytes of programs that wait for a race
COMPILED = 0.2  # of the seconds that XLA:GPU takes to compile a program; XLA:CPU's


def settled(options: CompileOptions, deciding: Callable[[], str], backend: Backend) -> Decision | None:
    """What a race said of the call; None where there was none. deciding: gives `deciding_key`."""
    if not _asks(options, backend) or not os.path.exists(library_path(options.cache_dir)):
        return None
    verdict = library_of(options.cache_dir).verdict(verdict_key(KIND, deciding()))
    if verdict is None or not verdict.measured:
        return None
    return Decision("function", verdict.choice, verdict.ours, verdict.xla, RACED)


def race_later(
    graph: Graph,
    plain: Callable[[], Graph],
    stitched: Graph,
    context: Context,
    name: str,
    backend: Backend,
    deciding: Callable[[], str],
    donated: Mapping[Value, Value],
) -> None:
    """Have a call that was just given kernels raced, where it can be.

    graph: as it was imported. plain: gives what it would be without kernels. donated: inputs of `graph` whose
    memory may be written -> the output that takes it. Failure to ask for a race is no failure to stitch.
    """
    try:
        due = _due(graph, plain, stitched, context, name, backend, deciding, donated)
    except Exception as error:
        if context.options.strict:
            raise
        logger("tune").info("%s: no race: %s: %s", name, type(error).__name__, error)
        return
    if due is not None:
        RACES.add(due)


def _due(
    graph: Graph,
    plain: Callable[[], Graph],
    stitched: Graph,
    context: Context,
    name: str,
    backend: Backend,
    deciding: Callable[[], str],
    donated: Mapping[Value, Value],
) -> Due | None:
    """None where there can be no race."""
    options = context.options
    kernels = [op for op in stitched.walk() if op.name == KERNEL]
    demanded = any(op.attrs["demanded"] for op in kernels)
    seconds = 2 * COMPILED * compile_seconds(graph)
    if not _asks(options, backend) or demanded or not kernels or chunks_of(stitched):
        return None
    if seconds > options.race_seconds or not graph.inputs or why_not_run(graph) is not None:
        return None
    if jax.process_count() > 1:  # all of them are to run the same program
        return None
    pairs = paired(graph, donated)
    ours = partial(emit_kernel, leaves=leaves_thread(stitched, context.machine))
    programs = make_program(ordered(plain(), pairs)), make_program(ordered(stitched, pairs), ours)
    if sum(len(program.code) for program in programs) > LARGEST:
        return None
    memory = {argument: n for n, (argument, _) in enumerate(pairs)}
    rivals = Rivals(programs, describe_arguments(graph), memory)
    return Due(verdict_key(KIND, deciding()), name, rivals, options.race_seconds, options.cache_dir)


def _asks(options: CompileOptions, backend: Backend) -> bool:
    """Whether races decide at all: nobody else does, and the device is here."""
    own = options.plan is None and options.template is None
    return own and options.tune == "model" and options.race_seconds > 0 and isinstance(backend, CpuBackend)
