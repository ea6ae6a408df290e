"""The pipeline's entry: operations of one stitched call in, operations with kernels out.

StableHLO -> Graph -> graph passes -> FusionPlan per frame -> Kernel per pattern -> source -> custom calls
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

from jstitch.codegen.backend import Backend
from jstitch.codegen.cuda.backend import CudaBackend
from jstitch.errors import JstitchWarning
from jstitch.frontend.ask import UnansweredError
from jstitch.frontend.asked_gate import PREPARATIONS, AskedGate, Form, Preparation, ask, is_in_question
from jstitch.frontend.crash import leaving
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.dump import Dump, open_dump
from jstitch.frontend.exporter import export_graph
from jstitch.frontend.importer import Imported, import_ops
from jstitch.frontend.kept_call import KeptCall, deciding_key, kept_call
from jstitch.frontend.kernel_builder import KernelBuilder
from jstitch.frontend.loop_gate import gate_loops
from jstitch.frontend.measured_gate import ELSEWHERE, Gate, measured_gate
from jstitch.frontend.mlir import print_ops
from jstitch.frontend.pins import Pinned, find_pinned, follow, tell, tell_unknown, unmeasured
from jstitch.frontend.race_later import Settled, Versions, race_later, settled
from jstitch.ir.graph import Graph, Value
from jstitch.ir.ops import KERNEL, TURNED
from jstitch.passes.base.context import Context, Returned
from jstitch.passes.base.named_pass import NamedPass
from jstitch.passes.base.plan import FusionPlan, Reason
from jstitch.passes.base.rewrite import map_frames
from jstitch.passes.chunk.chunk_rows import chunk_rows, chunks_of, has_large_products
from jstitch.passes.cost.kernel_work import ops_outside
from jstitch.passes.cost.leave_thread import leaves_thread
from jstitch.passes.fuse.alias_donated import carried_by_loops
from jstitch.passes.fuse.copy_returned import copy_returned
from jstitch.passes.fuse.gate import is_doubtful
from jstitch.passes.fuse.leave_lost import leave_lost
from jstitch.passes.fuse.leave_small import leave_small
from jstitch.passes.fuse.plan_tree import contract_tree, plan_tree
from jstitch.passes.graph.copy_carried import copy_carried
from jstitch.passes.graph.fold_transposes import fold_transposes
from jstitch.passes.graph.keep_counters import keep_counters
from jstitch.passes.graph.swap_products import swap_products
from jstitch.passes.graph.turn_gradients import turn_gradients
from jstitch.passes.lower.name_kernel import KernelNames
from jstitch.passes.pipeline import PIPELINE, run
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.schedule.kernel_passes import kernel_passes
from jstitch.runtime.report import note, noted
from jstitch.template import parse_template

_names: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""The kernels' names in each module that is being lowered."""


def rewrite(
    ops: Sequence[Any],
    args: Sequence[Any],
    results: Sequence[Any],
    module: Any,
    context: Context,
    name: str,
    backend: Backend,
    *,
    donated: Mapping[int, int | None],
    arguments: Collection[int] | None = None,
) -> list[Any] | None:
    """New results, with their operations at the end of the block; None leaves the block as it is.

    donated: inputs whose memory may be written -> the output that takes it. arguments: where the call is the
    whole program, those of its inputs that are the program's arguments.
    """
    imported, text = import_ops(ops, args, results, module), partial(print_ops, ops)
    return rewrite_imported(
        imported, text, module, context, name, backend, donated=donated, arguments=arguments
    )


