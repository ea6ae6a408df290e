"""Whether a chain of products is one kernel, and takes less time than XLA's own program.

CPU    by the cost model, then by the latency-evaluator: XLA's library for each product, and its loops between
GPU    by the latency-evaluator, against the least that XLA can take: a library call for each product, and
       one kernel for all that lies between two of them
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from jstitch.codegen.cuda.homes import NoRoom
from jstitch.device_spec import DeviceSpec
from jstitch.ir.graph import Op, Value
from jstitch.ir.node_graph import connected_parts
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern, Reason, is_free
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.base.tensor_cores import library_seconds
from jstitch.passes.cost.cost_model import products, work_of_levels, xla_cost, xla_kernels
from jstitch.passes.cost.structure import per_structure
from jstitch.passes.fuse.chain_search import SMALL, ChainSearch
from jstitch.passes.fuse.gate import judge, margin_of
from jstitch.passes.fuse.tile_chains import search_chain
from jstitch.passes.graph.keep_counters import ADDED, LEFT
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.tile_rows import FEW_ROWS
from jstitch.passes.schedule.kernel_passes import TILES, schedule_kernel
from jstitch.passes.schedule.latency import kernel_latency

WRITES = "its kernel would write {found} bytes, XLA's own {bound}: they make again what is cheap"
WAITS = "the chain's rows wait for one another: a product is summed over them"
FEW = "no step divides the rows but one of {}, and for so few a product's right operand is not worth packing"
WHOLE = "its kernel, instruction by instruction, is modelled to take {found} us, XLA's own program {bound} us"
AT_LEAST = (
    "modelled {found} us, and must be less than {bound} us, of what XLA takes at least: a call of its library"
    " for each product, and one kernel for what lies between"
)


def why_not(pattern: FusionPattern, search: ChainSearch, context: Context) -> Reason | None:
    """Why XLA's own program is better; None where it is not."""
    return why_not_modelled(pattern, search, context) or why_not_lowered(pattern, search, context)


def why_not_modelled(pattern: FusionPattern, search: ChainSearch, context: Context) -> Reason | None:
    """What can be told of it before it is lowered."""
    if margin_of(context) == math.inf:
        return None
    reason = None if context.machine.device is not None else _judged(pattern, search, context)
    return reason or _written(pattern, search, context)


def why_not_lowered(pattern: FusionPattern, search: ChainSearch, context: Context) -> Reason | None:
    """What its kernel tells."""
    margin, device = margin_of(context), context.machine.device
    plain = Context(context.options, context.profile)
    made = _kernel_seconds(pattern, plain)
    if isinstance(made, str):
        return Reason("tiles", made)
    if margin == math.inf:
        return None
    if device is None:
        theirs = xla_cost(_as_xla(pattern, search), context.machine).seconds(context.machine)
        return Reason("gate", WHOLE, made * 1e6, theirs * 1e6) if made >= theirs else None
    theirs = margin * _least_seconds(_as_xla(pattern, search), context.machine, device)
    if made >= theirs and "tile_chains" not in context.options.without:
        made = min(made, search_chain(pattern, plain).seconds)
    return Reason("gate", AT_LEAST, made * 1e6, theirs * 1e6) if made >= theirs else None


def takes_less(
    more: FusionPattern, less: FusionPattern, rest: FusionPattern, search: ChainSearch, context: Context
) -> bool:
    """Whether one kernel of all takes less time than `less` and the rest of it apart."""
    device, margin = context.machine.device, margin_of(context)
    alone = _as_xla(rest, search)
    if device is None:
        apart = _seconds_apart(less, less, context) + _seconds_apart(rest, alone, context)
        return judge(more, context.profile).ours_seconds < margin * apart
    plain = Context(context.options, context.profile)
    both = _kernel_seconds(more, plain), _kernel_seconds(less, plain)
    if isinstance(both[0], str) or isinstance(both[1], str):
        return False
    return both[0] < margin * (both[1] + _least_seconds(alone, context.machine, device))


def _seconds_apart(pattern: FusionPattern, own: FusionPattern, context: Context) -> float:
    """A kernel's, or XLA's own: nothing but XLA makes a product alone."""
    theirs = xla_cost(own, context.machine).seconds(context.machine)
    if sum(op.name == PRODUCT for op in pattern.ops) == 1:
        return theirs
    return min(theirs, judge(pattern, context.profile).ours_seconds)


