"""Copies of opaque MLIR operations that outlive the module they were imported from.

jaxlib's operation objects do not keep their module alive, and a lowering rule erases what it imported.
So each opaque op is cloned once, at import, into a module of the project's own: a function whose block
arguments stand for the op's operands and for the values that its regions capture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.frontend.mlir import func, ir


@dataclass(frozen=True)
class Source:
    """A kept operation, the module it lives in, and the module that its symbols refer to."""

    operation: ir.Operation
    owner: ir.Module
    symbols: ir.Module | None


@dataclass
class Keeper:
    """Keeps the opaque ops of one import."""

    symbols: ir.Module | None
    owner: ir.Module | None = None
    block: ir.Block | None = field(default=None)

    def keep(self, operation: ir.Operation, captured: Sequence[ir.Value]) -> Source:
        """A copy of the operation over block arguments."""
        with operation.context, ir.Location.unknown() as unknown:
            if self.block is None:
                self.owner = ir.Module.create()
                with ir.InsertionPoint(self.owner.body):
                    self.block = func.FuncOp("kept", ([], [])).add_entry_block()
            operands = [self.block.add_argument(v.type, unknown) for v in operation.operands]
            around = [self.block.add_argument(v.type, unknown) for v in captured]
            copy = clone(operation, operands, dict(zip(captured, around, strict=True)), self.block)
        assert self.owner is not None
        return Source(copy, self.owner, self.symbols)


def clone(
    operation: ir.Operation,
    operands: Sequence[ir.Value],
    captured: Mapping[ir.Value, ir.Value],
    block: ir.Block | None = None,
) -> ir.Operation:
    """A copy at the end of `block` (or the current insertion point) with other operands and captures."""
    where = ir.InsertionPoint.current if block is None else ir.InsertionPoint(block)
    new: ir.Operation = operation.clone(where).operation
    _replace_operands(new, dict(enumerate(operands)))
    if captured:
        _replace_captured(new, captured)
    return new


def _replace_operands(operation: ir.Operation, new: Mapping[int, ir.Value]) -> None:
    for number, value in new.items():
        operation.operands[number] = value


def _replace_captured(operation: ir.Operation, new: Mapping[ir.Value, ir.Value]) -> None:
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                inner = view.operation
                uses = {k: new[v] for k, v in enumerate(inner.operands) if v in new}
                _replace_operands(inner, uses)
                _replace_captured(inner, new)


def captured_values(operation: ir.Operation) -> list[ir.Value]:
    """Values that the regions of an op use and neither define nor contain, in order of first use."""
    defined: set[ir.Value] = set()
    used: dict[ir.Value, None] = {}
    for region in operation.regions:
        _scan(region, defined, used)
    return [v for v in used if v not in defined]


def _scan(region: ir.Region, defined: set[ir.Value], used: dict[ir.Value, None]) -> None:
    for block in region.blocks:
        defined.update(block.arguments)
        for view in block.operations:
            op = view.operation
            used.update(dict.fromkeys(op.operands))
            defined.update(op.results)
            for inner in op.regions:
                _scan(inner, defined, used)
