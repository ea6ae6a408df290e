"""A nest whose turns take a few elements, where one of each would have divided indices.

i in 0..512, reads x[i // 2]    ->    i in 0..256, reads x[i], makes the elements i * 2 and i * 2 + 1
"""

from __future__ import annotations

from collections.abc import Iterator

from jstitch.codegen.kernel_ir import Nest
from jstitch.passes.lower.divide_loops import MOST_TOGETHER, loop_name, run_name, together_of
from jstitch.passes.lower.write_nest import NestWriter

MOST_WRITTEN = 256  # instructions of a turn


def write_out_turns(writer: NestWriter, nest: Nest) -> list[Nest]:
    """The nest that the writer wrote, or what replaces it: one more nest makes what fills no turn.

    Of several loops whose index is divided the innermost one.
    """
    if -1 in writer.inner and any(n.roots for n in writer.nodes):
        return [nest]  # whose sums are of some of what the one loop over a row passes
    loops = {loop.var.name: loop for loop in writer.loops}
    for d in reversed(list(writer.inner)):
        run = writer.cut_runs.get(d, 0)
        loop = loops.get(run_name(d) if run else loop_name(d))
        count = 1 if loop is None else together_of(writer.builder.divided, loop.var.name, loop.hi)
        if 1 < count < run <= MOST_TOGETHER:
            count = run
        if loop is not None and count > 1 and count * len(nest.body) <= MOST_WRITTEN and run % count == 0:
            return [again.write() for again in _together(writer, d, count, loop.hi)]
    return [nest]


def _together(writer: NestWriter, d: int, count: int, size: int) -> Iterator[NestWriter]:
    """Turns of so many elements of the dimension; what is left has turns of one."""
    if d in writer.cut_runs:
        yield writer.again(writer.ranges, {d: count})
        return
    name = loop_name(d)
    lo, hi = writer.ranges.get(name, (0, size))
    last = hi - (hi - lo) % count
    yield writer.again({**writer.ranges, name: (lo, last)}, {d: count})
    if last < hi:
        yield writer.again({**writer.ranges, name: (last, hi)}, None)
