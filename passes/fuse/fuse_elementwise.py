"""Intra-layer elementwise fusion (FS-2018 section 3.2): which ops of one layer start one kernel together.

    layer 0:  %a = add %x, %y : 64x64        {%a, %b}    same shape, both read %x
              %b = mul %x, %z : 64x64   ->   {%c, %d}    same shape, small: packed
              %c = neg %u : 8
              %d = exp %v : 8

Ops of a layer do not depend on each other, so any grouping is legal. Ops that share an operand are kept
together (it is read once); groups of one shape are then packed while their footprint stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Op, Value
from jstitch.passes.lower.propagate_schedule import op_class

MAX_ROOTS = 16
"""Outputs of one elementwise kernel; beyond that, address arithmetic costs more than a launch."""


@dataclass
class _Group:
    ops: list[Op] = field(default_factory=list)
    values: dict[Value, int] = field(default_factory=dict)

    @property
    def footprint(self) -> int:
        return sum(self.values.values())

    def add(self, ops: Iterable[Op]) -> None:
        for op in ops:
            self.ops.append(op)
            self.values.update((v, v.tensor.nbytes) for v in (*op.operands, *op.results))


def fuse_elementwise(
    layer: Sequence[Op], threshold: int, is_shared: Callable[[Value], bool] = lambda value: True
) -> list[list[Op]]:
    """The layer's ops in groups, in program order; ops that are not elementwise stay alone.

    threshold: bytes of operands and results that one packed group may touch. is_shared: whether an operand
    ties its readers together (constants do not).
    """
    elementwise = [op for op in layer if op_class(op).is_elementwise]
    alone = [[op] for op in layer if not op_class(op).is_elementwise]
    by_shape: dict[tuple[int, ...], list[Op]] = {}
    for op in elementwise:
        by_shape.setdefault(op.result.shape, []).append(op)
    groups = [g for ops in by_shape.values() for g in _pack(_siblings(ops, is_shared), threshold)]
    place = {op: i for i, op in enumerate(layer)}
    return sorted([*groups, *alone], key=lambda group: place[group[0]])


def _siblings(ops: Sequence[Op], is_shared: Callable[[Value], bool]) -> list[list[Op]]:
    """Ops connected through full-sized operands, at most MAX_ROOTS in a group."""
    groups: list[list[Op]] = []
    of_value: dict[Value, list[Op]] = {}
    for op in ops:
        values = [v for v in op.operands if v.shape == op.result.shape and is_shared(v)]
        found = (of_value[v] for v in values if v in of_value and len(of_value[v]) < MAX_ROOTS)
        group = next(found, None)
        if group is None:
            group = []
            groups.append(group)
        group.append(op)
        of_value.update(dict.fromkeys(values, group))
    return groups


def _pack(siblings: Iterable[list[Op]], threshold: int) -> list[list[Op]]:
    """Neighbouring groups joined while they stay below the threshold."""
    packed: list[_Group] = []
    for ops in siblings:
        group = _Group()
        group.add(ops)
        last = packed[-1] if packed else None
        fits = last is not None and len(last.ops) + len(ops) <= MAX_ROOTS
        if last is not None and fits and last.footprint + group.footprint <= threshold:
            last.add(ops)
        else:
            packed.append(group)
    return [group.ops for group in packed]
