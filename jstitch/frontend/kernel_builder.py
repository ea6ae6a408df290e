"""Kernels of one stitched call: a pattern in, a kernel that the backend built out, or why there is none.

FusionPattern -> Kernel -> what each kernel pass makes of it -> source, machine code
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from jstitch.codegen.backend import Backend, CannotBuildError
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
            kernel = best_kernel("planned", *about)
            if self.followed is not None:
                self.followed.look_at(pattern, kernel)
            self._kernels[pattern] = alias_donated(kernel, pattern, self.donated)
        return self._kernels[pattern]

    def _scheduled(self, kernel: Kernel) -> dict[str, Kernel]:
        """The kernel, and what each pass makes of it, by the endings of their files.

        What is built is checked; with `verify`, all of them. Raises VerifyError.
        """
        forms = {"kernel": kernel}

        def after(step: Step[Kernel]) -> None:
            if step.changed:
                forms[AFTER + step.name] = step.value

        schedule_kernel(kernel, self.context, self.scheduling, after)
        for ending in forms if self.dump.verify else [*forms][-1:]:
            verify_kernel(forms[ending], f"{kernel.name}, {ending}")
        return forms

    def build(self, pattern: FusionPattern) -> Mapping[str, Any] | None:
        """Attributes of the kernel op; None when no kernel can express the pattern (it stays XLA's)."""
        name, wanted = self.names.unique(name_kernel(pattern, self.name)), demanded(pattern)
        template, profile = self.context.options.template, self.context.profile
        if template is not None:
            asked = parse_template(template)
            self.follows |= speaks_of(asked, pattern.ops, pattern.outputs, profile, pattern.updates)
        try:
            forms = self._scheduled(replace(self._lowered(pattern), name=name))
            *_, kernel = forms.values()
            if (slower := judge_kernel(kernel, pattern, self.context)) is not None:
                raise CannotLowerError(slower)
            built = self.backend.build(kernel, self.context.options.cache_dir)
        except (CannotLowerError, CannotBuildError) as error:
            if wanted is not None:
                refuse(wanted, str(error), pattern.ops[-1].loc)
            note(details_refused=str(error))
            if self.followed is not None:
                self.followed.refused(pattern, str(error))
            self.dump.refused(name, pattern, error.reason)
            return None
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
