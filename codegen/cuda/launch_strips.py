"""What a CTA does for a lane of strips: the strip's columns first, then the rows of a band.

band = quotient(p, 64)
strip = remainder_pos(p, 64)
column = clamp_index(t, 0, 63)                   one thread for each column and share of the bands
for i0 in range(team, 7, 4): ...                 combined over the bands, then over the shares
if ok: shared_store_f32(4096, column, v1_2)      what becomes of it
barrier()
for r in range(lo + team, hi, 16): ...           the rows, as those of any lane
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.comments import stage_notes
from jstitch.codegen.cuda.deal import ELEMENT, Dealt, Mode, deal, mentions
from jstitch.codegen.cuda.exchange import Team, exchange_slices, slices_bytes
from jstitch.codegen.cuda.homes import Common, Homes, InRegisters, NoRoom, find_homes
from jstitch.codegen.cuda.launch_instructions import Names
from jstitch.codegen.cuda.launch_lane import (
    FIRST,
    HIGH,
    LOW,
    LaneCode,
    RowLane,
    row_of,
    share_begins,
)
from jstitch.codegen.cuda.launch_nest import NestCode
from jstitch.codegen.cuda.traffic import traffic
from jstitch.codegen.cuda.under import under
from jstitch.codegen.kernel_ir import (
    ROW,
    STRIP,
    Buffer,
    Combine,
    Instr,
    Let,
    Load,
    Space,
    Store,
    StripLane,
)
from jstitch.codegen.launch_ir import Barrier, Body, Comment, Flag, For, Integer, Registers, Scope, Unroll
from jstitch.codegen.launch_places import FAR, PROGRAM, THREAD, Equal
from jstitch.codegen.rename import rename_nest
from jstitch.ir.index import Var, const, var
from jstitch.ir.types import DType

BAND = var(Var("band", FAR))
"""The program's band of rows."""
TOGETHER = 4  # rows of a team
LONG = 40  # instructions of an element above which a row has loads enough, and registers would not last


def launch_strips(
    lane: StripLane,
    pointer: Callable[[Buffer], str],
    read_only: Callable[[Buffer], bool],
    arena_bytes: int,
    block: int,
    tag: str,
) -> LaneCode:
    """The lane's code for one CTA of at least `block` threads. Raises NoRoom."""
    columns = _Columns(lane, pointer, read_only, block, f"{tag}c_") if lane.before else None
    return _Rows(_after_columns(lane), columns, pointer, read_only, arena_bytes, block, tag).code()


def strip_homes(lane: StripLane, arena_bytes: int, block: int) -> tuple[Homes | None, Homes]:
    """Where threads keep values: about the strip's columns, if any, and about the rows. Raises NoRoom."""
    columns = _Columns(lane, str, lambda _: True, block, "") if lane.before else None
    rows = find_homes(_after_columns(lane), arena_bytes, block, columns.common if columns else None)
    return columns.homes() if columns else None, rows


def _after_columns(lane: StripLane) -> StripLane:
    return replace(lane, stages=lane.stages[lane.before :], before=0)


class _ColumnNest(NestCode):
    """A nest of a strip's columns: one element for each thread of a team, whose sums the teams share."""

    element = "column"

    def _rounds(self) -> Body:
        if self.dealt.mode is Mode.KEEP:
            assert self.names.slices is not None
            return self._slice(self.names.slices)
        return super()._rounds()

    def _scalar(self, i: Instr) -> Body:
        memory = isinstance(i, Store) and i.buffer.space is not Space.ARENA
        return under(Equal(BAND, const(0)) if memory else None, super()._scalar(i))


