"""StableHLO to Graph: MLIR operations in, a Graph with plain Python attributes out.

    imported = import_ops(block.operations, block.arguments, results, module)
    graph = import_module(module)

Calls of functions in the module are inlined; regions of table ops become Graphs. What the table does not
know (the op, one of its attributes, a type) becomes an opaque op. Its `source` keeps a copy of the MLIR
operation (source.py), so the imported operations may be erased; its attributes are `num_operands` (values
that its regions capture follow its own operands) and `pure`. A table op that had to be left opaque is named
`opaque.<name>`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jstitch.frontend.attributes import UnknownAttribute, decode_attributes
from jstitch.frontend.constants import import_type
from jstitch.frontend.control import MARK
from jstitch.frontend.locations import describe_location, describe_scope
from jstitch.frontend.mlir import func, ir
from jstitch.frontend.source import Keeper, captured_values
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import NO_FUSE, OPS, PURE, OpClass, with_monoid
from jstitch.ir.ops.control import BARRIER
from jstitch.ir.types import OpaqueType, Type

_CALL = func.CallOp.OPERATION_NAME
_FUNCTION = func.FuncOp.OPERATION_NAME


@dataclass(frozen=True)
class Imported:
    """A graph, and the MLIR value that each graph input stands for."""

    graph: Graph
    values: dict[Value, ir.Value]


@dataclass
class _Scope:
    """Values of one function activation (regions included), and where it was called from.

    path: the scope of the call, with a number of its own, so that ops of two calls can be told apart.
    """

    values: dict[ir.Value, Value] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    loc: str = ""
    path: str = ""
    inputs: dict[Value, ir.Value] | None = None  # top scope only: values from outside, as they appear


def import_ops(
    ops: Iterable[ir.Operation],
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    module: ir.Module | None = None,
) -> Imported:
    """Import operations of one block.

    Graph inputs are `inputs`, then every other value that the ops or `outputs` use and do not define.
    Calls are inlined when `module` holds their callee. Never raises for valid IR: the unknown is opaque.
    """
    importer = _Importer(module)
    scope = _Scope(inputs={})
    for value in inputs:
        importer.outside(value, scope)
    graph_ops = importer.import_all(ops, scope)
    results = tuple(importer.use(value, scope) for value in outputs)
    assert scope.inputs is not None
    return Imported(Graph(tuple(scope.inputs), graph_ops, results), scope.inputs)


def import_module(module: ir.Module) -> Graph:
    """Import `main`, or the only public function. Raises ValueError when there is no such function."""
    block = entry_function(module).regions[0].blocks[0]
    ops = [view.operation for view in block.operations]
    return import_ops(ops[:-1], list(block.arguments), list(ops[-1].operands), module).graph


def entry_function(module: ir.Module) -> ir.Operation:
    """`main`, or the only public function. Raises ValueError without one, or when it is not of one block."""
    functions = _functions(module)
    public = [name for name, f in functions.items() if "sym_visibility" not in f.attributes or _is_public(f)]
    name = "main" if "main" in functions else public[0] if len(public) == 1 else None
    if name is None:
        raise ValueError(
            f"Expected a module with a function 'main' or exactly one public function, found {len(public)}"
            f" public functions ({', '.join(public) or 'none'}). Rename the entry point to 'main'."
        )
    if not _is_straight(functions[name]):
        raise ValueError(
            f"Expected a module with a function '{name}' of one block, found"
            f" {len(functions[name].regions[0].blocks)} blocks. Control flow must be StableHLO's own."
        )
    return functions[name]


def _is_straight(function: ir.Operation) -> bool:
    """Whether the function is one block that ends in a return."""
    return len(function.regions[0].blocks) == 1


def _is_public(function: ir.Operation) -> bool:
    return str(function.attributes["sym_visibility"]) == '"public"'


class _Importer:
    """Carries the module's symbols and the cache of types."""

    def __init__(self, module: ir.Module | None) -> None:
        self.symbols = _functions(module) if module is not None else {}
        self.types: dict[ir.Type, Type] = {}
        self.keeper = Keeper(module)
        self.activations = itertools.count(1)

    def type_of(self, value: ir.Value) -> Type:
        type_ = value.type
        known = self.types.get(type_)
        if known is None:
            known = self.types[type_] = import_type(type_)
        return known

    def outside(self, value: ir.Value, scope: _Scope) -> Value:
        """A new graph input that stands for `value`."""
        assert scope.inputs is not None, "a function body uses a value from outside"
        new = scope.values[value] = Value(self.type_of(value))
        scope.inputs[new] = value
        return new

    def use(self, value: ir.Value, scope: _Scope) -> Value:
        known = scope.values.get(value)
        return known if known is not None else self.outside(value, scope)

    def define(self, values: Iterable[ir.Value], scope: _Scope) -> tuple[Value, ...]:
        made = []
        for value in values:
            new = scope.values[value] = Value(self.type_of(value))
            made.append(new)
        return tuple(made)

    def import_all(self, ops: Iterable[Any], scope: _Scope) -> tuple[Op, ...]:
        imported: list[Op] = []
        for view in ops:
            source = view.operation
            callee = self.callee(source, scope) if source.name == _CALL else None
            if callee is not None:
                imported.extend(self.inline(source, callee, scope))
            else:
                imported.append(self.import_op(source, scope))
        return tuple(imported)

    def callee(self, call: ir.Operation, scope: _Scope) -> ir.Operation | None:
        """The function to inline, or None for an unknown or recursive one, or one of no or several blocks."""
        name = call.attributes["callee"].value
        function = self.symbols.get(name)
        if function is None or name in scope.calls or not _is_straight(function):
            return None
        return function

    def inline(self, call: ir.Operation, function: ir.Operation, scope: _Scope) -> tuple[Op, ...]:
        block = function.regions[0].blocks[0]
        name = call.attributes["callee"].value
        location = call.location
        loc = describe_location(location) or scope.loc
        path = f"{_join(scope.path, describe_scope(location))}#{next(self.activations)}"
        inner = _Scope(calls=(*scope.calls, name), loc=loc, path=path)
        for argument, value in zip(block.arguments, call.operands, strict=True):
            inner.values[argument] = self.use(value, scope)
        body = [view.operation for view in block.operations]
        ops = self.import_all(body[:-1], inner)
        for result, value in zip(call.results, body[-1].operands, strict=True):
            scope.values[result] = inner.values[value]
        return ops

    def import_op(self, source: ir.Operation, scope: _Scope) -> Op:
        name = source.name if source.name != BARRIER else _barrier(source)
        definition = OPS.get(name)
        if definition is None:
            return self.import_opaque(source, scope)
        operands = tuple(self.use(v, scope) for v in source.operands)
        results = self.define(source.results, scope)
        if not _is_known(definition.op_class, (*operands, *results)):
            return self.import_opaque(source, scope)
        try:
            attrs = decode_attributes(source, definition.attrs)
        except UnknownAttribute:
            return self.import_opaque(source, scope)
        regions = tuple(self.import_region(r, scope) for r in source.regions)
        if regions:
            attrs = with_monoid(attrs, regions) if definition.op_class is not OpClass.CONTROL else attrs
        location = source.location
        loc = describe_location(location) or scope.loc
        path = _join(scope.path, describe_scope(location))
        return Op(name, operands, results, attrs, regions, loc, location, path)

    def import_region(self, region: ir.Region, scope: _Scope) -> Graph:
        block = region.blocks[0]
        inputs = self.define(block.arguments, scope)
        body = [view.operation for view in block.operations]
        ops = self.import_all(body[:-1], scope)
        return Graph(inputs, ops, tuple(self.use(v, scope) for v in body[-1].operands))

    def import_opaque(self, source: ir.Operation, scope: _Scope) -> Op:
        own = list(source.operands)
        captured = captured_values(source) if len(source.regions) else []
        operands = tuple(self.use(v, scope) for v in (*own, *captured))
        name = f"opaque.{source.name}" if source.name in OPS else source.name
        attrs = {"num_operands": len(own), "pure": _is_pure(source)}
        results = self.define(source.results, scope)
        location = source.location
        loc = describe_location(location) or scope.loc
        path = _join(scope.path, describe_scope(location))
        return Op(name, operands, results, attrs, (), loc, self.keeper.keep(source, captured), path)


def _join(outer: str, inner: str) -> str:
    return f"{outer}/{inner}" if outer and inner else outer or inner


def _is_known(op_class: OpClass, values: Iterable[Value]) -> bool:
    """Control ops may carry values of any type; the others need tensors."""
    return op_class is OpClass.CONTROL or not any(isinstance(v.type, OpaqueType) for v in values)


def _functions(module: ir.Module) -> dict[str, ir.Operation]:
    ops = (view.operation for view in module.body.operations)
    return {op.attributes["sym_name"].value: op for op in ops if op.name == _FUNCTION}


def _barrier(source: ir.Operation) -> str:
    """A barrier that `no_fuse` asked for, or one of XLA's own."""
    return NO_FUSE if MARK in source.attributes else str(source.name)


def _is_pure(source: ir.Operation) -> bool:
    if "has_side_effect" in source.attributes:
        return not source.attributes["has_side_effect"].value
    return source.name in PURE or (source.name in OPS and not len(source.regions))
