"""A saved plan in the place of the planner's decisions: which of its calls a call is, and what does not fit.

CompileOptions(plan="plan.txt")    ->    the kernels that the file says, checked as all kernels are

What is no longer as it was saved is planned as usual, and said: in the call's record, in `explain`, and by
one warning; with `strict` it is an error.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby

from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.print_kernel import print_kernel
from jstitch.errors import JstitchWarning, PlanMismatchError
from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.op_keys import graph_key, op_keys, text_key
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.fuse.follow_pins import Pins, match_pins
from jstitch.passes.planners import AUTO, BEST
from jstitch.plan_file import PinnedCall, PlanFile, read_plan
from jstitch.runtime.report import note
from jstitch.runtime.versions import version_of

SHOWN = 12  # source lines of ops that are gone, or new, that a message has
OTHER_LOOPS = "{name}: this version makes other loops of the same ops"


@dataclass(frozen=True)
class Pinned:
    """path: of the plan. calls: those that may be the call, none where it does not know it. same: whether the
    traced program is the saved one. told: what else is not as it was saved."""

    path: str
    calls: tuple[PinnedCall, ...]
    same: bool
    told: tuple[str, ...]


@dataclass(eq=False)
class Followed:
    """What became of a saved call's kernels. failed: what was found out while they were built."""

    pinned: Pinned
    pins: Pins
    failed: list[str] = field(default_factory=list)

    def look_at(self, pattern: FusionPattern, kernel: Kernel) -> None:
        """Look at the loops of a kernel before any pass has changed them."""
        kept = pattern.pinned
        if kept is not None and loops_key(kernel) != kept.loops:
            self.failed.append(OTHER_LOOPS.format(name=kept.name))

    def refused(self, pattern: FusionPattern, why: str) -> None:
        """The kernel cannot be built: its ops stay XLA's."""
        if pattern.pinned is not None:
            self.failed.append(f"{pattern.pinned.name} stays XLA's: {why}")


def find_pinned(graph: Graph, name: str, context: Context) -> Pinned | None:
    """What the options' plan says of a call; None without one. graph: as it was imported.

    Raises ParseError and OSError for a file that holds no plan.
    """
    options = context.options
    if options.plan is None:
        return None
    file, key = read_plan(options.plan), graph_key(graph)
    calls = tuple(_calls(file, name, graph, key))
    told = tuple(_other_versions(file, context))
    return Pinned(options.plan, calls, any(call.program == key for call in calls), told)


def follow(pinned: Pinned | None, graph: Graph) -> Followed | None:
    """The saved call, matched with the graph that is to be planned."""
    if pinned is None:
        return None
    key = graph_key(graph)
    call = next((call for call in pinned.calls if call.graph == key), pinned.calls[0])
    return Followed(pinned, match_pins(call, graph))


def unmeasured(context: Context) -> Context:
    """The context in which nobody is asked for times: what a plan does not say, the model decides."""
    options = context.options
    modelled = options.replace(tune="model") if options.tune == "measure" else options
    return replace(context, options=modelled, times=None, clock=None)


def loops_key(kernel: Kernel) -> str:
    """A hash of the kernel's loops, without its name and the user's lines."""
    lines = print_kernel(kernel).splitlines()[1:]
    return text_key("\n".join(line for line in lines if not line.lstrip().startswith("//")))


# -- which call --------------------------------------------------------------------------------------------


def _calls(file: PlanFile, name: str, graph: Graph, key: str) -> list[PinnedCall]:
    """The same program, if it can be by this name; else those of this name, by how many ops they share."""
    same = [call for call in file.calls if call.program == key]
    named = [call for call in file.calls if call.name == name]
    both = [call for call in named if call.program == key]
    if both or same:
        return both or same
    ops = Counter(op_keys(graph).values()) if len(named) > 1 else Counter[str]()
    return sorted(named, key=lambda call: -_shared(call, ops))


def _shared(call: PinnedCall, ops: Counter[str]) -> int:
    return (Counter(op for op, _ in call.sequence) & ops).total()


