"""What ops, patterns and graphs are known by outside this process, whatever their values are numbered.

multiply.4f1a f32[512,768]     an op: name, a hash of its attributes and constants, what it makes
9c1f03ab77de                   a pattern: its ops and their edges, wherever in a program they stand
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.build import is_splat
from jstitch.ir.scope import together
from jstitch.ir.types import TensorType, Type
from jstitch.passes.base.plan import FusionPattern, is_free
from jstitch.passes.base.rewrite import is_control

SHORT, LONG = 4, 12  # digits of a hash that order and other ops tell apart, and of one that stands alone


def ops_in_order(graph: Graph) -> Iterator[Op]:
    """Ops of all frames but for constants; those of a control op's regions after it."""
    for op in graph.ops:
        if is_free(op):
            continue
        yield op
        for region in op.regions if is_control(op) else ():
            yield from ops_in_order(region)


def op_keys(graph: Graph) -> dict[Op, str]:
    """Of the same ops, in the same order. Ops that are alike have one key."""
    makers = {v: op for op in _all_free(graph) for v in op.results}
    return {op: op_key(op, makers) for op in ops_in_order(graph)}


def op_key(op: Op, makers: Mapping[Value, Op]) -> str:
    """makers: of the constants that it may read."""
    made = ", ".join(short_type(v.type) for v in op.results)
    own = () if is_control(op) else op.regions
    return f"{op.name.rpartition('.')[2]}.{_digest(_about(op, makers, own), SHORT)} {made}".rstrip()


def short_type(kind: Type) -> str:
    """f32[512,768]."""
    if not isinstance(kind, TensorType):
        return str(kind)
    return f"{kind.dtype.value}[{','.join(map(str, kind.shape))}]"


def pattern_key(pattern: FusionPattern) -> str:
    """Of its ops and edges; which of its values others read is part of it."""
    made = {v: op for op in pattern.ops if is_free(op) for v in op.results}
    numbers: dict[Value, int] = {}
    parts: list[str] = []
    for op in (op for op in pattern.ops if not is_free(op)):
        reads = [numbers.setdefault(v, len(numbers)) for v in op.uses if v not in made]
        results = [numbers.setdefault(v, len(numbers)) for v in op.results]
        parts.append(f"{_about(op, made, op.regions)} {reads} {results}")
    parts.append(str([numbers[v] for v in pattern.outputs]))
    return _digest("\n".join(parts), LONG)


def graph_key(graph: Graph) -> str:
    """A fingerprint: what is computed, and in which order it stands; not where it comes from."""
    numbers: dict[Value, int] = {}
    return _digest("\n".join(_lines(graph, numbers)), LONG)


def graph_text(graph: Graph) -> str:
    """What `graph_key` is made from."""
    return "\n".join(_lines(graph, {}))


def kernel_key(inputs: Sequence[Value], ops: Sequence[Op], outputs: Sequence[Value]) -> str:
    """Of what a kernel is made of, wherever it is: those that do the same have one."""
    return text_key(graph_text(Graph(tuple(inputs), tuple(ops), tuple(outputs))))


def places_text(graph: Graph) -> str:
    """Where each op comes from: its scope, its function, and which ops share its line.

    Of lines nothing else: they move whenever a file is edited.
    """
    number = {line: n for n, line in enumerate(user_lines(graph))}
    return "\n".join(f"{number.get(op.loc)} {op.loc.rpartition(' (')[2]} {op.scope}" for op in graph.walk())


def user_lines(graph: Graph) -> list[str]:
    """Each line that ops come from once, in the order of the ops."""
    return [*dict.fromkeys(op.loc for op in graph.walk() if op.loc)]


def text_key(text: str) -> str:
    return _digest(text, LONG)


def _lines(graph: Graph, numbers: dict[Value, int]) -> Iterator[str]:
    def number(v: Value) -> int:
        return numbers.setdefault(v, len(numbers))

    yield f"inputs {[(number(v), str(v.type)) for v in graph.inputs]}"
    for op in graph.ops:
        yield f"{_about(op, {}, ())} {[number(v) for v in (*op.operands, *op.results)]}"
        for region in op.regions:
            yield from _lines(region, numbers)
    yield f"outputs {[number(v) for v in graph.outputs]}"


def _about(op: Op, makers: Mapping[Value, Op], regions: Sequence[Graph]) -> str:
    """All that says what the op does, but for its operands. regions: those that are part of what it does."""
    operands = (str(v.type) + (_constant(makers[v]) if v in makers else "") for v in op.operands)
    results = (str(v.type) for v in op.results)
    attrs = (f"{name}={_attribute(value)}" for name, value in sorted(op.attrs.items()))
    inside = (line for region in regions for line in _lines(region, {}))
    return " ".join((op.name, *operands, "->", *results, *attrs, str(together(op.scope) or ""), *inside))


def _constant(op: Op) -> str:
    return f" of {op.name} {[_attribute(value) for _, value in sorted(op.attrs.items())]}"


def _attribute(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return str(value)
    data = value[(0,) * value.ndim] if value.size and is_splat(value) else value
    return f"{value.dtype}{value.shape}{hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()}"


def _all_free(graph: Graph) -> Iterator[Op]:
    return (op for op in graph.walk() if is_free(op))


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
