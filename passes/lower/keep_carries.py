"""What a turn leaves takes the place of what it went on from: at once, or when nobody reads that any more.

stage 1: t2 = t0 * U          t0 is read before stage 2 alone:      for turn: t2 = t0 * U;  t0 = f(t2, t1)
stage 2: t5 = f(t2, t1)       t5 is t0

stage 1: t5 = f(t0 of the neighbour)      t5 needs its own tile:    for turn: t5 = f(t0);  t0 = t5
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.kernel_ir import Buffer, Instr, Let, Load, Nest, Stage, Store
from jstitch.passes.lower.written import Place


@dataclass(frozen=True)
class Memory:
    """Tiles of a carry: what a turn goes on from, and what it leaves."""

    before: Place
    after: Place


def go_on(stages: Sequence[Stage], memory: Sequence[Memory]) -> tuple[list[Stage], list[Memory]]:
    """The stages of a turn, with one tile for as many carries as can be; the others, to be copied behind."""
    found = list(stages)
    apart: list[Memory] = []
    for m in memory:
        if _may_be_one(found, m):
            found = [_with(stage, m.after.buffer, m.before.buffer) for stage in found]
        else:
            apart.append(m)
    return found, apart


def _may_be_one(stages: Sequence[Stage], m: Memory) -> bool:
    """Whether each element is written when nobody reads what it was."""
    nests = [nest for stage in stages for nest in stage.nests]
    stage_of = [n for n, stage in enumerate(stages) for _ in stage.nests]
    reads = [n for n, nest in enumerate(nests) if any(True for _ in _loads(nest, m.before.buffer))]
    writes = [n for n, nest in enumerate(nests) if any(True for _ in _stores(nest, m.after.buffer))]
    if not writes or any(True for nest in nests for _ in _loads(nest, m.after.buffer)):
        return False
    first = min(writes)
    for n in reads:
        if n in writes:
            if n != first or not _at_one_place(nests[n], m):
                return False
        elif stage_of[n] >= stage_of[first]:
            return False
    return True


def _at_one_place(nest: Nest, m: Memory) -> bool:
    """Whether the nest reads the one element that it writes, and before that."""
    stores, loads = list(_stores(nest, m.after.buffer)), list(_loads(nest, m.before.buffer))
    if len(stores) != 1 or stores[0] not in nest.body:
        return False
    (store,) = stores
    earlier = nest.body[: nest.body.index(store)]
    return all(i in earlier and i.offset == store.offset and i.depth == store.depth for i in loads)


def _loads(nest: Nest, buffer: Buffer) -> Iterator[Load]:
    return (i for i in nest.instructions if isinstance(i, Load) and i.buffer is buffer)


def _stores(nest: Nest, buffer: Buffer) -> Iterator[Store]:
    return (i for i in nest.instructions if isinstance(i, Store) and i.buffer is buffer)


def _with(stage: Stage, old: Buffer, new: Buffer) -> Stage:
    def instr(i: Instr) -> Instr:
        return i if isinstance(i, Let) or i.buffer is not old else replace(i, buffer=new)

    nests = (
        replace(n, body=tuple(map(instr, n.body)), after=tuple(map(instr, n.after))) for n in stage.nests
    )
    return replace(stage, nests=tuple(nests))
