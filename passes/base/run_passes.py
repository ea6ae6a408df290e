"""Named passes one after the other, and one callback between them.

    run_passes(graph, PIPELINE, context, after=dump)  ==  dump(fold(dump(canonicalize(graph)))) ...

The same for graphs, plans and kernels. The callback prints, times, verifies, dumps, or stops (by raising
`StopPipeline`). Passes that `CompileOptions.without` names do not run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from jstitch.passes.base.context import Context
from jstitch.passes.base.named_pass import NamedPass, blaming

T = TypeVar("T")


@dataclass(frozen=True)
class Step(Generic[T]):
    """What the callback sees: the pass that ran (its place among all, its seconds), and what it left.

    changed: whether that is another object than it was given.
    """

    number: int
    name: str
    value: T
    seconds: float
    changed: bool


class StopPipeline(Exception):
    """Raised by a callback: `run_passes` returns what there is."""


def run_passes(
    value: T,
    passes: Sequence[NamedPass],
    context: Context,
    after: Callable[[Step[T]], None] | None = None,
) -> T:
    """What the passes, which all take and give the same form, make of the value. Raises what they raise."""
    for number, p in enumerate(passes, 1):
        if p.name in context.options.without:
            continue
        start = time.perf_counter()
        before, value = value, p.run(value, context)
        if after is None:
            continue
        step = Step(number, p.name, value, time.perf_counter() - start, value is not before)
        try:
            with blaming(p.name):
                after(step)
        except StopPipeline:
            break
    return value
