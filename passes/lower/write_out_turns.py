"""A nest whose innermost turns take a few elements, where one of each would have divided indices.

i in 0..512, reads x[i // 2]    ->    i in 0..256, reads x[i], makes the elements i * 2 and i * 2 + 1
"""

from __future__ import annotations

from collections.abc import Mapping

from jstitch.codegen.kernel_ir import Nest
from jstitch.passes.lower.divide_loops import loop_name, run_name, together_of
from jstitch.passes.lower.write_nest import NestWriter

MOST_WRITTEN = 256  # instructions of a turn


def write_out_turns(writer: NestWriter, nest: Nest) -> list[Nest]:
    """The nest that the writer wrote, or what replaces it: one more nest makes what fills no turn."""
    d = next(reversed(writer.inner), None)
    if d is None or any(n.roots for n in writer.nodes):
        return [nest]
    name, run = loop_name(d), writer.cut_runs.get(d, 0)
    loop = next((loop for loop in writer.loops[-1:] if loop.var.name in (name, run_name(d))), None)
    if loop is None:
        return [nest]
    count = together_of(writer.builder.divided, loop.var.name, loop.hi)
    if count == 1 or count * len(nest.body) > MOST_WRITTEN or run % count:
        return [nest]
    if run:
        return [_again(writer, writer.ranges, (d, count)).write()]
    lo, hi = writer.ranges.get(name, (0, loop.hi))
    last = hi - (hi - lo) % count
    found = [_again(writer, {**writer.ranges, name: (lo, last)}, (d, count))]
    if last < hi:
        found.append(_again(writer, {**writer.ranges, name: (last, hi)}, None))
    return [again.write() for again in found]


def _again(
    writer: NestWriter, ranges: Mapping[str, tuple[int, int]], together: tuple[int, int] | None
) -> NestWriter:
    loops = writer.unrolled, writer.collapse, ranges, writer.cut_runs
    return NestWriter(writer.lane, writer.nodes, *loops, together)
