"""A FusionPlan as text: its patterns, and the reason for every edge that was not fused.

pattern 0 (plan_layers): 3 ops, 1 input, 1 output
  inputs   %arg0: tensor<4x8xf32>
  %0 = stablehlo.exponential %arg0 : tensor<4x8xf32>
  ...
  outputs  %2
not fused
  %0 stablehlo.exponential -> %3 stablehlo.dot_general    partition: contraction: left to XLA
"""

from __future__ import annotations

from collections.abc import Iterator

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.printer import print_op
from jstitch.passes.base.plan import FusionPattern, FusionPlan, NoFuse


def print_plan(plan: FusionPlan) -> str:
    """The plan as text; names are those of the printed frame."""
    names = value_names(plan.frame)
    lines = [line for k, p in enumerate(plan.patterns) for line in _pattern(k, p, names)]
    if plan.refusals:
        lines.append("not fused")
        lines += (_refusal(r, names) for r in plan.refusals)
    return "\n".join(lines)


def value_names(frame: Graph) -> dict[Value, str]:
    """%arg0, ... for inputs, %outer0, ... for captures, %0, ... for results, in order."""
    names = {v: f"%arg{i}" for i, v in enumerate(frame.inputs)}
    names.update((v, f"%outer{i}") for i, v in enumerate(frame.captures))
    names.update((v, f"%{i}") for i, v in enumerate(v for op in frame.walk() for v in op.results))
    return names


def _pattern(number: int, pattern: FusionPattern, names: dict[Value, str]) -> Iterator[str]:
    counts = f"{len(pattern.ops)} ops, {len(pattern.inputs)} inputs, {len(pattern.outputs)} outputs"
    yield f"pattern {number} ({pattern.origin}): {counts}"
    yield "  inputs   " + ", ".join(f"{names[v]}: {v.type}" for v in pattern.inputs)
    for op in pattern.ops:
        yield f"  {print_op(op, names)}"
    for update in pattern.updates:
        yield f"  in place {print_op(update.op, names)}"
    yield "  outputs  " + ", ".join(names[v] for v in pattern.outputs)
    if pattern.template is not None:
        yield from (f"  wanted   {schedule}" for schedule in pattern.template.schedules)


def _refusal(refusal: NoFuse, names: dict[Value, str]) -> str:
    edge = f"{_label(refusal.producer, names)} -> {_label(refusal.consumer, names)}"
    return f"  {edge}    {refusal.rule}: {refusal.reason}"


def _label(op: Op, names: dict[Value, str]) -> str:
    return f"{names[op.results[0]]} {op.name}" if op.results else op.name
