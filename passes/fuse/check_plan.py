"""Check a FusionPlan: patterns disjoint and of one frame, acyclic after contraction, nothing left unsaid.

{%a, %c} and {%b} with a -> b -> c     ->     "Patterns 0 -> 1 -> 0 wait for each other."
"""

from __future__ import annotations

from collections.abc import Iterator

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free, make_patterns


def check_plan(plan: FusionPlan) -> tuple[str, ...]:
    """Every broken rule, as a sentence; () for a good plan."""
    problems = [*_membership(plan)]
    return tuple(problems) if problems else (*_interfaces(plan), *_cycles(plan), *_reasons(plan))


def _owners(plan: FusionPlan) -> dict[Op, int]:
    return {op: k for k, pattern in enumerate(plan.patterns) for op in pattern.ops if not is_free(op)}


def _membership(plan: FusionPlan) -> Iterator[str]:
    frame, owner = set(plan.frame.ops), dict[Op, int]()
    for k, pattern in enumerate(plan.patterns):
        for op in pattern.ops:
            if op not in frame:
                yield f"Pattern {k} holds '{op.name}', which is not an op of the frame."
            if not is_free(op) and owner.setdefault(op, k) != k:
                yield f"Patterns {owner[op]} and {k} both hold '{op.name}'."


def _interfaces(plan: FusionPlan) -> Iterator[str]:
    made = make_patterns(plan.frame, [p.ops for p in plan.patterns], "check")
    for k, (found, expected) in enumerate(zip(plan.patterns, made, strict=True)):
        for what in ("ops", "inputs", "outputs"):
            if getattr(found, what) != getattr(expected, what):
                yield f"Pattern {k}: expected {what} {_types(expected, what)}, found {_types(found, what)}."


def _types(pattern: FusionPattern, what: str) -> list[str]:
    return [str(x.type) if isinstance(x, Value) else x.name for x in getattr(pattern, what)]


def _cycles(plan: FusionPlan) -> Iterator[str]:
    stuck = waiting_patterns(plan)
    if stuck is not None:
        yield f"Patterns {sorted(stuck)} wait for each other."


def waiting_patterns(plan: FusionPlan) -> frozenset[int] | None:
    """Numbers of patterns on cycles or behind them; None when there is no cycle.

    Kahn's algorithm on the frame with every pattern as one node.
    """
    node, edges = contract(plan.frame, _owners(plan))
    waiting = dict.fromkeys(node.values(), 0)
    for targets in edges.values():
        for target in targets:
            waiting[target] += 1
    ready = [n for n, count in waiting.items() if count == 0]
    done = 0
    while ready:
        done += 1
        for target in edges.get(ready.pop(), ()):
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    if done == len(waiting):
        return None
    return frozenset(n for n, count in waiting.items() if count and n < len(plan.patterns))


def contract(frame: Graph, owners: dict[Op, int]) -> tuple[dict[Op, int], dict[int, set[int]]]:
    """(op -> node, node -> nodes that read from it); ops without an owner are nodes of their own."""
    start = max(owners.values(), default=-1) + 1
    node = {op: owners.get(op, start + i) for i, op in enumerate(frame.ops)}
    producers = frame.producers()
    edges: dict[int, set[int]] = {}
    for op in frame.ops:
        for value in op.uses:
            producer = producers.get(value)
            if producer is not None and not is_free(producer) and node[producer] != node[op]:
                edges.setdefault(node[producer], set()).add(node[op])
    return node, edges


def _reasons(plan: FusionPlan) -> Iterator[str]:
    """Every edge between different patterns (or ops of none) has exactly one reason."""
    owner, producers = _owners(plan), plan.frame.producers()
    said = [(r.producer, r.consumer) for r in plan.refusals]
    if len(set(said)) != len(said):
        yield f"{len(said) - len(set(said))} edges have two reasons."
    open_edges = set(said)
    for op in plan.frame.ops:
        made = dict.fromkeys(producers.get(v) for v in op.uses)
        for producer in made:
            if producer is None or is_free(producer) or is_free(op):
                continue
            fused = producer in owner and owner[producer] == owner.get(op)
            if fused == ((producer, op) in open_edges):
                state = "is fused and has" if fused else "is not fused and has no"
                yield f"The edge '{producer.name}' -> '{op.name}' {state} reason."
            open_edges.discard((producer, op))
    if open_edges:
        yield f"{len(open_edges)} reasons are about edges that do not exist."