def rewrite_imported(
    imported: Imported,
    text: Callable[[], str],
    module: Any,
    context: Context,
    name: str,
    backend: Backend,
    *,
    donated: Mapping[int, int | None],
    arguments: Collection[int] | None = None,
    divided: bool = False,
) -> list[Any] | None:
    """The same of ops that were imported. text: what they are, for those who look. divided: one device's
    part of a program for several."""
    dump = open_dump(context, name)
    dump.text("input.mlir", text)
    taken = _names.setdefault(module, set())
    graph = imported.graph
    deciding = cache(partial(deciding_key, graph, context, backend, donated, arguments))
    raced = Settled() if divided else settled(context.options, deciding, backend)
    if raced.decisions:
        note(tuning=raced.decisions)
    context = replace(context, lost=raced.lost, bold=raced.bold)
    if raced.stays is not None and not dump.is_looked_at:
        stitched = graph
    else:
        kept = kept_call(graph, context, name, dump, backend, deciding, taken)
        call = partial(rewrite_graph, donated=donated, arguments=arguments, taken=taken)
        stitched = _kept_or_made(kept, lambda: call(graph, context, name, dump, backend))
    if raced.stays is not None:
        dump.stays(raced.stays)
        stitched = graph
    elif raced.open and not divided and not dump.is_looked_at:
        silent = Dump(None, (), context.options.verify)
        bolder = replace(context, bold=True)
        versions = Versions(
            graph,
            stitched,
            partial(with_turned_gradients, graph, context),
            lambda: call(graph, bolder, name, silent, backend),
            not context.bold and noted().get("doubtful", False),
        )
        race_later(versions, context, name, raced.key, given_memory(graph, donated))
    kernel_ops = [op for op in stitched.walk() if op.name == KERNEL]
    names = [op.attrs["name"] for op in kernel_ops]
    kernels = len(names)
    taken.update(names)
    chunked = chunks_of(stitched)
    if not kernels and not chunked:
        _note_why(raced.stays, stitched is graph, context.options.tune)
        stitched = with_turned_gradients(imported.graph, context)
        turned = sum(op.name == TURNED for op in stitched.walk())
        if not turned:
            return None
        note(turned=turned)
    note(bytes={entry: moved for op in kernel_ops for entry, moved in op.attrs["traffic"].items()})
    works = [op.attrs["work"] for op in kernel_ops]
    inside = sum(work.ops for work in works)
    note(ops=(inside, inside + ops_outside(stitched)))
    note(moved=tuple(sum(work.modelled[n] for work in works) for n in range(2)))
    if chunked:
        note(chunked=chunked)
    emit = partial(emit_kernel, leaves=leaves_thread(stitched, context.machine))
    with leaving(imported.graph, context, name, not dump.only_plans, donated, arguments):
        new = export_graph(stitched, dict(imported.values), emit)
    note(kernels=kernels)
    dump.text("output.mlir", lambda: str(module))
    return new


def _kept_or_made(kept: KeptCall | None, make: Callable[[], Graph]) -> Graph:
    """What was kept of a call, or what is made now, and kept."""
    known = None if kept is None else kept.load()
    if known is not None:
        return known
    before = noted()
    made = make()
    if kept is not None:
        kept.keep(made, before)
    return made


def _note_why(lost: Reason | None, costs_more: bool, tune: str) -> None:
    """Why a call has no kernels. lost: a race. costs_more: than XLA's own program, as XLA says."""
    if lost is not None:
        note(reason=str(lost))
    elif costs_more:
        note(reason="XLA's own program costs less")
    elif tune == "measure":
        note(reason="no kernel was faster than XLA's")
    elif tune == "off":
        note(reason="there are no ops that can be stitched together")
    else:
        note(reason="no pattern is expected to pay")


def with_turned_gradients(graph: Graph, context: Context) -> Graph:
    """XLA's own program, but for gradients of weights that its library is slow at.

    The graph itself where it has none. Passes that make it ready for kernels could cost where there are none.
    """
    passes = [p for p in PIPELINE if p.about in (fold_transposes, swap_products, turn_gradients)]
    turned = run(graph, context, passes)
    return turned if any(op.name == TURNED for op in turned.walk()) else graph