def _as_xla(pattern: FusionPattern, search: ChainSearch) -> FusionPattern:
    """With the outputs that XLA's program writes, too: others it makes again where they are read."""
    return replace(pattern, outputs=tuple(filter(search.is_written, pattern.outputs)))


def _judged(pattern: FusionPattern, search: ChainSearch, context: Context) -> Reason | None:
    """By time, on a CPU."""
    margin, machine, own = margin_of(context), context.machine, _as_xla(pattern, search)
    verdict = replace(judge(pattern, context.profile), xla=xla_cost(own, machine))
    return None if verdict.is_within(margin) else verdict.reason(margin)


def _written(pattern: FusionPattern, search: ChainSearch, context: Context) -> Reason | None:
    """By what is written."""
    ours = sum(v.tensor.nbytes for v in pattern.outputs)
    theirs = sum(v.tensor.nbytes for v in xla_kernels(_as_xla(pattern, search), context.machine))
    return Reason("gate", WRITES, ours, theirs) if ours > theirs else None


@per_structure
def _kernel_seconds(pattern: FusionPattern, context: Context) -> float | str:
    """Its kernel, as the latency-evaluator has it; or why there is none in which all go by tiles."""
    rows, *totals = work_of_levels(pattern, context.profile)
    if sum(totals) * SMALL > rows or (totals and context.machine.device is not None):
        return WAITS  # said before all of it is lowered
    try:
        what = pattern.ops, pattern.inputs, pattern.outputs
        kernel = lower_kernel("chain", *what, context.profile, context.options.arena_bytes)
    except CannotLowerError as error:
        return f"no kernel expresses the chain: {error}"
    wanted = sum(op.name == PRODUCT for op in pattern.ops)
    found = schedule_kernel(kernel, context, (TILES,)).products
    step = max(lane.step for lane in kernel.phases[0].lanes)
    if found < wanted:
        tiles = f"{found} of the chain's {wanted} products would go by tiles of registers"
        return f"{tiles}, with {step} rows at a time"
    if context.machine.device is None and step < min(FEW_ROWS, _least_rows(pattern)):
        return FEW.format(step)
    try:
        return kernel_latency(schedule_kernel(kernel, context), context).seconds
    except NoRoom as error:
        return str(error)


def _least_rows(pattern: FusionPattern) -> int:
    """Of a product's result, that share its right operand."""
    sides = [Side.of(op, 0) for op in pattern.ops if op.name == PRODUCT]
    return min(side.size(side.free) for side in sides)


def _least_seconds(pattern: FusionPattern, machine: Machine, device: DeviceSpec) -> float:
    """What XLA takes at least, with everything between two products in one kernel."""
    made = [op for op in pattern.ops if not is_free(op)]
    total = 0.0
    between: dict[Op, None] = {}
    producers = {v: op for op in made for v in op.results}
    for op in made:
        if op.name == PRODUCT:
            moved = (*op.operands, *op.results)
            arithmetic = library_seconds(products(op), device, op.operands[0].tensor.dtype)
            total += machine.launch + max(arithmetic, _seconds(moved, machine))
        elif lookup(op.name).op_class is not OpClass.SHAPE and op.attrs.get(LEFT) != ADDED:
            between[op] = None
    makers = ((producers.get(v), op) for op in between for v in op.operands)
    for group in connected_parts(between, ((m, op) for m, op in makers if m in between)):
        total += machine.launch + _seconds(_crossing(made, group, pattern.outputs), machine)
    return total


def _crossing(ops: Sequence[Op], group: set[Op], outputs: Sequence[Value]) -> set[Value]:
    """What a kernel of the group reads and writes."""
    inside = {v for op in group for v in op.results}
    read = {v for op in group for v in op.operands} - inside
    wanted = {v for op in ops if op not in group for v in op.operands}.union(outputs)
    return read | (inside & wanted)


def _seconds(values: Sequence[Value] | set[Value], machine: Machine) -> float:
    nbytes = sum(v.tensor.nbytes for v in {*values})
    return float(nbytes / machine.bandwidth(nbytes))
