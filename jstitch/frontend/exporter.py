"""Graph to StableHLO: table ops are rebuilt from their attributes, opaque ones cloned from their source.

    results = export_graph(graph, {graph.inputs[0]: block.arguments[0]}, emit_kernel)
    module = export_module(graph)

`jstitch.kernel` ops are handed to `emit_kernel(op, operands) -> results`; without one, their body is
written inline, so that a plan can be checked without any backend.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jstitch.frontend.attributes import encode_attributes
from jstitch.frontend.constants import export_type
from jstitch.frontend.custom_call import emit_unset, part_results
from jstitch.frontend.locations import make_location
from jstitch.frontend.mlir import func, ir, make_context, stablehlo
from jstitch.frontend.source import Source, captured_values, clone
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import COLLECTIVES, KERNEL, NO_FUSE, OPS, TURN_END, TURNED, UNSET, OpClass, build, lookup
from jstitch.ir.scope import common_scope
from jstitch.ir.types import Type
from jstitch.passes.base.plan import is_free

_MOST_LINES = 64  # of the user, that a kernel's location names: MLIR walks nested ones recursively
_WORK = (OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.REDUCTION, OpClass.CONTRACTION)
_SYMBOL = re.compile(r'@(?:"([^"]+)"|([\w.$-]+))')
EmitKernel = Callable[[Op, list[ir.Value]], list[ir.Value]]


def export_graph(
    graph: Graph, arguments: Mapping[Value, ir.Value], emit_kernel: EmitKernel | None = None
) -> list[ir.Value]:
    """Write the graph's ops at the current insertion point; the values of its outputs.

    arguments: an MLIR value for every graph input (and capture). Needs a current context and location.
    Opaque ops must come from the same context. Raises ValueError for one without a source, and ir.MLIRError
    where MLIR rejects an op: later, when JAX looks, there is no way back.
    """
    exporter = _Exporter(dict(arguments), emit_kernel)
    block = ir.InsertionPoint.current.block
    before = len(block.operations)
    results = exporter.export(graph)
    for op in list(block.operations)[before:]:
        op.operation.verify()
    return results


def export_module(graph: Graph, name: str = "main", emit_kernel: EmitKernel | None = None) -> ir.Module:
    """A new, verified module with one public function. Raises ir.MLIRError when MLIR rejects it."""
    context = next((s.context for s in _sources(graph)), None) or make_context()
    with context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            _export_function(graph, name, emit_kernel)
            _copy_symbols(graph, name)
        module.operation.verify()
    return module


def _export_function(graph: Graph, name: str, emit_kernel: EmitKernel | None) -> None:
    inputs = [export_type(v.type) for v in graph.inputs]
    outputs = [export_type(v.type) for v in graph.outputs]
    function = func.FuncOp(name, (inputs, outputs), visibility="public")
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        arguments = dict(zip(graph.inputs, block.arguments, strict=True))
        func.ReturnOp(export_graph(graph, arguments, emit_kernel))


def _sources(graph: Graph) -> Iterator[Any]:
    for op in graph.walk():
        if isinstance(op.source, Source):
            yield op.source.operation
        elif isinstance(op.source, ir.Location):
            yield op.source


class _Exporter:
    """The values written so far."""

    def __init__(self, values: dict[Value, ir.Value], emit_kernel: EmitKernel | None) -> None:
        self.values = values
        self.emit_kernel = emit_kernel
        self.types: dict[Type, ir.Type] = {}

    def export(self, graph: Graph) -> list[ir.Value]:
        for op in graph.ops:
            operands = [self.values[v] for v in op.operands]
            self.values.update(zip(op.results, self.export_op(op, operands), strict=True))
        return [self.values[v] for v in graph.outputs]

    def export_op(self, op: Op, operands: list[ir.Value]) -> Sequence[ir.Value]:
        if op.name == KERNEL:
            return self.export_kernel(op, operands)
        if op.name == COLLECTIVES:
            return self.export_body(op, operands)
        if op.name in (NO_FUSE, TURN_END):
            return operands
        if op.name == TURNED:
            return [stablehlo.optimization_barrier(operands)]
        if op.name == UNSET:
            return self.export_unset(op)
        if op.name in OPS:
            return self.export_table_op(op, operands)
        return _clone(op, operands)

    def export_kernel(self, op: Op, operands: list[ir.Value]) -> list[ir.Value]:
        if self.emit_kernel is not None:
            with ir.Location.name(_display_name(op), _locations(op)):
                return self.emit_kernel(op, operands)
        return self.export_body(op, operands)

    def export_body(self, op: Op, operands: list[ir.Value]) -> list[ir.Value]:
        """Its ops in its place."""
        self.values.update(zip(op.regions[0].inputs, operands, strict=True))
        return self.export(op.regions[0])

    def export_unset(self, op: Op) -> Sequence[ir.Value]:
        """Without a backend zeros, which nobody reads either."""
        if self.emit_kernel is None:
            return self.export_table_op(build.splat(op.result.tensor, 0).located(op), [])
        with _location(op):
            return emit_unset(self.type_of(op.result), number=len(self.values))

    def type_of(self, value: Value) -> ir.Type:
        if value.type not in self.types:
            self.types[value.type] = export_type(value.type)
        return self.types[value.type]

    def export_table_op(self, op: Op, operands: list[ir.Value]) -> Sequence[ir.Value]:
        location = _location(op)
        new = ir.Operation.create(
            op.name,
            results=[self.type_of(v) for v in op.results],
            operands=operands,
            attributes=encode_attributes(op, OPS[op.name].attrs),
            regions=len(op.regions),
            loc=location,
        )
        for graph, region in zip(op.regions, new.regions, strict=True):
            self.export_region(graph, region, location)
        return list(new.results)

    def export_region(self, graph: Graph, region: ir.Region, location: ir.Location) -> None:
        types = [self.type_of(v) for v in graph.inputs]
        block = region.blocks.append(*types, arg_locs=[location] * len(types))
        self.values.update(zip(graph.inputs, block.arguments, strict=True))
        with ir.InsertionPoint(block), location:
            stablehlo.return_(part_results(self.export(graph), len(graph.inputs)))


def _location(op: Op) -> ir.Location:
    """The op's own MLIR location where it lives in this context, else one made from `loc`."""
    if isinstance(op.source, ir.Location) and op.source.context == ir.Context.current:
        return op.source
    return make_location(op.loc)