@dataclass(eq=False)
class _Columns:
    """What is done about the strip's columns before any row. nbytes: of the arena, from 0 on.

    tag: in all names, which are no names of the rows.
    """

    lane: StripLane
    pointer: Callable[[Buffer], str]
    read_only: Callable[[Buffer], bool]
    block: int
    tag: str
    nbytes: int = 0
    common: dict[Buffer, Common] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.team = Team.fitting(1 << (self.lane.columns - 1).bit_length(), self.block)
        stages = self.lane.stages[: self.lane.before]
        self.nests = [[deal(rename_nest(n, self.tag)) for n in s.nests] for s in stages]
        self.nbytes = sum(slices_bytes(d.combines, self.team) for stage in self.nests for d in stage)
        for b in self.lane.common:
            self.common[b] = Common(self.nbytes)
            self.nbytes += -(-b.type.nbytes // 16) * 16

    def body(self) -> Body:
        threads, homes = self.team.threads, self.homes()
        body: Body = [Integer("t", THREAD % threads), Integer("team", THREAD // threads)]
        for b, h in homes.tiles.items():
            if isinstance(h, InRegisters):
                body.append(Registers(h.name, b.type.dtype.compute, 1))
        body += [Integer("chunk", const(0)), Flag("ok", Equal(self.team.number, const(0)))]
        slices = _Slices(self.team)
        names = Names(self.pointer, self.read_only, const(0), True, slices, slices)
        for stage, nests in zip(self.lane.stages, homes.stages, strict=False):
            body += map(Comment, stage_notes(stage))
            for d in nests:
                slices.dtypes = {a.name: a.dtype for a in d.nest.accumulators}
                body += _ColumnNest(homes, d, names, 2).loops()
        return [*body, Barrier(Scope.CTA, "what all rows read of the columns is there")]

    def homes(self) -> Homes:
        size = self.lane.columns
        homes = Homes(self.lane, self.nests, {}, {size: 1}, self.team, {**self.common}, tag=self.tag)
        homes.parted = False
        homes.unrolled.add(size)
        for d in homes.nests:
            for i in d.instructions:
                if isinstance(i, Let) or i.buffer.space is not Space.ARENA:
                    continue
                if d.offset(i.offset) != var(Var(ELEMENT, size)):
                    raise NoRoom(f"{i.buffer.name} passes values between threads of a strip")
                if i.buffer not in homes.tiles:
                    homes.tiles[i.buffer] = InRegisters(homes.name())
        return homes


@dataclass(eq=False)
class _Slices:
    """Exchanges of sums that teams share, each in bytes of its own."""

    team: Team
    offset: int = 0
    dtypes: dict[str, DType] = field(default_factory=dict)

    def __call__(self, combines: Sequence[Combine]) -> Body:
        body = exchange_slices(combines, self.dtypes, self.team, self.offset)
        self.offset += slices_bytes(combines, self.team)
        return body


class _Rows(RowLane):
    """The rows of a band, in turn."""

    lane: StripLane

    def __init__(
        self,
        lane: StripLane,
        columns: _Columns | None,
        pointer: Callable[[Buffer], str],
        read_only: Callable[[Buffer], bool],
        limit: int,
        block: int,
        tag: str,
    ) -> None:
        self.columns = columns
        super().__init__(lane, pointer, read_only, limit, block, tag, columns.common if columns else None)
        self.names = replace(self.names, guarded=True)

    def code(self) -> LaneCode:
        made = super().code()
        strips = self.lane.strips
        body: Body = [Integer("band", PROGRAM // strips), Integer(STRIP, PROGRAM % strips)]
        body += self.columns.body() if self.columns else []
        return LaneCode(
            (*body, *made.body),
            self.lane.programs,
            made.block,
            max(made.shared_bytes, self.columns.nbytes if self.columns else 0),
            self._traffic(),
            made.memory,
        )

    def _count_chunks(self, threads: int) -> int:
        return 1

    def _rows(self, body: Body) -> Body:
        """Several rows of a team in each turn, so that their loads are in flight together."""
        rows, bands, teams = self.lane.rows, self.lane.bands, self.team.teams
        long = sum(len(d.instructions) for d in self.homes.nests) > LONG
        many = min(1 if long else TOGETHER, -(-rows // (bands * teams)))
        number = FIRST + var(Var("k_row", many)) * teams + self.team.number
        turn = *row_of(number, LOW, HIGH), *body
        return [
            Integer("lo", share_begins(BAND, rows, bands)),
            Integer("hi", share_begins(BAND + 1, rows, bands)),
            For("first", LOW, HIGH, teams * many, (Unroll("k_row", many, turn),) if many > 1 else turn),
        ]

    def _traffic(self) -> tuple[int, int]:
        """That of whole rows; every band reads all partial results of its strips."""
        lane = self.lane
        read, written = traffic(self.homes)
        again = written_once = 0
        for d in (d for stage in (self.columns.nests if self.columns else ()) for d in stage):
            for i in d.instructions:
                if isinstance(i, Let) or i.buffer.space is Space.ARENA:
                    continue
                whole = i.buffer.type.nbytes
                if isinstance(i, Load):
                    again += lane.bands * min(whole, self._elements(d) * i.buffer.type.dtype.itemsize)
                else:
                    written_once += whole
        for d in self.homes.nests:
            for i in d.instructions:
                if not isinstance(i, Let) and i.buffer not in self.homes.tiles and mentions(i.offset, ROW):
                    more = (lane.strips - 1) * lane.rows * lane.columns * i.buffer.type.dtype.itemsize
                    read, written = (read + more, written) if isinstance(i, Load) else (read, written + more)
        return read + again, written + written_once

    def _elements(self, d: Dealt) -> int:
        inner = d.inner[0].hi if d.inner else 1
        return self.lane.strips * self.lane.columns * inner
