"""Combine accumulators over the threads of a team: by shuffles in a warp, through shared memory across warps.

acc1 of 256 threads  ->  5 shuffles, one value of each warp to shared memory, barrier, 3 shuffles
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jstitch.codegen.cuda.deal import WARP
from jstitch.codegen.kernel_ir import OTHER, Combine
from jstitch.codegen.launch_ir import (
    Assign,
    Barrier,
    Body,
    If,
    Read,
    Scope,
    Shuffle,
    Statement,
    Unroll,
    Write,
)
from jstitch.codegen.launch_places import THREAD, Equal, Shared
from jstitch.ir.expr import Ref
from jstitch.ir.index import Index, Var, const, var
from jstitch.ir.types import DType

SLOT = 8  # bytes of one value in shared memory
FEW = 4  # parts that are combined in one step
TEAM_BARRIERS = 15  # of a CTA, numbered from 1: the hardware has 16, the first is the whole CTA's
SUMS = "a value of each warp is there"
PARTS = "every part of the sums is there"


@dataclass(frozen=True)
class Team:
    """`threads` (a power of two) that share a row; `teams` of them in a CTA."""

    threads: int
    teams: int

    @staticmethod
    def fitting(threads: int, block: int) -> Team:
        """Teams of `threads` in a CTA of `block`, or of more where there were more of them than barriers.

        A CTA may be larger than its teams need when its launch packs them with others that need it all.
        """
        while threads > WARP and block > threads * TEAM_BARRIERS:
            threads *= 2
        return Team(threads, max(1, block // threads))

    @property
    def block(self) -> int:
        return self.threads * self.teams

    @property
    def thread(self) -> Index:
        """A thread's number in its team, `t`."""
        return var(Var("t", self.threads))

    @property
    def number(self) -> Index:
        """The team's number in its CTA, `team`."""
        return var(Var("team", self.teams))

    def barrier(self, why: str) -> Body:
        """Wait for the team."""
        if self.threads == 1:
            return []
        if self.threads <= WARP:
            return [Barrier(Scope.WARP, why)]
        if self.teams == 1:
            return [Barrier(Scope.CTA, why)]
        return [Barrier(Scope.TEAM, why, self.threads)]