def _locations(kernel: Op) -> ir.Location:
    """The user's lines that it computes, each as if called by the next; then the locations of its ops.

    XLA keeps such a chain as frames of a stack, the last of which is called by the callers of the first op:
    profilers show all lines, and `jstitch trace` reads them, up to the first that comes again. They are no
    attribute, since JAX's compilation cache would then depend on them.
    """
    ops = [*kernel.regions[0].walk()]
    placed = [op for op in ops if op.loc and not is_free(op)]
    lines = [*dict.fromkeys(op.loc for op in placed)][:_MOST_LINES] or [kernel.loc]
    found = ir.Location.fused(list(dict.fromkeys(map(_location, (*placed, *ops)))))
    for line in reversed(lines):
        found = ir.Location.callsite(make_location(line), [found])
    return found


def _display_name(kernel: Op) -> str:
    """What profilers show: the kernel's name behind the scopes around all its work, as JAX names ops.

    What only moves elements, or counts turns, is of JAX's loops as often as of the user's scopes.
    """
    ops = [*kernel.regions[0].walk()]
    scope = common_scope(op.scope for op in list(filter(_works, ops)) or ops)
    return f"{scope}/{kernel.attrs['name']}" if scope else str(kernel.attrs["name"])


def _works(op: Op) -> bool:
    """Whether it computes, on more than a scalar."""
    return lookup(op.name).op_class in _WORK and any(v.tensor.size > 1 for v in (*op.operands, *op.results))


def _clone(op: Op, operands: list[ir.Value]) -> Sequence[ir.Value]:
    """Clone an opaque op; `operands` are its own, then the values its regions capture."""
    source = op.source
    if not isinstance(source, Source):
        where = f" at {op.loc}" if op.loc else ""
        raise ValueError(
            f"Expected a table op or an imported one, found '{op.name}' without an MLIR source{where}."
            " Define it in jstitch/ir/ops, or keep `source` when rebuilding it."
        )
    own = int(op.attrs["num_operands"])
    captured = captured_values(source.operation) if len(operands) > own else []
    new = clone(source.operation, operands[:own], dict(zip(captured, operands[own:], strict=True)))
    return list(new.results)


def _copy_symbols(graph: Graph, name: str) -> None:
    """Copy the functions that opaque ops call, with those they call in turn."""
    done = {name}
    for source in [op.source for op in graph.walk() if isinstance(op.source, Source)]:
        functions = _named(source.symbols) if source.symbols is not None else {}
        todo = [source.operation]
        while todo:
            called = [s for s in _symbols(todo.pop()) if s in functions and s not in done]
            for symbol in dict.fromkeys(called):
                functions[symbol].clone(ir.InsertionPoint.current)
                todo.append(functions[symbol])
            done.update(called)


def _named(module: ir.Module) -> dict[str, ir.Operation]:
    ops = (view.operation for view in module.body.operations)
    return {op.attributes["sym_name"].value: op for op in ops if "sym_name" in op.attributes}


def _symbols(op: ir.Operation) -> Iterator[str]:
    """Names that an op's attributes refer to, its regions included."""
    for entry in op.attributes:
        attribute = op.attributes[entry] if isinstance(entry, str) else entry.attr
        yield from _symbols_in(attribute)
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield from _symbols(view.operation)


def _symbols_in(attribute: ir.Attribute) -> Iterator[str]:
    match attribute:
        case ir.FlatSymbolRefAttr():
            yield attribute.value
        case ir.ArrayAttr():
            for element in attribute:
                yield from _symbols_in(element)
        case ir.DenseElementsAttr():
            return
        case _:  # other dialects' (a sharding's mesh) are known by how they print
            yield from map("".join, _SYMBOL.findall(str(attribute)))
