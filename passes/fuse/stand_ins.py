"""Ops that stand in for patterns, so that a frame shows what waits for what when these are kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.plan import FusionPattern, is_free
from jstitch.passes.base.sort_ops import sort_ops

TOGETHER = "jstitch.fuse_together"
"""A stand-in's name, and the origin of a pattern that the user demands."""


def stand_in(first: Op, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> Op:
    """An op that is nobody's to fuse, where `first` stands."""
    attrs = {"pure": True, "num_operands": len(inputs)}
    return Op(TOGETHER, inputs, outputs, attrs).located(first)


def first_of(pattern: FusionPattern) -> Op:
    return next(op for op in pattern.ops if not is_free(op))


def put_stand_ins(
    frame: Graph, patterns: Sequence[FusionPattern]
) -> tuple[dict[Op, FusionPattern], list[Op]]:
    """A stand-in for each pattern, and the frame's ops with those, not in order yet."""
    made = {first_of(p): stand_in(first_of(p), p.inputs, p.outputs) for p in patterns}
    inside = {op for p in patterns for op in p.ops if not is_free(op)}
    ops = [made.get(op, op) for op in frame.ops if op in made or op not in inside]
    return {made[first_of(p)]: p for p in patterns}, ops


def without(frame: Graph, pattern: FusionPattern) -> Graph:
    """The frame with an op in the pattern's place."""
    return replace(frame, ops=sort_ops(put_stand_ins(frame, [pattern])[1]))
