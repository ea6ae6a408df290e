"""Passes on a module, one after the other, timed: what `jstitch opt` does, and does again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from jstitch.cli.emit import Subject, text_of
from jstitch.cli.files import target_of
from jstitch.cli.pass_times import Part, part_of, sum_of
from jstitch.cli.run_passes import State, Timed, Watch
from jstitch.frontend.crash import crash_of, leaving_crash, module_text
from jstitch.frontend.importer import entry_function, import_module
from jstitch.frontend.lowering import donation_map
from jstitch.frontend.mlir import ir
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context, Returned
from jstitch.passes.base.named_pass import NamedPass

Step = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """emit: what is printed of the result, a name of `emit.EMIT` or None."""

    passes: tuple[NamedPass, ...]
    options: CompileOptions
    watch: Watch
    emit: str | None = None


@dataclass(frozen=True)
class Done:
    """The text, and where the time went: in the order of the pipeline, and as a tree."""

    text: str
    times: Sequence[Timed]
    parts: tuple[Part, ...]


def run_job(module: ir.Module, job: Job, step: Step = lambda what: None) -> Done:
    """Raises what a pass raises, and leaves a file of it where the options ask for one."""
    target, returned = target_of(job.options), _returned(module)
    context = Context(job.options, target.profile, returned)
    begun = time.perf_counter()
    state = State(import_module(module))
    imported = time.perf_counter()
    crash = partial(
        crash_of, context=context, via="opt", pipeline=",".join(map(str, job.passes)), emit=job.emit
    )
    with leaving_crash(job.options.reproducer_dir, crash, partial(module_text, module)):
        for p in job.passes:
            step(p.name)
            state = job.watch.run(p, state, context)
        step(f"print {job.emit or ''}")
        printing = time.perf_counter()
        text = text_of(Subject(state, context, target, returned), job.emit)
    parts = (
        Part("import", imported - begun),
        *_passes(job.watch.times),
        part_of("print", time.perf_counter() - printing, _kernels(job.watch.times)),
    )
    return Done(text, tuple(job.watch.times), parts)


def _returned(module: ir.Module) -> Returned:
    """Whose memory the arguments and results of a whole program are."""
    arguments = list(entry_function(module).regions[0].blocks[0].arguments)
    return Returned(range(len(arguments)), donation_map(arguments))


def _passes(times: Iterable[Timed]) -> Iterator[Part]:
    for kind, group in (("ops", "passes on graphs"), ("patterns", "passes on plans")):
        parts = [Part(t.name, t.seconds, f"{t.left} {t.kind}") for t in times if t.kind == kind]
        yield from sum_of(group, parts)


def _kernels(times: Iterable[Timed]) -> Iterator[Part]:
    """Those on kernels run while these are printed, once for each."""
    found: dict[str, list[float]] = {}
    for t in times:
        if t.kind == "instructions":
            found.setdefault(t.name, []).append(t.seconds)
    yield from sum_of(
        "passes on kernels",
        [Part(name, sum(seconds), f"{len(seconds)} kernels") for name, seconds in found.items()],
    )
