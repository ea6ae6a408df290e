"""A frame as tables of numbers, for planners that score many sets of its ops in microseconds each.

%a = exp %in; %b = reduce %a, over rows; %c = divide %a, %b     ->     place  work  rows  XLA
                                                                      a  0     20n     n  -
                                                                      b  1       n     R  in -> b
                                                                      c  2      4n     n  in, b -> c

Ops and values are places in the tables. What XLA does alone is decided once for the frame: which values it
writes to memory, and what the kernel of each of them reads and computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import Access, data_operands, is_reduction, relations
from jstitch.passes.cost.cost_model import CostEstimate, work, xla_work
from jstitch.passes.cost.xla_turns import is_dear, xla_repeats
from jstitch.passes.fuse.plan_layers import partition_reason
from jstitch.passes.lower.form_groups import RECOMPUTE_SCALAR
from jstitch.passes.lower.recompute_cost import RECOMPUTE

CONE = 128  # ops of one kernel of XLA's that are looked at
UNBOUNDED = 1 << 62


class Use(NamedTuple):
    """An op that reads a value; `far`: its rows need elements of other rows, or all the same ones."""

    op: int
    far: bool


class XlaKernel(NamedTuple):
    """What one kernel of XLA's moves and computes, and the seconds that it takes."""

    nbytes: float
    cycles: float
    seconds: float


@dataclass(eq=False)
class FrameTable:
    """Tables by place of op, and by number of value. Nothing changes them once they are filled.

    ops: in a topological order, without free ops. profile: of their target. fusible: whether patterns may
    hold the op. operands, results: values, once each. work: cycles per vector lane. cross: reductions of the
    leading dimensions, whose partial results are combined a phase later. partials: how many there are.
    rows: into which the op can be cut and stay in one program.
    xla: the kernels that XLA runs for values of the op. xla_work: cycles of the op in one of XLA's kernels;
    xla_repeats: of what it reads; xla_all: in all that compute it.
    maker: the op that makes the value, -1 outside the frame. users: of the value, by place. nbytes. returned:
    by the frame. joins: a pattern may hold the maker. written: by XLA, to memory. cheap: computed again
    rather than written and read.
    """

    ops: Sequence[Op]
    profile: Profile
    place: dict[Op, int] = field(default_factory=dict)
    number: dict[Value, int] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    fusible: list[bool] = field(default_factory=list)
    operands: list[tuple[int, ...]] = field(default_factory=list)
    results: list[tuple[int, ...]] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    cross: list[bool] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    partials: list[int] = field(default_factory=list)
    xla: list[tuple[XlaKernel, ...]] = field(default_factory=list)
    xla_work: list[float] = field(default_factory=list)
    xla_repeats: list[float] = field(default_factory=list)
    xla_all: list[float] = field(default_factory=list)
    maker: list[int] = field(default_factory=list)
    users: list[list[Use]] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    returned: list[bool] = field(default_factory=list)
    joins: list[bool] = field(default_factory=list)
    cheap: list[bool] = field(default_factory=list)
    written: list[bool] = field(default_factory=list)
    _cuts: dict[int, XlaKernel] = field(default_factory=dict)
    _whole: dict[int, XlaKernel] = field(default_factory=dict)

    def cut(self, value: int) -> XlaKernel | None:
        """The kernel that XLA needs besides when a pattern reads this value, or None when it has it anyway.

        It is shared by all who read the value: they need it once.
        """
        if self.written[value] or not self.joins[value]:
            return None
        if value not in self._cuts:
            share = 1 / len(self.users[value])
            self._cuts[value] = XlaKernel(*(part * share for part in self.whole(value)))
        return self._cuts[value]

    def whole(self, value: int) -> XlaKernel:
        """`kernel`, worked out once."""
        if value not in self._whole:
            self._whole[value] = self.kernel(value)
        return self._whole[value]

    def kernel(self, value: int, ops: list[int] | None = None) -> XlaKernel:
        """XLA's kernel that writes `value`: all up to what it has in memory. ops: gets the ops of it."""
        seen, todo, nbytes = {value}, [(value, 1.0)], float(self.nbytes[value])
        ops, cycles = [] if ops is None else ops, 0.0
        while todo:
            v, times = todo.pop()
            maker = self.maker[v]
            if v != value and (maker < 0 or self.written[v] or not self.fusible[maker] or len(ops) >= CONE):
                nbytes += self.nbytes[v]
                continue
            ops.append(maker)
            cycles += self.xla_work[maker] * (times if is_dear(self.ops[maker]) else 1.0)
            new = [u for u in self.operands[maker] if u not in seen]
            seen.update(new)
            todo += ((u, times * self.xla_repeats[maker]) for u in new)
        machine = self.profile.machine
        serial = machine.cores if machine.serial_work <= cycles < machine.xla_serial_work else 1.0
        nbytes, cycles = nbytes * (1 + (serial - 1) / 2), cycles * serial
        return XlaKernel(nbytes, cycles, CostEstimate(1.0, nbytes, cycles).seconds(machine))


