"""The op table: `OPS` by name, one `OpDef` per op. The only place in the project that lists StableHLO ops.

To add an op, `define(OpDef(...))` in the file of its kind; everything else reads the table.
"""

from __future__ import annotations

from functools import cache

from jstitch.ir.ops import collective, contract, control, convert, dynamic, elementwise, reduce, shape
from jstitch.ir.ops.control import BOUNDARIES, COLLECTIVES, KERNEL, NO_FUSE, TURN_END, TURNED, UNSET, WHILE
from jstitch.ir.ops.definition import OPS, Arrays, OpClass, OpDef, define
from jstitch.ir.ops.effects import PURE, has_effects
from jstitch.ir.ops.reduce import MONOIDS, monoid_of, with_monoid

__all__ = [
    "BOUNDARIES",
    "COLLECTIVES",
    "KERNEL",
    "MONOIDS",
    "NO_FUSE",
    "OPS",
    "PURE",
    "TURNED",
    "TURN_END",
    "UNSET",
    "WHILE",
    "Arrays",
    "OpClass",
    "OpDef",
    "collective",
    "contract",
    "control",
    "convert",
    "define",
    "dynamic",
    "elementwise",
    "has_effects",
    "lookup",
    "monoid_of",
    "reduce",
    "shape",
    "with_monoid",
]


def lookup(name: str) -> OpDef:
    """The definition of an op; one that is not in the table is opaque."""
    return OPS.get(name) or _opaque(name)


@cache
def _opaque(name: str) -> OpDef:
    return OpDef(name, OpClass.OPAQUE)
