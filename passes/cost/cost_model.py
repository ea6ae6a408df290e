"""What a pattern costs as one kernel, and as XLA's own kernels: bytes, work, launches.

Both are counted the same way, on the same machine model, so that only their difference matters: ours reads
each input once per lane and writes outputs and spills; XLA fuses elementwise ops into the kernel of each
value it must materialise: outputs, results of reductions, dear values with several users; on the CPU also
what a reduction reads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.cpu.panel import pack_cycles, product_cycles
from jstitch.codegen.intrinsics import cpu_cpi
from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.types import DType
from jstitch.passes.base.machine import Machine, busy_share
from jstitch.passes.base.plan import FusionPattern, is_free
from jstitch.passes.base.product_side import PRODUCT, Side, by_size
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.remember import per_object
from jstitch.passes.base.row_access import FACTORS, ROWS, data_operands, is_reduction
from jstitch.passes.base.tensor_cores import library_seconds, tensor_seconds
from jstitch.passes.base.thin_products import products_back
from jstitch.passes.cost.parts_read import bytes_read, shares_made
from jstitch.passes.cost.seam_work import circular_times, division_work, seam_work
from jstitch.passes.cost.structure import per_structure
from jstitch.passes.cost.turned_reads import is_turned, turned_reads
from jstitch.passes.cost.xla_turns import is_dear, xla_turns
from jstitch.passes.lower.form_groups import Grouping, form_groups
from jstitch.passes.lower.group import Group
from jstitch.passes.lower.recompute_cost import PARTIAL
from jstitch.passes.lower.rewrite_ops import rewrite_ops

# What XLA's library takes for a product: to start threads, of a multiplication, of an element of the result,
# of one of the operands; of a multiplication of a row by a single vector. From products drawn at random, of
# which two in three took longer.
LIBRARY_CALL, LIBRARY_CYCLES = 4e5, 0.55
LIBRARY_RESULT, LIBRARY_OPERAND, LIBRARY_ROWS = 10.0, 12.0, 3.0


@dataclass(frozen=True)
class CostEstimate:
    """launches: kernels, or phases of one. nbytes: memory traffic. cycles: scalar work in vector lanes."""

    launches: float = 0.0
    nbytes: float = 0.0
    cycles: float = 0.0

    def __add__(self, other: CostEstimate) -> CostEstimate:
        return CostEstimate(
            self.launches + other.launches, self.nbytes + other.nbytes, self.cycles + other.cycles
        )

    @property
    def kernels(self) -> str:
        """The launches in words."""
        return f"{self.launches:.0f} kernel{'s' if round(self.launches) != 1 else ''}"

    @property
    def without_launches(self) -> CostEstimate:
        return CostEstimate(0.0, self.nbytes, self.cycles)

    def seconds(self, machine: Machine) -> float:
        """Launches, then the slower of memory and arithmetic."""
        memory = self.nbytes / machine.bandwidth(self.nbytes)
        arithmetic = self.cycles * machine.lane_cycle
        slower, faster = max(memory, arithmetic), min(memory, arithmetic)
        return self.launches * machine.launch + slower + machine.overlap * faster


@per_object
@per_structure
def kernel_cost(pattern: FusionPattern, profile: Profile) -> CostEstimate:
    """The pattern as one stitched kernel."""
    formed, machine = _formed(pattern, profile), profile.machine
    grouping = formed.grouping
    lanes: dict[tuple[int, int], list[Op]] = {}
    for op in grouping.ops:
        if not is_free(op):
            lanes.setdefault((grouping.level_of[op], id(grouping.group_of[op])), []).append(op)
    producers = {v: op for op in grouping.ops for v in op.results}
    phases = len({level for level, _ in lanes})
    total = CostEstimate(launches=machine.call + phases * machine.phase)
    kept = grouping.spilled.union(formed.outputs)
    sector = machine.sector_bytes
    sector = sector if sector and is_turned(grouping.ops, sector) else 0
    shares = shares_made(grouping.ops, kept)
    for (level, _), ops in lanes.items():
        total += _lane_cost(grouping, ops, level, producers, kept, machine, sector, shares)
    return total


@dataclass(frozen=True, eq=False)
class _Formed:
    """What lowering makes of a pattern's ops, and of its outputs."""

    grouping: Grouping
    outputs: Sequence[Value]


