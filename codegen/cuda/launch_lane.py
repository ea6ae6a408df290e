"""What a CTA does for a row lane: rows dealt out to teams, stages in order, partial results at the end.

t = remainder_pos(thread(), 64)
team = quotient(thread(), 64)
for q in range(lo + team, hi, 4):            rows of a program that has partial results, or
r = p * 4 + team                             one row for each team
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.comments import stage_notes
from jstitch.codegen.cuda.ask_ahead import ask_ahead
from jstitch.codegen.cuda.deal import WARP, Dealt, Mode
from jstitch.codegen.cuda.exchange import (
    Team,
    exchange,
    exchange_bytes,
    exchange_parts,
    exchange_slices,
    slices_bytes,
)
from jstitch.codegen.cuda.homes import (
    TOO_LARGE,
    Common,
    InArena,
    InParts,
    InRegisters,
    NoRoom,
    Scalar,
    find_homes,
)
from jstitch.codegen.cuda.launch_ends import Ends
from jstitch.codegen.cuda.launch_instructions import Names
from jstitch.codegen.cuda.launch_nest import NestCode
from jstitch.codegen.cuda.memory_map import lane_map
from jstitch.codegen.cuda.traffic import traffic
from jstitch.codegen.cuda.under import under
from jstitch.codegen.in_turns import in_turns
from jstitch.codegen.kernel_ir import Buffer, Combine, Lane, Load, Stage, StripLane
from jstitch.codegen.launch_ir import (
    Assign,
    Body,
    Comment,
    Flag,
    For,
    Integer,
    Put,
    Registers,
    Statement,
    Unroll,
    Write,
)
from jstitch.codegen.launch_places import FAR, PROGRAM, THREAD, Equal, Less, Shared
from jstitch.codegen.launch_turns import launch_turns
from jstitch.codegen.memory_map import LaneMap
from jstitch.ir.expr import Const
from jstitch.ir.index import Index, Var, const, var
from jstitch.ir.reason import Reason
from jstitch.ir.types import DType

TURN_ENDS = "the next turn overwrites what this one exchanged"
STAGE_ENDS = "the next stage reads other threads' elements"
NEST_ENDS = "the next nest reads other threads' elements"
LOW, HIGH, FIRST = (var(Var(name, FAR)) for name in ("lo", "hi", "first"))
"""A program's rows, and the first that its teams work on."""


@dataclass(frozen=True)
class LaneCode:
    """Statements for one CTA; `p` is its number in the lane. programs: CTAs.

    traffic: bytes read and written by all of them.
    """

    body: tuple[Statement, ...]
    programs: int
    block: int
    shared_bytes: int
    traffic: tuple[int, int]
    memory: LaneMap = field(compare=False)


def launch_lane(
    lane: Lane,
    pointer: Callable[[Buffer], str],
    read_only: Callable[[Buffer], bool],
    arena_bytes: int,
    block: int,
    tag: str,
) -> LaneCode:
    """The lane's code for one CTA of at least `block` threads. Raises NoRoom."""
    return RowLane(lane, pointer, read_only, arena_bytes, block, tag).code()


