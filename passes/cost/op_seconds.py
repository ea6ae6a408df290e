"""The analytic model of one op under one schedule, where nobody has measured it (FS-2018 section 4.4).

exp of [4096, 1024], Row(0, 64)       64 blocks on 2 cores: its bytes, or its arithmetic, on both
sum of it over dim 0, Column(0, 8)    8 blocks, each of 128 columns: 512 bytes of memory at a time
"""

from __future__ import annotations

from jstitch.ir.graph import Op
from jstitch.ir.schedule import SchedType, Schedule, blocks, coordinates
from jstitch.passes.base.machine import Machine, busy_share
from jstitch.passes.cost.cost_model import work

RUN = 512  # bytes in a row that memory moves as fast as any
START = 5e-8  # seconds of a block
WORST = 8.0  # how many times as long short runs take


def op_seconds(op: Op, schedule: Schedule, machine: Machine) -> float:
    """Seconds of the op alone, all cores together."""
    values = {*op.operands, *op.results}
    nbytes = sum(v.tensor.nbytes for v in values)
    count = blocks(op.results[0].shape, schedule)
    memory = nbytes / machine.bandwidth(nbytes) * _scattered(op, schedule)
    starts = START * -(-count // machine.units)
    return max(memory, work(op, machine) * machine.lane_cycle) / busy_share(count, machine.units) + starts


def _scattered(op: Op, schedule: Schedule) -> float:
    """How much longer memory takes for the short runs of few columns."""
    pairs = coordinates(op.results[0].shape, schedule)
    if schedule.sched_type is not SchedType.COLUMN or not pairs:
        return 1.0
    run = pairs[-1][1] * op.results[0].tensor.dtype.itemsize
    return min(WORST, max(1.0, RUN / run))