def rewrite_graph(
    graph: Graph,
    context: Context,
    name: str,
    dump: Dump,
    backend: Backend,
    *,
    donated: Mapping[int, int | None],
    arguments: Collection[int] | None = None,
    taken: Collection[str] = (),
) -> Graph:
    """The whole pipeline on an imported graph: passes, plans, kernels. Arguments as for `rewrite`.

    taken: names of the program's other kernels.
    """
    dump.imported(graph)
    if arguments is not None:
        context = replace(context, returned=Returned(arguments, donated))
    if dump.seen is not None:
        dump.seen.context = replace(dump.seen.context, bold=context.bold)
        context = replace(context, watch=dump.seen.spans.append)
    with leaving(graph, context, name, not dump.only_plans, donated, arguments):
        stitched = _decided(graph, context, name, dump, backend, donated, taken)
    dump.stitched(stitched)
    return stitched


def _decided(
    graph: Graph,
    context: Context,
    name: str,
    dump: Dump,
    backend: Backend,
    donated: Mapping[int, int | None],
    taken: Collection[str],
) -> Graph:
    """The graph with kernels as a saved plan says, or a clock, or XLA and the models."""

    def ready(context: Context) -> Graph:
        return copy_returned(run(graph, context, PIPELINE, dump.after_pass), context)

    pinned = find_pinned(graph, name, context)
    if pinned is not None and not pinned.calls:
        tell_unknown(pinned, name, context.options)
    if pinned is not None and pinned.calls:
        plain = unmeasured(context)
        made = ready(plain)
        memory = given_memory(made, donated)
        return stitch_graph(made, plain, name, dump, backend, memory, taken=taken, pinned=pinned)
    if context.options.tune == "measure":
        made = ready(context)
        return tuned_graph(made, context, name, dump, backend, given_memory(made, donated), taken)
    return asked_graph(graph, context, name, dump, backend, donated, taken)


def asked_graph(
    graph: Graph,
    context: Context,
    name: str,
    dump: Dump,
    backend: Backend,
    donated: Mapping[int, int | None],
    taken: Collection[str],
) -> Graph:
    """The graph with kernels, without those by which it would cost more than XLA's own, where XLA can tell.

    The graph itself where none is left.
    """
    memory = partial(given_memory, donated=donated)

    def stitched(way: Preparation, dump: Dump, gate: Gate | None = None) -> Form:
        changed = replace(context, profile=way.profile(context.profile))
        ready = copy_returned(run(graph, changed, PIPELINE, dump.after_pass), changed)
        made = stitch_graph(ready, changed, name, dump, backend, memory(ready), gate, taken=taken)
        return Form(made, memory(ready))

    if dump.only_plans or not isinstance(backend, CudaBackend) or not is_in_question(graph, context.options):
        return stitched(PREPARATIONS[0], dump).stitched
    silent = Dump(None, (), context.options.verify)
    plain = in_chunks(graph, context)
    try:
        answer = ask(plain, memory(plain), lambda way: stitched(way, silent), context.options, backend.spec)
    except UnansweredError as error:
        note(unasked=str(error))
        return stitched(PREPARATIONS[0], dump).stitched
    note(asked=answer.why)
    gate = AskedGate(answer)
    made = stitched(answer.preparation, dump, gate).stitched
    return made if gate.stays else plain


def in_chunks(graph: Graph, context: Context) -> Graph:
    """What kernels have to be better than: the graph, with the loops over rows that it gets in any case."""
    last = next(n for n, p in enumerate(PIPELINE) if p.run_on is chunk_rows)
    ready = run(graph, context, PIPELINE[: last + 1]) if has_large_products(graph, context.machine) else graph
    return ready if chunks_of(ready) else graph


def given_memory(graph: Graph, donated: Mapping[int, int | None]) -> dict[Value, Value]:
    """Inputs whose memory may be written -> the output that takes it, by value."""
    return {
        graph.inputs[k]: graph.outputs[out]
        for k, out in donated.items()
        if out is not None and out < len(graph.outputs)
    }