class RowLane:
    """A lane for one CTA. common: tiles that all rows read, and their places in the arena.

    tag: in the names that the code has besides the lane's.
    """

    def __init__(
        self,
        lane: Lane,
        pointer: Callable[[Buffer], str],
        read_only: Callable[[Buffer], bool],
        limit: int,
        block: int,
        tag: str,
        common: Mapping[Buffer, Common] | None = None,
    ) -> None:
        self.lane, self.limit, self.pointer = lane, limit, pointer
        self.rows = 1 if lane.flat else lane.rows
        self.homes = find_homes(lane, limit, block, common, tag)
        self.chunks = self._count_chunks(self.homes.team.block)
        if self.chunks > 1:
            self.homes.team = Team(self.homes.team.block, 1)
        self.sliced = self._is_sliced()
        if self.sliced:
            self.chunks = self._count_chunks(WARP)
            self.homes.team = Team(WARP, self.homes.team.block // WARP)
        self.homes.parted = self.chunks == 1 and not self.sliced and not isinstance(lane, StripLane)
        self.team = self.homes.team
        self.exchanged = 0  # arena bytes of exchanges so far
        self.sites = 0
        self.dtypes = {a.name: a.dtype for d in self.homes.nests for a in d.nest.accumulators}
        self.reserved = self._reserved()
        base = self.team.number * self.homes.arena + self.reserved
        self.ends = Ends(self.homes, pointer, base, self.reserved)
        guarded = self.team.threads < WARP or self.sliced
        slices = self._exchange_slices if self.sliced else None
        again, parts = self._exchange_again, self._exchange_parts
        self.names = Names(pointer, read_only, base, guarded, again, slices, parts)

    def code(self) -> LaneCode:
        stages = self._stages()
        body = [*self._threads(), *self._held(), *self._rows(stages), *self.ends.body()]
        teams = self.team.teams
        programs = self.lane.programs if self.in_turn else -(-self.rows // teams) * self.chunks
        shared = max(self.reserved + self.homes.arena * teams, self.ends.nbytes)
        if shared > self.limit:
            raise NoRoom(Reason("shared memory", TOO_LARGE, shared, self.limit))
        memory = lane_map(self.homes, self.reserved, self.ends.nbytes)
        return LaneCode(tuple(body), programs, self.team.block, shared, traffic(self.homes), memory)

    # -- shape ----------------------------------------------------------------------------------------

    @property
    def in_turn(self) -> bool:
        """Whether a program's teams take several rows, one after another."""
        return bool(self.homes.carries) or self.lane.counted

    def _reserved(self) -> int:
        """Arena bytes of all exchanges: each has its own, so that one barrier is enough for each."""
        total = self.homes.reserved
        if self.sliced:
            total += sum(slices_bytes(d.combines, self.team) for d in self.homes.nests if d.long)
        return -(-total // 16) * 16

    def _is_sliced(self) -> bool:
        """Whether teams share the long sums of a row's elements, which alone would be too few threads."""
        homes = self.homes
        return (
            self.rows == 1
            and not self.lane.flat
            and all(stage.turn is None for stage in self.lane.stages)
            and any(d.long for d in homes.nests)
            and homes.team.block >= 2 * WARP
            and self._count_chunks(WARP) > 1
        )

    def _count_chunks(self, threads: int) -> int:
        """CTAs for one row, where its elements have nothing to do with each other."""
        homes = self.homes
        if self.lane.exact or self.lane.counted:
            return 1
        sizes = {d.size for d in homes.nests}
        simple = all(d.mode in (Mode.SPREAD, Mode.KEEP) and not d.serial for d in homes.nests)
        if homes.carries or not simple or len(sizes) != 1 or homes.meets:
            return 1
        if any(isinstance(h, InArena | InParts) for h in (*homes.tiles.values(), *homes.kept.values())):
            return 1
        (size,) = sizes
        return -(-size // (threads * homes.widths[size]))

    def _threads(self) -> Body:
        if self.team.teams == 1:
            return [Integer("t", THREAD)]
        n = self.team.threads
        return [Integer("t", THREAD % n), Integer("team", THREAD // n)]

    def _held(self) -> Body:
        """Registers of the lane; what is carried from row to row starts at its identity."""
        body: Body = []
        for buffer, home in self.homes.tiles.items():
            carry = self.homes.carries.get(buffer)
            size = carry.size if carry else buffer.type.size
            match home:
                case InRegisters(name):
                    count, dtype = self._count(size), buffer.type.dtype.compute
                    body.append(Registers(name, dtype, count))
                    if carry or self.sliced:  # threads past the end read what they have not made
                        put = Put(name, var(Var("k", count)), carry.identity if carry else _zero(dtype))
                        body.append(Unroll("k", count, (put,)))
                case Scalar(name) if carry:
                    body.append(Assign(name, carry.identity))
                case InArena(offset, _) if carry:
                    place, e = Shared(self.names.base + offset), var(Var("e", size))
                    put_ = Write(place, e, buffer.type.dtype, carry.identity)
                    body.append(For("e", self.team.thread, const(size), self.team.threads, (put_,)))
        for key, kept in self.homes.kept.items():
            match kept:
                case InRegisters(name):
                    count = self._count(self._size_of(key))
                case InParts(_, begin, InRegisters(name), end) if end > begin:
                    count = (end - begin) * self.homes.widths[self._size_of(key)]
                case _:
                    continue
            body.append(Registers(name, key[0].type.dtype.compute, count))
        if any(isinstance(self.homes.tiles.get(b), InArena) for b in self.homes.carries):
            body += self.team.barrier("what is carried has its first values")
        return body

    def _count(self, size: int) -> int:
        return (1 if self.chunks > 1 else self.homes.rounds(size)) * self.homes.widths[size]

    def _size_of(self, key: object) -> int:
        for d in self.homes.nests:
            for i in d.instructions:
                if isinstance(i, Load) and (i.buffer, d.offset(i.offset)) == key:
                    return d.size
        raise AssertionError("a kept load is a load of some nest")

    # -- rows -----------------------------------------------------------------------------------------

    def _rows(self, body: Body) -> Body:
        rows, team = self.rows, self.team
        if self.lane.flat and self.homes.carries:
            return self._share(body)
        if rows == 1:
            ok = [Flag("ok", Equal(team.number, const(0)))] if self.sliced else []
            return [Integer("chunk", PROGRAM), *ok, *body] if self.chunks > 1 else body
        if self.in_turn:
            return self._program_rows(body)
        if self.chunks > 1:
            row = Integer("r", PROGRAM // self.chunks), Integer("chunk", PROGRAM % self.chunks)
            return [*row, *body]
        number = PROGRAM * team.teams + team.number
        if self.names.guarded:
            return [*row_of(number, const(0), const(rows)), *body]
        past = None if rows % team.teams == 0 else Less(var(Var("r", FAR)), const(rows))
        return [Integer("r", number), *under(past, body)]

    def _share(self, body: Body) -> Body:
        """A program's elements of a flat lane."""
        share, within = self.lane.share, (const(0), const(self.lane.rows))
        low = Integer("lo", PROGRAM * share, within)
        return [low, Integer("hi", (PROGRAM + 1) * share, within), *body]

    def _program_rows(self, body: Body) -> Body:
        """A program's rows, in turn; every team makes as many turns where a warp holds several."""
        lane, team = self.lane, self.team
        bounds = (
            Integer("lo", share_begins(PROGRAM, lane.rows, lane.programs)),
            Integer("hi", share_begins(PROGRAM + 1, lane.rows, lane.programs)),
        )
        if not self.names.guarded:
            return [*bounds, For("r", LOW + team.number, HIGH, team.teams, tuple(body))]
        turn = *row_of(FIRST + team.number, LOW, HIGH), *body
        return [*bounds, For("first", LOW, HIGH, team.teams, turn)]

    def _stages(self) -> Body:
        body: Body = []
        meets = self.homes.meets
        stages = [s for s in self.lane.stages if not s.once]
        for loop, numbers in in_turns([stage.turn for stage in stages]):
            before = self.sites
            inside = [line for n in numbers for line in self._stage(stages[n], self.homes.stages[n])]
            if loop is None:
                body += inside
                continue
            if self.sites == before + 1 and not meets:
                inside += self._turn_ends()
            body += launch_turns(loop, inside, None, self.lane.step)
        if self.sites == 1 and not meets and self.in_turn:
            body += self._turn_ends()
        return body

    def _stage(self, stage: Stage, nests: Sequence[Dealt]) -> Body:
        meets = self.homes.meets
        codes = [NestCode(self.homes, d, self.names, self.chunks) for d in nests]
        body: Body = [Comment(note) for note in stage_notes(stage)]
        for code in codes:
            body += code.loops()
            body += self.team.barrier(NEST_ENDS) if meets and code is not codes[-1] else []
        if stage.prefetches:
            body += ask_ahead(stage.prefetches, self.pointer, self.team, HIGH)
        body += self._exchange([c for code in codes for c in code.combines()])
        for code in codes:
            body += code.finish()
        return body + (self.team.barrier(STAGE_ENDS) if meets else [])

    def _exchange(self, combines: Sequence[Combine]) -> Body:
        if not combines:
            return []
        body = exchange(combines, self.dtypes, self.team, self.exchanged)
        self.exchanged += exchange_bytes(combines, self.team)
        self.sites += 1
        return body

    def _exchange_slices(self, combines: Sequence[Combine]) -> Body:
        body = exchange_slices(combines, self.dtypes, self.team, self.exchanged)
        self.exchanged += slices_bytes(combines, self.team)
        return body

    def _exchange_parts(self, combines: Sequence[Combine], parts: int) -> Body:
        body = exchange_parts(combines, self.dtypes, self.team, self.exchanged, parts)
        self.exchanged += slices_bytes(combines, self.team, parts)
        return body + (self._turn_ends() if self.in_turn else [])

    def _exchange_again(self, combines: Sequence[Combine]) -> Body:
        """Inside a loop: the next turn waits until this one's values are read."""
        return self._exchange(combines) + self._turn_ends()

    def _turn_ends(self) -> Body:
        return self.team.barrier(TURN_ENDS) if self.team.threads > WARP else []


def share_begins(number: Index, rows: int, shares: int) -> Index:
    """The first row of a share, number * rows // shares, by numbers that are no larger than `rows`.

    24000000 rows in 198 shares   ->   number * 121212 + number * 24 // 198
    """
    each, rest = divmod(rows, shares)
    return number * each + number * rest // shares


def row_of(number: Index, low: Index, high: Index) -> Body:
    """A team's row, low <= r < high; one that has none is not ok, and works on the nearest."""
    q = var(Var("q", FAR))
    within = low, high - 1
    return [Integer("q", number), Flag("ok", Less(q, high)), Integer("r", q, within)]


def _zero(dtype: DType) -> Const:
    return Const(False if dtype is DType.BOOL else 0.0 if dtype.is_float else 0, dtype)
