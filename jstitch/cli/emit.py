"""What `jstitch opt --emit` prints of what its passes left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from jstitch.cli.run_passes import State
from jstitch.codegen.print_kernel import print_kernel
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.dump import Dump
from jstitch.frontend.exporter import export_module
from jstitch.frontend.graph_picture import draw_graph
from jstitch.frontend.rewrite import given_memory, stitch_graph
from jstitch.frontend.target import Target
from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import KERNEL
from jstitch.ir.printer import print_graph
from jstitch.passes.base.context import Context, Returned
from jstitch.passes.named_passes import default_passes
from jstitch.passes.schedule.kernel_passes import kernel_passes


@dataclass(frozen=True)
class Subject:
    """What is printed: the state that the passes left, and where it stands."""

    state: State
    context: Context
    target: Target
    returned: Returned


def text_of(subject: Subject, emit: str | None) -> str:
    """emit: a name of EMIT; None: the plan where there is one, else the graph."""
    emit = emit or ("plan" if subject.state.planning else "graph")
    return EMIT[emit](_planned(subject) if emit in NEED_A_PLAN else subject)


def _planned(subject: Subject) -> Subject:
    """With plans, of the planner that the options name where no pass has made any."""
    state = subject.state
    if state.planning:
        return subject
    planning = default_passes(subject.context.options.planner)[len(default_passes(None)) :]
    for p in (*planning, *kernel_passes(subject.context.machine)):
        state = state.after(p, subject.context)
    return replace(subject, state=state)


def _stitched(subject: Subject) -> Graph:
    state, context = subject.state, subject.context
    return stitch_graph(
        *(state.graph, context, "kernel", Dump(None, (), True), subject.target.backend),
        given_memory(state.graph, subject.returned.homes),
        planner=lambda frame, _: state.plan(frame, context),
        scheduling=state.scheduling,
    )


def _kernel_ops(subject: Subject) -> Iterator[Op]:
    return (op for op in _stitched(subject).walk() if op.name == KERNEL)


def _kernels(subject: Subject) -> str:
    return "\n".join(print_kernel(op.attrs["kernel"]) for op in _kernel_ops(subject))


def _source(subject: Subject) -> str:
    return "\n".join(op.attrs["text"] for op in _kernel_ops(subject))


EMIT: dict[str, Callable[[Subject], str]] = {
    "graph": lambda subject: print_graph(subject.state.graph),
    "plan": lambda subject: str(subject.state),
    "kernels": _kernels,
    "source": _source,
    "mlir": lambda subject: str(export_module(subject.state.graph)),
    "stitched": lambda subject: str(export_module(_stitched(subject), emit_kernel=emit_kernel)),
    "dot": lambda subject: draw_graph(subject.state.graph, subject.state.plans),
}
NEED_KERNELS = ("kernels", "source", "stitched")
NEED_A_PLAN = ("plan", "dot", *NEED_KERNELS)