def tuned_graph(
    graph: Graph,
    context: Context,
    name: str,
    dump: Dump,
    backend: Backend,
    donated: Mapping[Value, Value],
    taken: Collection[str] = (),
) -> Graph:
    """`stitch_graph`; where times are measured, the fastest of what was kept, what was planned, and XLA's.

    With kernels that the user demands (`fuse_together`) it is what was kept.
    """
    if context.options.tune != "measure":
        return stitch_graph(graph, context, name, dump, backend, donated, taken=taken)
    modelled = replace(context, options=context.options.replace(tune="model"))
    with measured_gate(graph, donated, context, backend) as gate:
        if gate is None:
            note(tuning=(ELSEWHERE,))
            return stitch_graph(graph, modelled, name, dump, backend, donated, taken=taken)
        kept = stitch_graph(graph, context, name, dump, backend, donated, gate, taken=taken)
        if any(op.attrs["demanded"] for op in kept.walk() if op.name == KERNEL):
            chosen = kept
        else:
            other = dump.other_way()
            planned = stitch_graph(graph, modelled, name, other, backend, donated, taken=taken)
            chosen = gate.choose({"measured": kept, "modelled": planned})
            dump.chose(other, chosen is planned, None if chosen is kept else gate.reason)
        note(tuning=tuple(gate.decisions))
        dump.text("tuning.txt", lambda: "\n".join(map(str, gate.decisions)))
        return chosen


def stitch_graph(
    graph: Graph,
    context: Context,
    name: str,
    dump: Dump,
    backend: Backend,
    donated: Mapping[Value, Value],
    gate: Gate | None = None,
    planner: Callable[[Graph, Context], FusionPlan] | None = None,
    taken: Collection[str] = (),
    scheduling: Sequence[NamedPass] | None = None,
    pinned: Pinned | None = None,
) -> Graph:
    """Plan every frame and put a `jstitch.kernel` op in the place of every pattern.

    donated: graph inputs whose memory may be written -> the output that takes it. gate: which kernels stay.
    planner: of frames; None: `plan_frame`. taken: names of the program's other kernels. scheduling: what
    kernels go through; None: the target's passes. pinned: what a saved plan says of the graph.
    """
    memory = {**carried_by_loops(graph), **donated}
    passes = kernel_passes(context.machine) if scheduling is None else scheduling
    ready = map_frames(keep_counters(graph), lambda frame: copy_carried(frame, context))
    dump.ready(ready)
    followed = follow(pinned, ready)
    builder = KernelBuilder(name, context, dump, backend, memory, gate, KernelNames(taken), passes, followed)
    plan = planner or partial(plan_frame, pins=followed.pins if followed else None)
    tree = plan_tree(ready, lambda frame: plan(frame, context))
    if planner is None and context.options.tune != "off":
        tree = leave_lost(leave_small(gate_loops(tree, context, builder.lowered), context), context)
        if any(is_doubtful(refusal.why) for planned in tree.walk() for refusal in planned.plan.refusals):
            note(doubtful=True)
    build = builder.leave if dump.only_plans else builder.build
    found = contract_tree(tree, context, dump.plan, build)
    builder.wait()
    if followed is not None:
        dump.followed(followed.pins, tell(followed, name, context.options))
    if dump.only_plans:
        return found
    if context.options.template is not None and not builder.follows:
        _warn_of_template(context.options.template, name)
    return found


def _warn_of_template(text: str, name: str) -> None:
    """The user asked for schedules of ops that are in no kernel: a name may be wrong, or another call's."""
    ops = ", ".join(schedule.op for schedule in parse_template(text).schedules)
    told = f"no kernel of {name} has all of the ops that the template names ({ops})"
    note(template=told)
    warnings.warn(
        f"{told}: it changes nothing there.\n  next: jstitch.explain prints the templates that there are.",
        JstitchWarning,
        stacklevel=2,
    )