def tabulate_frame(frame: Graph, profile: Profile, order: Sequence[Op] | None = None) -> FrameTable:
    """The tables of a frame for a target. order: all its ops in a topological order, None = as they stand."""
    table = FrameTable([op for op in order or frame.ops if not is_free(op)], profile)
    table.place.update((op, n) for n, op in enumerate(table.ops))
    returned = frozenset(frame.outputs)
    free = {v for op in frame.ops if is_free(op) for v in op.results}
    shared: dict[object, _Shape] = {}
    for op in table.ops:
        _add(table, op, free, returned, shared)
    _decide_written(table)
    _price(table)
    return table


@dataclass(frozen=True)
class _Shape:
    """rows: see FrameTable. far: of each operand."""

    rows: int
    far: tuple[bool, ...]


def _add(
    table: FrameTable,
    op: Op,
    free: set[Value],
    returned: frozenset[Value],
    shared: dict[object, _Shape],
) -> None:
    place = len(table.fusible)
    fusible = partition_reason(op) is None
    shape = _shape(op, shared) if fusible else _Shape(UNBOUNDED, ())
    uses: dict[int, bool] = {}
    for k, v in enumerate(op.uses):
        if v not in free:
            number = _number(table, v, -1, returned)
            uses[number] = uses.get(number, False) or (k < len(shape.far) and shape.far[k])
    for number, far in uses.items():
        table.users[number].append(Use(place, far))
    table.fusible.append(fusible)
    table.operands.append(tuple(uses))
    table.results.append(tuple(_number(table, v, place, returned) for v in op.results))
    table.work.append(work(op, table.profile.machine) if fusible else 0.0)
    table.cross.append(fusible and is_reduction(op) and shape.rows == 0)
    table.partials.append(_partials(op, table.profile) if table.cross[-1] else 0)
    table.rows.append(shape.rows or UNBOUNDED)


def _partials(op: Op, profile: Profile) -> int:
    """Partial results of a reduction over the leading dimensions (see form_groups.Group.programs)."""
    elements = op.operands[0].tensor.size
    rows = elements // max(1, op.results[0].tensor.size)
    return profile.column_programs(rows, 1, elements)


def _number(table: FrameTable, value: Value, maker: int, returned: frozenset[Value]) -> int:
    if value not in table.number:
        table.number[value] = len(table.values)
        table.values.append(value)
        table.maker.append(maker)
        table.users.append([])
        table.nbytes.append(_nbytes(value))
        table.returned.append(value in returned)
    return table.number[value]


def _nbytes(value: Value) -> int:
    try:
        return value.tensor.nbytes
    except TypeError:
        return 0