def _other_versions(file: PlanFile, context: Context) -> Iterator[str]:
    device = context.machine.device
    now = {
        "jstitch": (file.jstitch, version_of("jstitch")),
        "jax": (file.jax, version_of("jax")),
        "target": (file.target, device.name if device else "cpu"),
    }
    yield from (f"{what} was {old}, and is {new}" for what, (old, new) in now.items() if old != new)
    options = options_text(context.options)
    for name in sorted({*file.options, *options}):
        old, new = (found.get(name, "the default") for found in (file.options, options))
        if old != new:
            yield f"option {name} was {old}, and is {new}"


PLANNING = ("planner", "schemes", "without", "templates", "template", "arena_bytes", "tune")
"""Options that plans depend on."""


def options_text(options: CompileOptions) -> dict[str, str]:
    """Those that plans depend on and that are not at their defaults."""
    usual = {field.name: field.metadata["default"] for field in fields(CompileOptions)}
    named = options.replace(planner=BEST) if options.planner == AUTO else options
    found = {name: getattr(named, name) for name in PLANNING}
    return {name: _text(value) for name, value in found.items() if value != usual[name]}


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


# -- what is said ------------------------------------------------------------------------------------------


def tell(followed: Followed, name: str, options: CompileOptions) -> tuple[str, ...]:
    """Note, and return, what is not as it was saved; warn where kernels are not.

    Raises PlanMismatchError for that with `strict`.
    """
    pinned, pins = followed.pinned, followed.pins
    changed = [*_changes(pins, pinned.same), *dict.fromkeys(followed.failed)]
    kept = len(pins.call.kernels) - len(pins.lost)
    told = (f"{kept} of {len(pins.call.kernels)} kernels of {pinned.path}", *pinned.told, *changed)
    note(pinned=told)
    if changed:
        _warn(f"{name} is not as {pinned.path} has it", (*pinned.told, *changed), pinned.path, options)
    return told


def tell_unknown(pinned: Pinned, name: str, options: CompileOptions) -> None:
    """The plan does not know the call, which is planned as usual."""
    told = f"{pinned.path} has no call of this name"
    note(pinned=(told,))
    _warn(f"{name}: {told}", ("it is planned as usual",), pinned.path, options)


def _warn(what: str, lines: Sequence[str], path: str, options: CompileOptions) -> None:
    hint = f"look at it with `jstitch plan PROGRAM --diff {path}`, and save it anew with --save"
    if options.strict:
        raise PlanMismatchError(
            f"the program that {path} is a plan of", f"{what}: {'; '.join(lines)}", hint=hint
        )
    text = "\n".join([f"{what}:", *(f"  {line}" for line in lines), f"  next: {hint}."])
    warnings.warn(text, JstitchWarning, stacklevel=2)


def _changes(pins: Pins, same: bool) -> Iterator[str]:
    """What the graph has no longer, or has more, with source lines, and the kernels that it costs."""
    for number, why in sorted(pins.lost.items()):
        yield f"kernel {pins.call.kernels[number].name} is planned anew: {why}"
    gone = pins.gone()
    if same and (gone or pins.new):
        yield "the program is the same: passes on its graph decide otherwise here"
    yield from _by_line("gone", gone)
    yield from _by_line("new", [(pins.keys[op], op.loc) for op in pins.new])


def _by_line(what: str, ops: Iterable[tuple[str, str]]) -> Iterator[str]:
    groups = [(at, [op for op, _ in group]) for at, group in groupby(ops, key=lambda entry: entry[1])]
    for at, found in groups[:SHOWN]:
        yield f"{what}: {', '.join(map(_short, found))}{f' at {at}' if at else ''}"
    if len(groups) > SHOWN:
        yield f"{what}: ops of {len(groups) - SHOWN} more lines"


def _short(key: str) -> str:
    """Without the hash."""
    name, _, kind = key.partition(" ")
    return f"{name.partition('.')[0]} {kind}".rstrip()
