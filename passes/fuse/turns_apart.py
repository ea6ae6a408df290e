"""How long the turns of a loop take as kernels of their own, one after the other, on a CPU.

    fori_loop(0, 32, stencil of 163,192 elements)    one kernel: 2.7 ms, on one core    turns: 0.6 ms, on all

A turn that needs other elements of the one before makes the loop's kernel one program. A turn's own kernel is
started anew every time, and has as many programs as its work is worth.
"""

from __future__ import annotations

import math

from jstitch.passes.base.context import Context
from jstitch.passes.cost.recurrence_cost import turn_of
from jstitch.passes.graph.find_recurrence import Recurrence
from jstitch.passes.graph.is_moved import is_large, is_moved
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.schedule.latency import kernel_latency

STARTED = 3  # kernels of XLA's at each turn: the counter's, the condition's, ours


def turns_apart(loop: Recurrence, context: Context) -> float:
    """Seconds of all turns; infinite where a turn is no kernel."""
    turn, machine = turn_of(loop), context.machine
    try:
        kernel = lower_kernel(
            "turn", turn.ops, turn.inputs, turn.outputs, context.profile, context.options.arena_bytes
        )
    except CannotLowerError:
        return math.inf
    moved = (c.before for c in loop.carries if is_moved(loop.ops, c.before, c.after))
    pairs = "unroll_turns" not in context.options.without  # large ones go back and forth then
    copied = sum(2 * v.tensor.nbytes for v in moved if not (pairs and is_large(v)))
    started = machine.queue + STARTED * machine.queued
    once = kernel_latency(kernel, context).seconds + machine.bandwidths.seconds(copied) + started
    return loop.turns * once
