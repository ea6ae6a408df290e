"""Dump every stage of one stitched call, numbered, as readable files.

<dump_dir>/<call>_0/00_input.mlir  01_canonicalize.txt ...  07_plan.txt  08_<kernel>.kernel.txt  ...
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jstitch.codegen import backend
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.print_kernel import print_kernel
from jstitch.errors import JstitchWarning, VerifyError
from jstitch.frontend.log_plan import log_kernel, log_plan, log_refused
from jstitch.frontend.observe import Built, Observed, begin
from jstitch.ir.graph import Graph
from jstitch.ir.printer import print_graph
from jstitch.ir.verify import check
from jstitch.ir.visible import LONGEST_NAME
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason
from jstitch.passes.base.run_passes import Step
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.follow_pins import Pins
from jstitch.passes.fuse.print_plan import print_plan
from jstitch.runtime.trusted import open_unlinked

SCHEMA = 1  # of a kernel's .json
AFTER = "after_"  # a pass's name follows
_calls = itertools.count()


@dataclass(eq=False)
class Dump:
    """Where the stages of one call go; with no folder, nothing to print and nobody looking it does nothing.

    seen: of whoever watches from within the process. told: whether the log tells of it.
    """

    folder: Path | None
    print_after: tuple[str, ...]
    verify: bool
    seen: Observed | None = None
    told: bool = False
    count: itertools.count[int] = field(default_factory=itertools.count)

    def text(self, name: str, make: Callable[[], str], stage: str = "") -> None:
        """Write one numbered file, and print it when the options ask for its stage, or else its name."""
        stage = stage or name.partition(".")[0]
        if self.folder is None and stage not in self.print_after:
            return
        content = make()
        if stage in self.print_after:
            print(f"// -- {stage}\n{content}", file=sys.stderr)
        if self.folder is not None:
            self._write(self.folder, f"{next(self.count):02d}_{name}", content)

    def _write(self, folder: Path, name: str, content: str) -> None:
        """Write one file; a folder that cannot be written costs a warning and the rest of the dump."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / name, "w", encoding="utf-8", errors="replace", opener=open_unlinked) as file:
                file.write(content + "\n")
        except OSError as error:
            self.folder = None
            warnings.warn(
                f"jstitch cannot dump to {folder}: {error}. The program is stitched all the same;"
                " set dump_dir (JSTITCH_DUMP_DIR) to a writable folder.",
                JstitchWarning,
                stacklevel=2,
            )

    def imported(self, graph: Graph) -> None:
        if self.seen is not None:
            self.seen.graph = graph

    def after_pass(self, step: Step[Graph]) -> None:
        if self.verify:
            check(step.value, step.name)
        if self.seen is not None:
            self.seen.steps.append(step)
        self.text(f"{step.name}.txt", lambda: print_graph(step.value))

    def ready(self, graph: Graph) -> None:
        """What is planned, frame by frame."""
        if self.seen is not None:
            self.seen.ready = graph

    def followed(self, pins: Pins, told: tuple[str, ...]) -> None:
        """What became of a saved plan."""
        if self.seen is not None:
            self.seen.pins, self.seen.pinned = pins, told
        self.text("pinned.txt", lambda: "\n".join(told))

    def plan(self, plan: FusionPlan) -> None:
        if self.seen is not None:
            self.seen.plans.append(plan)
        if self.told:
            log_plan(plan)
        if self.verify:
            problems = check_plan(plan)
            if problems:
                raise VerifyError("a disjoint, acyclic plan with all its reasons", "; ".join(problems))
        self.text("plan.txt", lambda: print_plan(plan))

    def kernel(self, pattern: FusionPattern, forms: Mapping[str, Kernel], made: backend.Built) -> None:
        """A kernel as it was lowered, then as each pass changed it. forms: by the files' endings."""
        *_, kernel = forms.values()
        name = kernel.name
        if self.seen is not None:
            self.seen.built.append(Built(pattern, name, kernel, made.text))
        if self.told:
            log_kernel(name, pattern)
        for ending, form in forms.items():
            stage = ending.removeprefix(AFTER) if ending.startswith(AFTER) else name
            self.text(f"{name}.{ending}.txt", lambda form=form: print_kernel(form), stage)  # type: ignore[misc]
        self.text(f"{name}.py", lambda: made.text)
        for launch in made.compiled:
            self.text(f"{name}.{launch}", lambda launch=launch: made.compiled[launch])  # type: ignore[misc]
        self.text(f"{name}.json", lambda: json.dumps({"schema": SCHEMA, **made.describe()}, indent=1))

    def refused(self, name: str, pattern: FusionPattern, reason: Reason) -> None:
        """The pattern stays XLA's: no kernel expresses it, or the gate does not keep it."""
        if self.seen is not None:
            self.seen.refused.append((pattern, reason))
        if self.told:
            log_refused(name, pattern, reason)
        self.text(f"{name}.refused.txt", lambda: str(reason))

    def other_way(self) -> Dump:
        """The dump of another way to stitch the same call, which is looked at only."""
        seen = None if self.seen is None else self.seen.beside()
        return Dump(None, (), self.verify, seen)

    def chose(self, other: Dump, is_other: bool, why: Reason | None) -> None:
        """Which of both ways it is; XLA's own where there is a reason, and it is not the other."""
        if self.seen is not None and other.seen is not None and why is not None:
            self.seen.become(other.seen if is_other else None, why)

    def stays(self, why: Reason) -> None:
        """XLA's own after all."""
        if self.seen is not None:
            self.seen.become(None, why)

    @property
    def is_looked_at(self) -> bool:
        """Whether somebody looks at how decisions are made, or checks each step."""
        return self.folder is not None or bool(self.print_after) or self.seen is not None or self.verify

    @property
    def only_plans(self) -> bool:
        """Nobody wants kernels."""
        return self.seen is not None and not self.seen.kernels

    def stitched(self, graph: Graph) -> None:
        if self.seen is not None:
            self.seen.stitched = graph


def open_dump(context: Context, name: str) -> Dump:
    """The dump of one stitched call, in a folder of its own."""
    folder, options = None, context.options
    if options.dump_dir is not None:
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name[:LONGEST_NAME])
        safe = safe.encode()[:LONGEST_NAME].decode(errors="ignore")
        folder = Path(options.dump_dir) / f"{safe}_{next(_calls)}"
    return Dump(folder, options.print_after, options.verify, begin(name, context), told=True)
