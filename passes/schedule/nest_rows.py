"""Count rows by two loops, where their indices divide by a number of rows.

792 rows, r % 88        ->        for q in [0, 9), j in [0, 88): row q * 88 + j, place j

Only of short rows: vectors are made of many of them, whose elements would be gathered otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from jstitch.codegen.cpu.row_periods import period_of
from jstitch.codegen.kernel_ir import ROW, Kernel, Lane, Nest
from jstitch.codegen.map_kernel import map_lanes

LEAST = 16  # rows of a period: a vector
LONGEST = 16  # elements of a row: longer ones fill vectors by themselves


def nest_rows(kernel: Kernel) -> Kernel:
    """The kernel with the periods of its lanes."""
    return map_lanes(kernel, _lane)


def _lane(lane: Lane) -> Lane:
    if lane.flat or lane.step > 1 or lane.multiplies or not 1 < _longest(lane) <= LONGEST:
        return lane
    if any(loop is not None for loop, _ in lane.loops):
        return lane
    period = period_of(lane)
    return replace(lane, period=period) if period >= LEAST else lane


def _longest(lane: Lane) -> int:
    """Most elements that a nest has of a row."""
    nests = (nest for stage in lane.stages for nest in stage.nests if not stage.once)
    return max((_points(nest) for nest in nests), default=0)


def _points(nest: Nest) -> int:
    return prod(loop.hi - loop.lo for loop in nest.loops if loop.var.name != ROW)
