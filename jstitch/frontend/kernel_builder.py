"""Kernels of one stitched call: a pattern in, a kernel that the backend built out, or why there is none.

FusionPattern -> Kernel -> what each kernel pass makes of it -> source, machine code

A network's layers are alike: patterns that differ in nothing but the identity of their values are lowered,
scheduled, checked and written out once, and named one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from jstitch.codegen.backend import Backend, Built, CannotBuildError
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.dump import AFTER, Dump
from jstitch.frontend.measured_gate import Gate
from jstitch.frontend.pins import Followed
from jstitch.ir.graph import Value
from jstitch.passes.base.context import Context
from jstitch.passes.base.named_pass import NamedPass
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.run_passes import Step
from jstitch.passes.cost.kernel_work import kernel_work
from jstitch.passes.cost.structure import structure
from jstitch.passes.fuse.absorb_updates import contracted
from jstitch.passes.fuse.alias_donated import alias_donated
from jstitch.passes.fuse.gate import judge
from jstitch.passes.fuse.hold_together import demanded, is_fixed, refuse
from jstitch.passes.fuse.judge_kernel import judge_kernel
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.check_kernel import verify_kernel
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.lower.name_kernel import KernelNames, name_kernel
from jstitch.passes.lower.rewrite_ops import speaks_of
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.runtime.report import note
from jstitch.template import parse_template

Forms = Mapping[str, Kernel]
"""A kernel, and what each pass made of it, by the endings of their files."""
T = TypeVar("T")


class _Once(Generic[T]):
    """What was made of the first of all that are alike, or why nothing was; anew where `like` is None."""

    def __init__(self) -> None:
        self._found: dict[Hashable, T] = {}
        self._refused: dict[Hashable, CannotLowerError] = {}

    def __call__(self, like: Hashable, make: Callable[[], T]) -> T:
        if like is None:
            return make()
        if like in self._refused:
            raise self._refused[like].with_traceback(None)
        if like not in self._found:
            try:
                self._found[like] = make()
            except CannotLowerError as error:
                self._refused[like] = error
                raise
        return self._found[like]


class KernelBuilder:
    """Kernels of one stitched call, each with a name of its own."""

    def __init__(
        self,
        name: str,
        context: Context,
        dump: Dump,
        backend: Backend,
        donated: Mapping[Value, Value],
        gate: Gate | None,
        names: KernelNames,
        scheduling: Sequence[NamedPass],
        followed: Followed | None = None,
    ) -> None:
        self.name, self.context, self.dump = name, context, dump
        self.backend, self.donated, self.gate = backend, donated, gate
        self.names, self.scheduling, self.followed = names, scheduling, followed
        self.follows = False  # whether some kernel has the ops that the template names
        self._kernels: WeakKeyDictionary[FusionPattern, Kernel] = WeakKeyDictionary()
        self._lower, self._schedule = _Once[Kernel](), _Once[Forms]()
        self._built: dict[Hashable, Built] = {}
        self._begun: list[Built] = []

    def leave(self, pattern: FusionPattern) -> None:
        """Nobody wants a kernel of it."""

    def lowered(self, pattern: FusionPattern) -> Kernel | None:
        """The pattern's kernel, without a name of its own; None when none can express it."""
        try:
            return self._lowered(pattern)
        except CannotLowerError:
            return None

    def _lowered(self, pattern: FusionPattern) -> Kernel:
        if pattern not in self._kernels:
            inputs, _, outputs = contracted(pattern)
            about = pattern.ops, inputs, outputs, self.context, pattern.updates, pattern.template
            kernel = self._lower(_like(pattern), lambda: best_kernel("planned", *about))
            if self.followed is not None:
                self.followed.look_at(pattern, kernel)
            self._kernels[pattern] = alias_donated(kernel, pattern, self.donated)
        return self._kernels[pattern]

    def _scheduled(self, kernel: Kernel) -> Forms:
        """What is built is checked; with `verify`, all of them. Raises VerifyError."""
        forms = {"kernel": kernel}

        def after(step: Step[Kernel]) -> None:
            if step.changed:
                forms[AFTER + step.name] = step.value

        schedule_kernel(kernel, self.context, self.scheduling, after)
        for ending in forms if self.dump.verify else [*forms][-1:]:
            verify_kernel(forms[ending], f"{kernel.name}, {ending}")
        return forms

    def _build(self, kernel: Kernel, like: Hashable) -> Built:
        """Written out anew only where nothing like it was, or where the backend does not rename."""
        alike = None if like is None else self._built.get(like)
        if alike is not None and alike.renamed is not None:
            return alike.renamed(kernel.name)
        built = self._built[like] = self.backend.build(kernel, self.context.options.cache_dir)
        self._begun.append(built)
        return built

    def wait(self) -> None:
        """Until all kernels are built. Raises what was wrong with the first that could not be."""
        while self._begun:
            self._begun.pop(0).ready()

    def build(self, pattern: FusionPattern) -> Mapping[str, Any] | None:
        """Attributes of the kernel op; None when no kernel can express the pattern (it stays XLA's)."""
        name, wanted = self.names.unique(name_kernel(pattern, self.name)), demanded(pattern)
        template, profile = self.context.options.template, self.context.profile
        if template is not None:
            asked = parse_template(template)
            self.follows |= speaks_of(asked, pattern.ops, pattern.outputs, profile, pattern.updates)
        try:
            plain = self._lowered(pattern)
            like = _like(pattern, *sorted(plain.aliases.items()))
            forms = self._schedule(like, lambda: self._scheduled(replace(plain, name=name)))
            forms = {ending: replace(form, name=name) for ending, form in forms.items()}
            *_, kernel = forms.values()
            if (slower := judge_kernel(kernel, pattern, self.context)) is not None:
                raise CannotLowerError(slower)
            built = self._build(kernel, like)
        except (CannotLowerError, CannotBuildError) as error:
            if wanted is not None:
                refuse(wanted, str(error), pattern.ops[-1].loc)
            note(details_refused=str(error))
            if self.followed is not None:
                self.followed.refused(pattern, str(error))
            self.dump.refused(name, pattern, error.reason)
            return None
        if self.gate is not None:
            self.wait()  # no other kernel is to be built while this one is timed
        verdict = judge(pattern, self.context.profile)
        attrs = {
            **{"name": name, "kernel": kernel, "calls": built.calls, "text": built.text},
            "demanded": wanted is not None,
            "traffic": built.traffic,
            "work": kernel_work(pattern, (verdict.xla.nbytes, verdict.ours.nbytes)),
            "saved": verdict.xla_seconds - verdict.ours_seconds,
        }
        if not is_fixed(pattern) and self.gate is not None and not self.gate.keeps(pattern, attrs):
            self.dump.refused(name, pattern, self.gate.reason)
            return None
        self.dump.kernel(pattern, forms, built)
        return attrs


def _like(pattern: FusionPattern, *more: Hashable) -> Hashable:
    """Equal for patterns whose kernels differ in name only; None: like no other.

    Lines of the user's code are quoted in kernels. more: what else a kernel depends on.
    """
    body = structure(pattern)
    return None if body is None else (body, tuple(op.loc for op in pattern.ops), pattern.template, more)
