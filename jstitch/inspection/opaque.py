"""What is opaque to the pipeline, and why: the op is unknown, or one of its types or attributes."""

from __future__ import annotations

from dataclasses import replace

from jstitch.frontend.attributes import UnknownAttribute, decode_attributes
from jstitch.frontend.source import Source
from jstitch.ir.graph import Op
from jstitch.ir.ops import BOUNDARIES, OPS, OpClass
from jstitch.ir.reason import Reason
from jstitch.ir.types import OpaqueType

PREFIX = "opaque."


def why_opaque(op: Op) -> str | None:
    """Why no pass looks into it, or no kernel holds it; None for ops that are not opaque."""
    if op.name in OPS:
        left = OPS[op.name].op_class is OpClass.OPAQUE and op.name not in BOUNDARIES
        return f"passes know {op.name} by its attributes, but no kernel has it" if left else None
    name = op.name.removeprefix(PREFIX)
    if name not in OPS:
        return f"the op table has no {name}{_which(op)}"
    types = [str(v.type) for v in (*op.operands, *op.results) if isinstance(v.type, OpaqueType)]
    if types:
        return f"a value of {name} is of type {types[0]}"
    return f"an attribute of {name}: {_attribute(op, name)}"


def say_which(why: Reason, producer: Op, consumer: Op) -> Reason:
    """A planner's reason that an op of this edge is opaque or has effects, with what passes cannot know."""
    for op in (consumer, producer):
        if not why.text.startswith(f"{op.name} "):
            continue
        if why.rule == OpClass.OPAQUE.value and (found := why_opaque(op)) is not None:
            return replace(why, text=f"{found}: left to XLA")
        if why.rule == "effect":
            return replace(why, text=f"{op.name}{_which(op)}{why.text.removeprefix(op.name)}")
    return why


def _which(op: Op) -> str:
    """Of a custom call: which."""
    if not isinstance(op.source, Source) or "call_target_name" not in op.source.operation.attributes:
        return ""
    return f" to {op.source.operation.attributes['call_target_name'].value}"


def _attribute(op: Op, name: str) -> str:
    assert isinstance(op.source, Source)
    try:
        decode_attributes(op.source.operation, OPS[name].attrs)
    except UnknownAttribute as error:
        return str(error)
    return "unknown"
