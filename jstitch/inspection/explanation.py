"""What `explain` says: a reason and a remedy for every open edge, and why each pattern is as it is.

Explanation  ::= calls: CallStory*
CallStory    ::= edges: EdgeStory*  patterns: PatternStory*  opaque: OpaqueStory*
EdgeStory    ::= producer -> consumer: a Reason and a remedy, or the pattern that holds both
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jstitch.inspection.json_fields import json_fields
from jstitch.inspection.labels import WHOLE, OpLabel
from jstitch.inspection.shown import Paged, Printed
from jstitch.passes.base.plan import Reason

SHOWN = 5  # edges with one reason that are printed; the data has all


@dataclass(frozen=True)
class EdgeStory:
    """A value goes from producer to consumer. why, remedy: None and "" where `pattern` holds both."""

    frame: str
    producer: OpLabel
    consumer: OpLabel
    why: Reason | None
    remedy: str = ""
    pattern: str = ""

    def __str__(self) -> str:
        edge = f"{self.producer} -> {self.consumer}"
        edge += f" in {self.frame}" if self.frame != WHOLE else ""
        places = [label.where for label in (self.producer, self.consumer) if label.where]
        where = f"\n  where:  {' -> '.join(dict.fromkeys(places))}" if places else ""
        if self.why is None:
            return f"{edge}: in one kernel, {self.pattern}{where}"
        return f"{edge}: {self.why.rule}: {self.why}{where}\n  remedy: {self.remedy}"


@dataclass(frozen=True)
class PatternStory:
    """Ops that share a kernel. schemes, schedule: why they are as they are, in sentences.

    template: the schedule as one can write it down. verdict: why it pays. refused: why it stays XLA's.
    """

    frame: str
    name: str
    origin: str
    ops: tuple[OpLabel, ...]
    schemes: tuple[str, ...]
    schedule: tuple[str, ...]
    template: str
    verdict: str
    refused: Reason | None = None
    remedy: str = ""

    def __str__(self) -> str:
        found = ", ".join(label.values[0] if label.values else label.name for label in self.ops)
        lines = [f"{self.name} ({len(self.ops)} ops, by {self.origin}): {self.verdict}", f"  ops: {found}"]
        lines += [f"  {line}" for line in (*self.schemes, *self.schedule)]
        if self.refused is not None:
            lines.append(f"  stays XLA's: {self.refused.rule}: {self.refused}\n  remedy: {self.remedy}")
        return "\n".join(lines)


@dataclass(frozen=True)
class OpaqueStory:
    """An op that the pipeline cannot look into, and why."""

    frame: str
    op: OpLabel
    why: str
    remedy: str

    def __str__(self) -> str:
        at = f" at {self.op.where}" if self.op.where else ""
        return f"{self.op}{at}: {self.why}\n  remedy: {self.remedy}"


@dataclass(frozen=True)
class CallStory:
    """One stitched call. reason: why all of it stays XLA's, where it does; "" else.

    chunks: of large products, by which rows they are made in chunks, or why they are made as a whole.
    divided: over which devices, and how each argument and result is; "" on one device. pinned: what became of
    a saved plan.
    """

    name: str
    edges: tuple[EdgeStory, ...] = ()
    patterns: tuple[PatternStory, ...] = ()
    opaque: tuple[OpaqueStory, ...] = ()
    chunks: tuple[str, ...] = ()
    divided: str = ""
    reason: str = ""
    remedy: str = ""
    pinned: tuple[str, ...] = ()

    @property
    def open_edges(self) -> tuple[EdgeStory, ...]:
        """Those that are not in one kernel."""
        return tuple(edge for edge in self.edges if edge.why is not None)


@dataclass(frozen=True, repr=False)
class Explanation(Paged):
    """Why a program is stitched as it is. Prints as tables; `edge` asks for one edge, in full."""

    name: str
    target: str
    calls: tuple[CallStory, ...]

    @property
    def open_edges(self) -> tuple[EdgeStory, ...]:
        return tuple(edge for call in self.calls for edge in call.open_edges)

    @property
    def patterns(self) -> tuple[PatternStory, ...]:
        return tuple(pattern for call in self.calls for pattern in call.patterns)

    def edge(self, producer: str, consumer: str) -> tuple[EdgeStory, ...]:
        """Edges between ops that these name: printed values (%3), op names, or source lines (file.py:12)."""
        return tuple(
            edge
            for call in self.calls
            for edge in call.edges
            if edge.producer.answers_to(producer) and edge.consumer.answers_to(consumer)
        )

    def to_json(self) -> dict[str, Any]:
        """All fields but the edges inside patterns, as JSON has them.

        {"name", "target", "calls": [call]}
        call:    {"name", "edges": [edge], "patterns": [pattern], "opaque": [opaque], "chunks": [sentence],
                  "divided", "reason", "remedy", "pinned": [sentence]}
        edge:    {"frame", "producer": op, "consumer": op, "why": why, "remedy", "pattern": ""}
        op:      {"name", "values": ["%3"], "where": "file.py:12 (f)" or ""}
        why:     {"rule", "reason": a sentence, "found": number or null, "bound": number or null}
        pattern: {"frame", "name", "origin", "ops": [op], "schemes": [sentence], "schedule": [sentence],
                  "template", "verdict", "refused": why or null, "remedy"}
        opaque:  {"frame", "op": op, "why": a sentence, "remedy"}
        """
        calls = [{**json_fields(call), "edges": json_fields(call.open_edges)} for call in self.calls]
        return {"name": self.name, "target": self.target, "calls": calls}

    def __rich__(self) -> Printed:
        from jstitch.inspection import table

        return table.rules(self.title, tuple(self._rows()))

    def notes(self) -> Iterator[str]:
        """Whole calls, patterns and opaque ops, in lines."""
        for call in self.calls:
            if call.reason:
                yield f"{call.name} stays XLA's: {call.reason}\n  remedy: {call.remedy}"
            if call.divided:
                yield f"{call.name} is divided {call.divided}"
            yield from (f"{call.name}: {line}" for line in call.pinned)
            yield from map(str, _alike(call.patterns))
            yield from map(str, _alike(call.opaque))
            yield from dict.fromkeys(call.chunks)

    @property
    def title(self) -> str:
        count = len(self.open_edges)
        return (
            f"{self.name} for {self.target}: {len(self.patterns)} patterns, {count} edges not in one kernel"
        )

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        """A row for each reason, with the first edges that it is the reason of."""
        alike: dict[object, list[EdgeStory]] = {}
        for edge in self.open_edges:
            alike.setdefault((edge.why, edge.remedy), []).append(edge)
        for same in alike.values():
            assert same[0].why is not None
            edges = [f"{edge.producer}\n-> {edge.consumer}" for edge in same[:SHOWN]]
            more = [f"and {len(same) - SHOWN} more"] if len(same) > SHOWN else []
            yield ("\n".join([*edges, *more]), same[0].why.rule, str(same[0].why), same[0].remedy)


def _alike(stories: Sequence[Any]) -> Iterator[Any]:
    """The first of those that read the same but for names."""
    seen = set()
    for story in stories:
        key = story.why if isinstance(story, OpaqueStory) else (story.template, story.verdict, story.schemes)
        if key not in seen:
            seen.add(key)
            yield story