def _shape(op: Op, shared: dict[object, _Shape]) -> _Shape:
    """`_classify`, once for all ops that are alike."""
    try:
        attrs = tuple(sorted((k, v) for k, v in op.attrs.items() if not hasattr(v, "dtype")))
        types = (*(v.shape for v in op.operands), None, *(v.shape for v in op.results))
        key = (op.name, attrs, types)
        if key not in shared:
            shared[key] = _classify(op)
        return shared[key]
    except TypeError:
        return _classify(op)


def _classify(op: Op) -> _Shape:
    """The rows that an op can be cut into (0: a reduction mixes them all), and what it reads across them."""
    if is_reduction(op):
        operand, dims = op.operands[0].shape, op.attrs["dimensions"]
        first = min((d for d in dims if operand[d] > 1), default=len(operand))
        rows = math.prod(operand[:first])
        return _Shape(0 if rows == 1 and op.operands[0].tensor.size > 1 else max(1, rows), ())
    result = op.results[0].shape
    if lookup(op.name).op_class.is_elementwise:
        return _Shape(UNBOUNDED, tuple(v.shape != result for v in op.operands))
    far = [True] * len(op.operands)
    limit = UNBOUNDED
    for k in range(len(result), -1, -1):
        rows = math.prod(result[:k])
        if rows == 1:
            break
        for n, relation in enumerate(relations(op, rows)):
            if far[n] and relation.access is Access.ROW:
                far[n], limit = False, min(limit, rows)
    return _Shape(limit, tuple(far))


def _decide_written(table: FrameTable) -> None:
    """Which values XLA writes to memory (see cost_model.xla_cost, which decides it pattern by pattern)."""
    table.joins += [maker >= 0 and table.fusible[maker] for maker in table.maker]
    table.written += [
        table.returned[v] or any(not table.fusible[u.op] for u in users)
        for v, users in enumerate(table.users)
    ]
    reads_fuse = table.profile.machine.reads_fuse
    for place, op in enumerate(table.ops):
        if not table.fusible[place]:
            continue
        kind = lookup(op.name).op_class
        first = table.results[place][0]
        if is_reduction(op):
            table.written[first] = True
            for v in () if reads_fuse else data_operands(op):
                if v in table.number:
                    table.written[table.number[v]] = True
        elif kind is OpClass.EXPENSIVE and len(table.users[first]) > 1:
            table.written[first] = True


def _price(table: FrameTable) -> None:
    """What each op costs XLA, and which values are better computed again than kept in memory."""
    pairs, machine = list(zip(table.ops, table.fusible, strict=True)), table.profile.machine
    table.xla_work += [xla_work(op, machine, False) if fusible else 0.0 for op, fusible in pairs]
    table.xla_repeats += [xla_repeats(op, machine) if fusible else 1.0 for op, fusible in pairs]
    table.xla_all += [0.0] * len(table.ops)
    again: list[float] = [1.0] * len(table.values)
    table.cheap += [True] * len(table.values)
    for place, op in enumerate(table.ops):
        results = table.results[place]
        if not table.fusible[place]:
            table.xla.append(())
            continue
        table.xla.append(tuple(_kernel(table, v) for v in results if table.written[v]))
        kind = lookup(op.name)
        own = kind.cpi if kind.op_class.is_elementwise else 0.0
        cost = math.inf if is_reduction(op) else own + sum(again[v] for v in table.operands[place])
        for v in results:
            bound = RECOMPUTE_SCALAR if table.values[v].tensor.size == 1 else RECOMPUTE
            table.cheap[v] = cost < bound
            again[v] = cost if cost < bound else 1.0


def _kernel(table: FrameTable, value: int) -> XlaKernel:
    """XLA's kernel for a value, its cycles noted at all of its ops."""
    ops: list[int] = []
    found = table.kernel(value, ops)
    alone = sum(table.xla_work[op] for op in ops)
    for op in ops:
        table.xla_all[op] += table.xla_work[op] * (found.cycles / alone if alone else 1.0)
    return found