def work_of_levels(pattern: FusionPattern, profile: Profile) -> list[float]:
    """Cycles of each phase of its kernel, one after another, nothing of which is lowered for it."""
    grouping = _formed(pattern, profile).grouping
    found: dict[int, list[float]] = {}
    for op in itertools.filterfalse(is_free, grouping.ops):
        found.setdefault(grouping.level_of[op], []).append(work(op, profile.machine))
    return [sum(found[level]) for level in sorted(found)]


@per_object
def _formed(pattern: FusionPattern, profile: Profile) -> _Formed:
    found = rewrite_ops(pattern.ops, pattern.outputs, profile, pattern.updates)
    grouping = form_groups(found.ops, found.outputs, profile, strips=found.strips)
    return _Formed(grouping, found.outputs)


def wide_sums(pattern: FusionPattern, profile: Profile) -> int:
    """Bytes of a program's sums over rows, if they are on chip and find no room there; else 0."""
    nbytes = 0 if profile.machine.device is None else _partial_bytes(pattern, profile)
    return nbytes if nbytes > profile.arena_bytes else 0


@per_object
@per_structure
def _partial_bytes(pattern: FusionPattern, profile: Profile) -> int:
    found: dict[int, int] = {}
    grouping = _formed(pattern, profile).grouping
    for op in grouping.ops:
        if op.name == PARTIAL:
            group = id(grouping.group_of[op])
            own = sum(v.tensor.nbytes // v.shape[0] for v in op.results)
            found[group] = found.get(group, 0) + own
    return max(found.values(), default=0)


def _lane_cost(
    grouping: Grouping,
    ops: Sequence[Op],
    level: int,
    producers: Mapping[Value, Op],
    kept: Collection[Value],
    machine: Machine,
    sector: int,
    shares: Mapping[Op, float],
) -> CostEstimate:
    """kept: what is written to memory. sector: of memory, in bytes, where it matters. shares: made of ops."""
    chosen = set(ops)
    written = [v for op in ops for v in op.results if v in kept or op.name == PARTIAL]
    if not written:  # nothing but what other lanes compute in place
        return CostEstimate()
    reads: set[Value] = set()
    readers = {op: shares.get(op, 1.0) for op in ops}
    todo = [v for op in ops for v in op.operands]
    seen: set[Value] = set()
    while todo:
        v = todo.pop()
        if v in seen:
            continue
        seen.add(v)
        op = producers.get(v)
        if op is None or (v in grouping.spilled and grouping.level_of.get(op, 0) < level):
            reads.add(v)
        elif op not in chosen and not is_free(op):
            todo += op.operands
            readers[op] = shares.get(op, 1.0)
    group = grouping.group_of[ops[0]]
    cycles = sum(work(op, machine) * share for op, share in readers.items())
    made = [op for op in ops if ROWS in op.attrs and is_reduction(op)]
    cycles += sum(_packing(op, group, machine) for op in made)
    parallel = group.programs >= machine.cores or cycles < machine.serial_work
    serial = 1.0 if parallel else machine.cores
    nbytes: float = sum(v.tensor.nbytes for v in written) + bytes_read(reads, readers)
    nbytes += sum(_packed_again(op, group, machine) for op in made)
    if sector:
        turned = turned_reads(ops, group.rows, reads, written, producers, sector)
        nbytes += sum(v.tensor.size * sector - v.tensor.nbytes for v in turned)
    if made and machine.device is not None:  # CTAs may be few
        share = busy_share(group.rows // group.step, machine.device.sms)
        nbytes, cycles = nbytes / share, cycles / share
    return CostEstimate(0.0, nbytes * (1 + (serial - 1) / 2), cycles * serial)


def _packing(op: Op, group: Group, machine: Machine) -> float:
    """Cycles of packing a product's right operand at every step."""
    if machine.device is not None:
        return 0.0
    n, k = op.operands[0].shape[-2:]
    return pack_cycles(n, k) * (group.rows // group.step)


def _packed_again(op: Op, group: Group, machine: Machine) -> int:
    """Bytes of a product's right operand that later steps read, if no core's cache holds it.

    GPUs' second-level caches are not much faster than their memory.
    """
    n, k = op.operands[0].shape[-2:]
    right = n * k * (op.attrs[FACTORS] if machine.device else op.operands[0].tensor.dtype).itemsize
    steps, batches = group.rows // group.step, group.rows // op.attrs[ROWS]
    return right * (steps - batches) if machine.device or right > machine.near_bytes else 0


def work(op: Op, machine: Machine) -> float:
    """Cycles per vector lane, times elements."""
    definition = lookup(op.name)
    if is_free(op) or definition.op_class in (OpClass.SHAPE, OpClass.INDEX):
        return 0.0
    if ROWS in op.attrs:
        *rows, n, k = op.operands[0].shape
        if machine.device is not None and is_reduction(op):
            products = op.operands[0].tensor.size
            return tensor_seconds(products, machine.device, op.attrs[FACTORS]) / machine.lane_cycle
        return product_cycles(math.prod(rows), n, k) if is_reduction(op) else 0.0
    elements = max(v.tensor.size for v in (*op.results, *op.operands))
    return elements * (definition.cpi if machine.device else cpu_cpi(definition))


def products(op: Op) -> int:
    """Multiplications of a dot_general."""
    left = Side.of(op, 0)
    return left.value.tensor.size * Side.of(op, 1).size(Side.of(op, 1).free)


@per_object
@per_structure
def xla_cost(pattern: FusionPattern, machine: Machine) -> CostEstimate:
    """The same ops as XLA:CPU runs them."""
    return sum(xla_kernels(pattern, machine).values(), CostEstimate())


def xla_kernels(
    pattern: FusionPattern, machine: Machine, most: float = math.inf
) -> dict[Value, CostEstimate]:
    """XLA's kernels for these ops: the value that each writes, and what it costs.

    most: values looked at for each; what lies behind them is left out.
    """
    pattern = replace(pattern, ops=tuple(products_back(pattern.ops)))
    producers = {v: op for op in pattern.ops for v in op.results}
    materialised = _materialised(pattern, producers, machine)
    fused = _fused(pattern, producers, materialised) if machine.reads_vectors else frozenset[Value]()
    written = {v: None for v in materialised if v not in fused}
    return {v: _fusion_cost(v, producers, written, machine, most, fused) for v in written}


def _fused(
    pattern: FusionPattern, producers: Mapping[Value, Op], materialised: Mapping[Value, None]
) -> frozenset[Value]:
    """Those that only reductions read, with circular functions in them: see Machine.reads_vectors."""
    others = {v for op in pattern.ops if not is_reduction(op) for v in op.operands}
    inner = materialised.keys() - others - {*pattern.outputs}
    return frozenset(v for v in inner if _is_circular(v, producers, materialised))


def _is_circular(value: Value, producers: Mapping[Value, Op], materialised: Mapping[Value, None]) -> bool:
    todo, seen = [value], {value}
    while todo:
        op = producers[todo.pop()]
        if lookup(op.name).reduced_cpi is not None:
            return True
        inner = [v for v in op.operands if v in producers and v not in materialised and v not in seen]
        seen.update(inner)
        todo += inner
    return False


def xla_makes(
    pattern: FusionPattern, machine: Machine, values: Iterable[Value], most: int
) -> dict[Value, CostEstimate]:
    """What a kernel of XLA's costs that writes one of these values, of which it writes none by itself.

    most: values looked at for each; what lies behind them is left out.
    """
    pattern = replace(pattern, ops=tuple(products_back(pattern.ops)))
    producers = {v: op for op in pattern.ops for v in op.results}
    materialised = _materialised(pattern, producers, machine)
    return {v: _fusion_cost(v, producers, materialised, machine, most) for v in values}


def _materialised(
    pattern: FusionPattern, producers: Mapping[Value, Op], machine: Machine
) -> dict[Value, None]:
    """Values that XLA:CPU writes to memory."""
    users: dict[Value, int] = {}
    for op in pattern.ops:
        for v in op.operands:
            users[v] = users.get(v, 0) + 1
    found = dict.fromkeys(pattern.outputs)
    for op in pattern.ops:
        if is_reduction(op):
            operands = data_operands(op)
            if not machine.reads_fuse:
                made = (v for v in operands if v in producers and not is_free(producers[v]))
                found.update(dict.fromkeys(made))
            found[op.results[0]] = None
        elif op.name == PRODUCT:
            found.update(dict.fromkeys(v for v in op.operands if v in producers))
            found[op.results[0]] = None
        elif "place" in op.attrs:
            scattered = op.operands[2], _updates(op, producers)
            found.update(dict.fromkeys(v for v in scattered if v in producers and not is_free(producers[v])))
            found[op.results[0]] = None
        elif lookup(op.name).op_class is OpClass.EXPENSIVE and users.get(op.results[0], 0) > 1:
            found[op.results[0]] = None
    return found


def _updates(op: Op, producers: Mapping[Value, Op]) -> Value:
    """What a scatter that was written as a select puts into its place."""
    _, new, old = op.operands
    made = producers.get(new)
    if made is not None and lookup(made.name).op_class.is_elementwise and made.operands[0] is old:
        new = made.operands[1]
    while new in producers and lookup(producers[new].name).op_class is OpClass.SHAPE:
        new = producers[new].operands[0]
    return new


def _fusion_cost(
    root: Value,
    producers: Mapping[Value, Op],
    materialised: Mapping[Value, None],
    machine: Machine,
    most: float,
    fused: frozenset[Value] = frozenset(),
) -> CostEstimate:
    """One XLA kernel: everything up to values that are in memory already.

    fused: what goes into reductions, whose code for circular functions is another.
    """
    op = producers[root]
    if "place" in op.attrs:  # in place
        return CostEstimate(1.0, 2.0 * op.attrs["place"])
    reduced = not fused.isdisjoint(op.operands)
    turns, reads = xla_turns(op, producers, materialised, machine, most)
    times = {} if reduced else circular_times(machine, producers, turns)
    cycles = sum(
        xla_work(made, machine, reduced)
        * times.get(made, 1.0)
        * (again if is_dear(made) else min(again, 1.0))
        for made, again in turns.items()
    )
    cycles += sum(division_work(made, machine, producers, materialised) for made in turns)
    nbytes = root.tensor.nbytes + bytes_read(reads, turns)
    alone = machine.serial_work <= cycles < machine.xla_serial_work and op.name != PRODUCT
    serial = machine.cores if alone else 1.0
    return CostEstimate(1.0, nbytes * (1 + (serial - 1) / 2), cycles * serial)


@per_object
def xla_work(op: Op, machine: Machine, reduced: bool) -> float:
    """Cycles of the op in XLA:CPU's loops, which measure slower than ours on some.

    reduced: in what a reduction reads.
    """
    if op.name == PRODUCT:
        return _library_work(op, machine)
    each = lookup(op.name).reduced_cpi
    if reduced and each is not None and op.result.tensor.dtype is DType.F32:
        return each * op.result.tensor.size
    narrow = any(v.tensor.dtype.is_float and v.tensor.dtype.itemsize < 4 for v in op.operands)
    own = work(op, machine) * (machine.xla_narrow if narrow else machine.xla_cycles)
    return own + seam_work(op, machine) + _window_work(op, machine)


def _library_work(op: Op, machine: Machine) -> float:
    """Cycles of a dot_general."""
    if machine.device is not None:
        seconds = library_seconds(products(op), machine.device, op.operands[0].tensor.dtype)
        return seconds / machine.lane_cycle
    narrow = any(v.tensor.dtype.itemsize < DType.F32.itemsize for v in op.operands)
    operands = sum(v.tensor.size for v in op.operands)
    each = machine.library_narrow if narrow else LIBRARY_CYCLES
    matrix, vectors = by_size(op)
    alone = vectors.size(vectors.free) == 1
    if alone and not narrow and matrix.leads:
        return products(op) * (LIBRARY_ROWS if matrix.ends_in_sums else 0)  # at the speed of memory
    moved = LIBRARY_RESULT * op.result.tensor.size + LIBRARY_OPERAND * operands
    lone = alone or products(op) < machine.library_threads
    return (0 if lone else LIBRARY_CALL) + products(op) * each + moved


def _window_work(op: Op, machine: Machine) -> float:
    """The op ends a reduction over windows that was written out; XLA would run it as it stood."""
    return machine.window_cycles * float(op.attrs.get("window", 0) * op.results[0].tensor.size)
