"""Measured in the background, once: a function with kernels against XLA's own version of it, on this CPU.

    jit(f)(x)               compiled as the cost model decides; a race is due       race_later
    nothing is compiled     versions of it run on random arguments, on one thread    races, background_race
    next compilation        of the same call, also in other processes: the faster   settled

What runs does not change under its feet: a program that is compiled stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import jax

from jstitch.codegen.backend import Backend
from jstitch.codegen.cpu.backend import CpuBackend
from jstitch.frontend.ask import compile_seconds
from jstitch.frontend.asked_gate import written_out
from jstitch.frontend.background_race import FEWER, KIND, MORE, Due, library_of
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.measurable import why_not_run
from jstitch.frontend.measure import Rivals
from jstitch.frontend.measured_gate import OURS, XLA, Decision, ordered, paired
from jstitch.frontend.probe import Program, make_program
from jstitch.frontend.probe_inputs import describe_arguments
from jstitch.frontend.races import RACES
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import KERNEL
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context, Lost
from jstitch.passes.base.op_keys import kernel_key
from jstitch.passes.base.plan import Reason
from jstitch.passes.chunk.chunk_rows import chunks_of
from jstitch.passes.cost.leave_thread import leaves_thread
from jstitch.runtime.performance_library import Verdict, library_path, verdict_key
from jstitch.runtime.telemetry import logger

RACED = "raced"
WITHOUT = "raced: the function takes {found} us with it, and {bound} us without"
BOLD = "with kernels that the model is not sure of"
IN_DOUBT = 3  # kernels without which a function is raced
LARGEST = 1 << 19  # bytes of programs that wait for a race
COMPILED = 0.2  # of the seconds that XLA:GPU takes to compile a program; XLA:CPU's


@dataclass(frozen=True)
class Settled:
    """What races said of a call, one after another. stays: why all of it is XLA's; None where it is not.

    lost: kernels that it is to be without. bold: it is to have those that the model is not sure of. open:
    there is one more race to run, whose verdict has this key.
    """

    decisions: tuple[Decision, ...] = ()
    lost: Lost = field(default_factory=Lost)
    bold: bool = False
    stays: Reason | None = None
    open: bool = False
    key: str = ""


def settled(options: CompileOptions, deciding: Callable[[], str], backend: Backend) -> Settled:
    """deciding: gives `deciding_key`."""
    if not _asks(options, backend):
        return Settled()
    found = Settled(open=True, key=verdict_key(KIND, deciding()))
    if not os.path.exists(library_path(options.cache_dir)):
        return found
    library = library_of(options.cache_dir)
    while found.open and (verdict := library.verdict(found.key)) is not None and verdict.measured:
        found = _with(found, verdict, deciding())
    return found


def _with(found: Settled, verdict: Verdict, deciding: str) -> Settled:
    """And what one more race said."""
    choice, *keys = verdict.choice.split()
    if choice == MORE:
        return _bolder(found, verdict, deciding)
    decision = Decision("function", choice, verdict.ours, verdict.xla, RACED)
    decisions = (*found.decisions, decision)
    if choice == XLA:
        return replace(found, decisions=decisions, stays=decision.reason, open=False)
    if choice != FEWER:
        return replace(found, decisions=decisions, open=False)
    why = Reason("measured", WITHOUT, verdict.ours * 1e6, verdict.xla * 1e6)
    lost = found.lost.and_also(keys, why)
    return _asked_again(replace(found, decisions=decisions, lost=lost), deciding)


def _bolder(found: Settled, verdict: Verdict, deciding: str) -> Settled:
    """With kernels that the model is not sure of, which are raced one by one from then on."""
    decision = Decision("function", MORE, verdict.xla, verdict.ours, RACED, BOLD)
    return _asked_again(replace(found, decisions=(*found.decisions, decision), bold=True), deciding)


def _asked_again(found: Settled, deciding: str) -> Settled:
    more = (MORE,) if found.bold else ()
    return replace(found, key=verdict_key(KIND, deciding, *more, *sorted(found.lost.keys)))


@dataclass(frozen=True)
class Versions:
    """Of a call. graph: as it was imported. stitched: with its kernels, if it has any.

    plain, bold: give what it would be without kernels, and with those that the model is not sure of.
    doubtful: whether there are such.
    """

    graph: Graph
    stitched: Graph
    plain: Callable[[], Graph]
    bold: Callable[[], Graph]
    doubtful: bool


def race_later(
    versions: Versions, context: Context, name: str, key: str, donated: Mapping[Value, Value]
) -> None:
    """Have a call that was just planned raced, where it can be, and somebody may be faster.

    key: of the verdict. donated: inputs of the graph whose memory may be written -> the output that takes it.
    Failure to ask for a race is no failure to stitch.
    """
    try:
        due = _due(versions, context, name, key, donated)
    except Exception as error:
        if context.options.strict:
            raise
        logger("tune").info("%s: no race: %s: %s", name, type(error).__name__, error)
        return
    if due is not None:
        RACES.add(due)


def _due(
    versions: Versions, context: Context, name: str, key: str, donated: Mapping[Value, Value]
) -> Due | None:
    """None where there can be no race."""
    options, graph, stitched = context.options, versions.graph, versions.stitched
    kernels = _kernels(stitched)
    demanded = any(op.attrs["demanded"] for op in kernels)
    seconds = 2 * COMPILED * compile_seconds(graph)
    if demanded or not (kernels or versions.doubtful) or chunks_of(stitched):
        return None
    if seconds > options.race_seconds or not graph.inputs or why_not_run(graph) is not None:
        return None
    pairs = paired(graph, donated)

    def program(made: Graph) -> Program:
        emit = partial(emit_kernel, leaves=leaves_thread(made, context.machine))
        return make_program(ordered(made, pairs), emit)

    def bolder() -> Program | None:
        made = versions.bold()
        same = {key_of(op) for op in _kernels(made)} == {key_of(op) for op in kernels}
        return None if same or chunks_of(made) else program(made)

    programs = {OURS: program(stitched)} if kernels else {}
    programs[XLA if kernels else OURS] = program(versions.plain())
    for left_out in _in_doubt(kernels):
        fewer = written_out(stitched, partial(_is, key=left_out))
        programs[f"{FEWER} {left_out}"] = program(fewer)
    if sum(len(program.code) for program in programs.values()) > LARGEST:
        return None
    memory = {argument: n for n, (argument, _) in enumerate(pairs)}
    rivals = Rivals(tuple(programs.values()), describe_arguments(graph), memory)
    late = bolder if versions.doubtful else None
    return Due(key, name, rivals, tuple(programs), late, options.race_seconds, options.cache_dir)


def _kernels(graph: Graph) -> list[Op]:
    return [op for op in graph.walk() if op.name == KERNEL]


def _in_doubt(kernels: Sequence[Op]) -> list[str]:
    """Keys of those without which the function is raced, too: some that are modelled to save least."""
    saved: dict[str, float] = {}
    for op in kernels:
        key = key_of(op)
        saved[key] = saved.get(key, 0.0) + op.attrs["saved"]
    return sorted(saved, key=saved.__getitem__)[:IN_DOUBT] if len(saved) > 1 else []


def _is(kernel: Op, key: str) -> bool:
    return key_of(kernel) == key


def key_of(kernel: Op) -> str:
    """`kernel_key` of a `jstitch.kernel` op."""
    (body,) = kernel.regions
    return kernel_key(body.inputs, body.ops, body.outputs)


def _asks(options: CompileOptions, backend: Backend) -> bool:
    """Whether races decide at all: nobody else does, and the device is here.

    Of several processes all are to run the same program, whatever each has measured.
    """
    own = options.plan is None and options.template is None and options.tune == "model"
    here = isinstance(backend, CpuBackend) and jax.process_count() == 1
    return own and options.race_seconds > 0 and here
