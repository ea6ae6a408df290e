"""Operations of a block as a function of their own, and back.

    %1 = tanh %x;  %2 = call @f(%1)     <->     func @name(%x) { %1 = tanh %x;  %2 = call @f(%1);  return %2 }

Calls stay calls: the functions that they call come along, with the meshes that those name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jstitch.frontend.mlir import func, ir, sdy
from jstitch.frontend.source import captured_values, clone

FUNCTION = func.FuncOp.OPERATION_NAME


def outline(
    ops: Sequence[Any], inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], module: ir.Module, name: str
) -> ir.Module:
    """A module whose public function does what the operations do. inputs: all that they read from outside.

    module: the one that they are in.
    """
    with module.context, ir.Location.unknown():
        made = ir.Module.create()
        with ir.InsertionPoint(made.body):
            types = [v.type for v in inputs], [v.type for v in outputs]
            function = func.FuncOp(name, types, visibility="public")
            for named in _named(module):
                named.clone(ir.InsertionPoint.current)
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp(copy_ops(ops, dict(zip(inputs, block.arguments, strict=True)), outputs))
        return made


def inline(module: ir.Module, name: str, args: Sequence[ir.Value], into: ir.Module) -> list[ir.Value]:
    """Write what the function does at the insertion point; its results. What it calls goes into `into`."""
    function = None
    with ir.InsertionPoint(into.body):
        for view in module.body.operations:
            if view.operation.name == FUNCTION and view.operation.attributes["sym_name"].value == name:
                function = view.operation
            else:
                view.operation.clone()
    assert function is not None
    block = function.regions[0].blocks[0]
    *ops, last = block.operations
    return copy_ops(ops, dict(zip(block.arguments, args, strict=True)), list(last.operation.operands))


def copy_ops(
    ops: Sequence[Any], values: Mapping[ir.Value, ir.Value], outputs: Sequence[ir.Value]
) -> list[ir.Value]:
    """Copies at the insertion point, on other values, and what stands there for `outputs`."""
    known = dict(values)
    for view in ops:
        old = view.operation
        captured = captured_values(old) if len(old.regions) else ()
        around = {v: known[v] for v in captured}
        new = clone(old, [known[v] for v in old.operands], around)
        known.update(zip(old.results, new.results, strict=True))
    return [known[v] for v in outputs]


def _named(module: ir.Module) -> list[ir.Operation]:
    """Functions that others call, and meshes: an exported program that is called has both.

    Without those that are still being written, which nothing in them calls.
    """
    return [view.operation for view in module.body.operations if _is_named(view.operation)]


def _is_named(op: ir.Operation) -> bool:
    if op.name == FUNCTION:
        private = "sym_visibility" in op.attributes and op.attributes["sym_visibility"].value == "private"
        return private and _is_written(op)
    return bool(op.name == sdy.MeshOp.OPERATION_NAME)


def _is_written(function: ir.Operation) -> bool:
    *_, last = function.regions[0].blocks[0].operations
    return bool(last.operation.name == func.ReturnOp.OPERATION_NAME)
