"""Remote fusion: patterns that are nowhere adjacent share one kernel (FS-2021 section 5.2, Figure 5).

    p0 = update(.., g0)   p1 = update(.., g1)   ..        ->     one kernel, a call and its phases for all

The paper puts a virtual op before everything and reduces its consumers' patterns as it does for any op. Here
its consumers are the chosen patterns, in the order in which they run: each joins one of the last few packs if
that scores more than both apart, else begins a pack. The plan stays acyclic as in the beam search: every node
has a time, every edge leads forward in time, and a pack needs a time after all that it reads and before its
readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.ir.node_graph import topological_order
from jstitch.passes.explore.explore_patterns import Candidate, candidate
from jstitch.passes.explore.score_pattern import Scorer, Sketch
from jstitch.passes.explore.tabulate_frame import FrameTable
from jstitch.passes.fuse.pack_patterns import SMALL

OPEN = 3  # packs that a pattern may join


@dataclass(eq=False)
class _Pack:
    sketch: Sketch
    found: Candidate
    parts: int = 1


def fuse_remote(scorer: Scorer, plan: Sequence[Candidate]) -> list[Candidate]:
    """The plan with patterns packed. Their order in time is that of an acyclic contracted frame."""
    time = run_times(scorer.table, plan)
    assert time is not None, "patterns wait for each other"
    packs: list[_Pack] = []
    waiting: list[_Pack] = []
    for found in sorted(plan, key=lambda c: time[c.members[0]]):
        pack = _Pack(scorer.sketch(found.members), found)
        if scorer.kernel_seconds(pack.sketch) >= SMALL:
            packs.append(pack)
            continue
        joined = _join(scorer, waiting, pack, time)
        if joined is None:
            waiting.append(pack)
            if len(waiting) > OPEN:
                packs.append(waiting.pop(0))
    return [pack.found for pack in (*packs, *waiting)]


def _join(scorer: Scorer, packs: list[_Pack], new: _Pack, time: list[float]) -> _Pack | None:
    """The pack that took the new one in, or None."""
    for pack in reversed(packs):
        slot = _slot(pack.found, new.found, time)
        if slot is None:
            continue
        union = scorer.joined(pack.sketch, new.sketch)
        if len(union.reads) + len(union.leaves) > scorer.table.profile.max_buffers:
            continue
        if union.seconds > pack.sketch.seconds + new.sketch.seconds:
            pack.sketch, pack.parts = union, pack.parts + 1
            pack.found = candidate(scorer, union, "fuse_remote")
            for member in pack.found.members:
                time[member] = slot
            return pack
    return None


def _slot(a: Candidate, b: Candidate, time: Sequence[float]) -> float | None:
    """A time at which both can run; None, too, if one reads from the other."""
    if not set(a.members).isdisjoint(b.before) or not set(b.members).isdisjoint(a.before):
        return None
    low = max((time[p] for p in (*a.before, *b.before)), default=-1.0)
    high = min((time[p] for p in (*a.after, *b.after)), default=2.0 * len(time))
    middle = (low + high) / 2
    return middle if low < middle < high else None


def run_times(table: FrameTable, plan: Sequence[Candidate]) -> list[float] | None:
    """When each op runs if every pattern's run together, as early in table order as can be; None: never."""
    node = list(range(len(table.ops)))
    for k, found in enumerate(plan):
        for member in found.members:
            node[member] = len(table.ops) + k
    after: dict[int, set[int]] = {n: set() for n in node}
    first: dict[int, int] = {}
    for place, n in enumerate(node):
        first.setdefault(n, place)
        after[n].update(node[u.op] for v in table.results[place] for u in table.users[v])
        after[n].discard(n)
    waits = ((n, m) for n, users in after.items() for m in users)
    order = topological_order(first, waits, first.__getitem__)
    if order is None:
        return None
    rank = {n: float(k) for k, n in enumerate(order)}
    return [rank[n] for n in node]
