"""What ops and frames are called in plans and explanations: printed names, op names, source lines.

%3 stablehlo.add at layer.py:12 (norm)          body of stablehlo.while at scan.py:7
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from jstitch.frontend.observe import Observed
from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.plan import is_free
from jstitch.passes.fuse.print_plan import value_names

WHOLE = "the call"
"""The title of the frame that is no region."""
_LINE = re.compile(r"(?P<file>[^:]*):(?P<line>\d+)")


@dataclass(frozen=True)
class OpLabel:
    """An op as one can point at it. values: printed names of its results. where: the user's source line."""

    name: str
    values: tuple[str, ...]
    where: str

    def __str__(self) -> str:
        return f"{self.values[0]} {self.name}" if self.values else self.name

    def answers_to(self, text: str) -> bool:
        """Whether the text is a printed name, the op's name with or without its dialect, or its line.

        Lines are FILE:LINE, where the end of a path or no file at all will do.
        """
        if text in self.values or text in (self.name, self.name.rpartition(".")[2]):
            return True
        wanted, here = _LINE.fullmatch(text), _LINE.match(self.where)
        return bool(
            wanted
            and here
            and wanted["line"] == here["line"]
            and f"/{here['file']}".endswith(f"/{wanted['file']}" if wanted["file"] else "")
        )


@dataclass(frozen=True, eq=False)
class Frame:
    """A planned frame with the names in it. title: what it is of the call."""

    graph: Graph
    number: int
    title: str

    @cached_property
    def names(self) -> Mapping[Value, str]:
        return value_names(self.graph)

    def label(self, op: Op) -> OpLabel:
        return OpLabel(op.name, tuple(self.names[v] for v in op.results if v in self.names), op.loc)


def frames_of(seen: Observed) -> tuple[Frame, ...]:
    """The frames of a call in the order of its plans: inner ones first, the whole call last."""
    graph = seen.steps[-1].value if seen.steps else seen.graph
    titles = dict(_titles(graph)) if graph is not None else {}
    return tuple(
        Frame(plan.frame, n, WHOLE if n == len(seen.plans) - 1 else _title(plan.frame, titles))
        for n, plan in enumerate(seen.plans)
    )


def _title(frame: Graph, titles: Mapping[Value, str]) -> str:
    """Passes between the last step and planning keep what a frame takes in, and most results."""
    values = (*frame.inputs, *frame.outputs, *(v for op in frame.ops for v in op.results))
    return next((titles[v] for v in values if v in titles), "a region")


def _titles(graph: Graph) -> Iterator[tuple[Value, str]]:
    """Of the values of every region of a control op: which region it is."""
    for op in graph.ops:
        at = f" at {op.loc}" if op.loc else ""
        for n, region in enumerate(op.regions if "monoid" not in op.attrs else ()):
            values = (*region.inputs, *(v for inner in region.ops for v in inner.results))
            yield from ((v, f"region {n} of {op.name}{at}") for v in values)
            yield from _titles(region)


def source_line(ops: tuple[Op, ...]) -> str:
    """Where the last of these ops that says so comes from."""
    return next((op.loc for op in reversed(ops) if op.loc and not is_free(op)), "")


def short_places(text: str) -> str:
    """Source lines in it without the folders that this machine imports from, or works in."""
    roots = sorted({os.getcwd(), *filter(os.path.isabs, sys.path)}, key=len, reverse=True)
    for root in (root.rstrip(os.sep) for root in roots):
        text = text.replace(root + os.sep, "") if root else text
    return text