def exchange_bytes(combines: Sequence[Combine], team: Team) -> int:
    """Bytes of shared memory for one exchange."""
    if team.threads <= WARP:
        return 0
    return sum(len(c.names) for c in combines) * SLOT * (team.block // WARP)


def exchange(
    combines: Sequence[Combine],
    dtypes: Mapping[str, DType],
    team: Team,
    offset: int,
    thread: Index | None = None,
) -> Body:
    """Afterwards every thread of the team has the combined values.

    offset: of bytes of its own. thread: the thread's number in the team.
    """
    body = _shuffles(combines, min(team.threads, WARP) // 2)
    if team.threads <= WARP:
        return body
    warps = team.threads // WARP
    thread = team.thread if thread is None else thread
    mine = THREAD // WARP
    theirs = team.number * warps + thread % warps
    puts, gets = list[Statement](), list[Statement]()
    for k, name in enumerate(_names(combines)):
        dtype = dtypes[name]
        place, scale = Shared(const(offset + k * SLOT * (team.block // WARP))), SLOT // dtype.itemsize
        puts.append(Write(place, mine * scale, dtype, Ref(name)))
        gets.append(Read(name, place, theirs * scale, dtype))
    body.append(If(Equal(thread % WARP, const(0)), tuple(puts)))
    return [*body, *team.barrier(SUMS), *gets, *_shuffles(combines, warps // 2)]


def slices_bytes(combines: Sequence[Combine], team: Team, parts: int = 0) -> int:
    """Bytes of shared memory for one exchange of slices, or of so many parts."""
    parts = parts or team.teams
    again = team.block // parts * _groups(parts) if _groups(parts) > 1 else 0
    return len(_names(combines)) * SLOT * (team.block + again)


def exchange_slices(
    combines: Sequence[Combine], dtypes: Mapping[str, DType], team: Team, offset: int
) -> Body:
    """Teams that each made a slice of the same sums: afterwards every thread has its element's whole sum."""
    cta = Team(team.block, 1)
    wait = Barrier(Scope.CTA, "every team's slices are there")
    return _Parts(cta, THREAD, team.teams, [wait], offset).combined(combines, dtypes)


def exchange_parts(
    combines: Sequence[Combine], dtypes: Mapping[str, DType], team: Team, offset: int, parts: int
) -> Body:
    """Threads of a team that each made a part of the same sums: afterwards all of them have the whole.

    Those that make the same element's are threads / parts apart.
    """
    return _Parts(team, team.thread, parts, team.barrier(PARTS), offset).combined(combines, dtypes)


def _groups(parts: int) -> int:
    """In how many groups parts are combined first: about the root, so that there are few steps in all."""
    return 1 << (parts.bit_length() - 1) // 2 if parts > FEW else 1


def combining_steps(parts: int) -> int:
    """How many parts a thread combines with what it has, one after another."""
    groups = _groups(parts)
    return parts // groups - 1 + groups - 1


@dataclass(frozen=True)
class _Parts:
    """Where threads of a team leave parts, one for each `threads / parts` of them, and find others'.

    In two steps where parts are many: all threads combine those of their group, one of each group leaves what
    it has, and all threads combine the groups. Whoever has the same element has the same bits.
    """

    team: Team
    thread: Index
    parts: int
    barrier: Body
    offset: int

    @property
    def apart(self) -> int:
        return self.team.threads // self.parts

    def combined(self, combines: Sequence[Combine], dtypes: Mapping[str, DType]) -> Body:
        groups = _groups(self.parts)
        each, element = self.parts // groups, self.thread % self.apart
        group = self.thread // (self.apart * each)
        slots = SLOT * self.team.block * len(_names(combines))
        base = self.team.number * self.team.threads
        names = [(name, dtypes[name]) for name in _names(combines)]
        first = base + group * (each * self.apart) + element
        body = self._put(names, self.offset, self.team.block, THREAD)
        body += self.barrier
        body += self._get(combines, names, (self.offset, self.team.block), first, each)
        if groups == 1:
            return body
        room = (self.offset + slots, self.team.teams * groups * self.apart)
        base = self.team.number * (groups * self.apart)
        puts = self._put(names, *room, base + group * self.apart + element)
        leads = Equal(self.thread // self.apart % each, const(0))
        body += [If(leads, tuple(puts)), *self.barrier]
        return [*body, *self._get(combines, names, room, base + element, groups)]

    def _put(self, names: Sequence[tuple[str, DType]], offset: int, size: int, slot: Index) -> Body:
        return [
            Write(_slots(offset, k, size), slot, dtype, Ref(name)) for k, (name, dtype) in enumerate(names)
        ]

    def _get(
        self,
        combines: Sequence[Combine],
        names: Sequence[tuple[str, DType]],
        room: tuple[int, int],
        first: Index,
        count: int,
    ) -> Body:
        """So many, `apart` from one another, combined one after another."""
        gets, others = list[Statement](), list[Statement]()
        further = first + (var(Var("g", count - 1)) + 1) * self.apart
        for k, (name, dtype) in enumerate(names):
            place = _slots(room[0], k, room[1])
            gets.append(Read(name, place, first, dtype))
            others.append(Read(f"{name}{OTHER}", place, further, dtype))
        merges = [s for c in combines for s in merge(c)]
        return [*gets, Unroll("g", count - 1, (*others, *merges))]


def _slots(offset: int, k: int, size: int) -> Shared:
    """Those of the k-th value, of so many each."""
    return Shared(const(offset + k * SLOT * size))


def _shuffles(combines: Sequence[Combine], most: int) -> Body:
    body: Body = []
    while most:
        for c in combines:
            body += [Shuffle(f"{name}{OTHER}", name, most) for name in c.names]
            body += merge(c)
        most //= 2
    return body


def merge(c: Combine) -> Body:
    """names = names combined with names + OTHER."""
    body: Body = [Assign(i.name, i.value) for i in c.lets]
    if len(c.names) == 1:
        return [*body, Assign(c.names[0], c.results[0])]
    body += [Assign(f"{name}_new", result) for name, result in zip(c.names, c.results, strict=True)]
    return body + [Assign(name, Ref(f"{name}_new")) for name in c.names]


def _names(combines: Iterable[Combine]) -> list[str]:
    return [name for c in combines for name in c.names]
