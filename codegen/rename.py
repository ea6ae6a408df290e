"""Names of their own for the values of a lane that shares a function with others.

v12 = exp(v3)     ->     v2_12 = exp(v2_3)

In the text of a function one name has one type.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from jstitch.codegen.kernel_ir import OTHER, Accumulator, Combine, Instr, Lane, Nest
from jstitch.codegen.map_kernel import map_nests
from jstitch.ir.expr import Call, Const, Expr, Number, Ref, rename_index, replace_refs
from jstitch.ir.index import Index

L = TypeVar("L", bound=Lane)


def rename_lane(lane: L, tag: str) -> L:
    """The lane with `tag` in the name of every value."""
    return map_nests(lane, lambda nest: rename_nest(nest, tag)) if tag else lane


def tagged(name: str, tag: str) -> str:
    """v12 -> v2_12 for the tag "2_"."""
    letters = name.removesuffix(OTHER).rstrip("0123456789")
    return f"{letters}{tag}{name[len(letters) :]}"


def rename_nest(nest: Nest, tag: str) -> Nest:
    """The nest with `tag` in the name of every value."""
    return replace(
        nest,
        accumulators=tuple(_fields(a, tag) for a in nest.accumulators),
        body=tuple(_fields(i, tag) for i in nest.body),
        after=tuple(_fields(i, tag) for i in nest.after),
        combines=tuple(_combine(c, tag) for c in nest.combines),
    )


def _combine(c: Combine, tag: str) -> Combine:
    names = tuple(tagged(name, tag) for name in c.names)
    lets = tuple(_fields(let, tag) for let in c.lets)
    return replace(c, names=names, lets=lets, results=tuple(_value(e, tag) for e in c.results))


Named = TypeVar("Named", bound=Instr | Accumulator)


def _fields(node: Named, tag: str) -> Named:
    """An instruction, whichever kind it is: its name, and what its fields read."""
    found: dict[str, Any] = {}
    for f in fields(node):
        match getattr(node, f.name):
            case str(name) if f.name == "name":
                found[f.name] = tagged(name, tag)
            case Index() as index:
                found[f.name] = rename_index(index, lambda name: Ref(tagged(name, tag)))
            case Const() | Ref() | Number() | Call() as value:
                found[f.name] = _value(value, tag)
    return replace(node, **found)


def _value(e: Expr, tag: str) -> Expr:
    return replace_refs(e, lambda name: Ref(tagged(name, tag)))
