"""The text of one row lane: rows dealt out to teams, stages in order, partial results at the end.

t = remainder_pos(thread(), 64)
team = quotient(thread(), 64)
for q in range(lo + team, hi, 4):            rows of a program that has partial results, or
r = p * 4 + team                             one row for each team
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.branches import indent
from jstitch.codegen.comments import stage_comments
from jstitch.codegen.cuda.deal import WARP, Mode
from jstitch.codegen.cuda.emit_ends import Ends
from jstitch.codegen.cuda.emit_nest import Names, NestText, guarded, suffix
from jstitch.codegen.cuda.exchange import Team, exchange, exchange_bytes, exchange_slices, slices_bytes
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
from jstitch.codegen.cuda.memory_map import lane_map
from jstitch.codegen.cuda.traffic import traffic
from jstitch.codegen.kernel_ir import Buffer, Combine, Lane, Load
from jstitch.codegen.memory_map import LaneMap
from jstitch.codegen.print_expr import print_expr
from jstitch.ir.expr import Const
from jstitch.ir.reason import Reason
from jstitch.ir.types import DType


@dataclass(frozen=True)
class LaneText:
    """Statements for one CTA; `p` is its number in the lane. programs: CTAs.

    traffic: bytes read and written by all of them.
    """

    lines: tuple[str, ...]
    programs: int
    block: int
    shared_bytes: int
    traffic: tuple[int, int]
    memory: LaneMap = field(compare=False)


def emit_lane(
    lane: Lane,
    pointer: Callable[[Buffer], str],
    read_only: Callable[[Buffer], bool],
    arena_bytes: int,
    block: int,
    tag: str,
) -> LaneText:
    """The lane's code for one CTA of at least `block` threads. Raises NoRoom."""
    return RowLane(lane, pointer, read_only, arena_bytes, block, tag).emit()


class RowLane:
    """A lane for one CTA. common: tiles that all rows read, and their places in the arena.

    tag: in the names that the text has besides the lane's.
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
        self.team = self.homes.team
        self.exchanged = 0  # arena bytes of exchanges so far
        self.sites = 0
        self.dtypes = {a.name: a.dtype for d in self.homes.nests for a in d.nest.accumulators}
        self.reserved = self._reserved()
        base = f"{self.reserved} + team * {self.homes.arena}" if self.team.teams > 1 else str(self.reserved)
        self.ends = Ends(self.homes, pointer, base, self.reserved)
        guarded = self.team.threads < WARP or self.sliced
        slices = self._exchange_slices if self.sliced else None
        self.names = Names(pointer, read_only, base, guarded, self._exchange_again, slices)

    def emit(self) -> LaneText:
        stages = self._stages()
        lines = [*self._threads(), *self._held(), *self._rows(stages), *self.ends.lines()]
        teams = self.team.teams
        programs = self.lane.programs if self.homes.carries else -(-self.rows // teams) * self.chunks
        shared = max(self.reserved + self.homes.arena * teams, self.ends.nbytes)
        if shared > self.limit:
            raise NoRoom(Reason("shared memory", TOO_LARGE, shared, self.limit))
        memory = lane_map(self.homes, self.reserved, self.ends.nbytes)
        return LaneText(tuple(lines), programs, self.team.block, shared, traffic(self.homes), memory)

    # -- shape ----------------------------------------------------------------------------------------

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
            and any(d.long for d in homes.nests)
            and homes.team.block >= 2 * WARP
            and self._count_chunks(WARP) > 1
        )

    def _count_chunks(self, threads: int) -> int:
        """CTAs for one row, where its elements have nothing to do with each other."""
        homes = self.homes
        sizes = {d.size for d in homes.nests}
        simple = all(d.mode in (Mode.SPREAD, Mode.KEEP) and not d.serial for d in homes.nests)
        if homes.carries or not simple or len(sizes) != 1 or homes.meets:
            return 1
        if any(isinstance(h, InArena | InParts) for h in (*homes.tiles.values(), *homes.kept.values())):
            return 1
        (size,) = sizes
        return -(-size // (threads * homes.widths[size]))

    def _threads(self) -> list[str]:
        if self.team.teams == 1:
            return ["t = thread()"]
        n = self.team.threads
        if n == 1:
            return ["t = 0", "team = thread()"]
        return [f"t = remainder_pos(thread(), {n})", f"team = quotient(thread(), {n})"]

    def _held(self) -> list[str]:
        """Registers of the lane; what is carried from row to row starts at its identity."""
        lines = []
        for buffer, home in self.homes.tiles.items():
            carry = self.homes.carries.get(buffer)
            size = carry.size if carry else buffer.type.size
            match home:
                case InRegisters(name):
                    count = self._count(size)
                    lines.append(f"{name} = registers_{suffix(buffer.type.dtype.compute)}({count})")
                    if carry or self.sliced:  # threads past the end read what they have not made
                        first = print_expr(carry.identity if carry else _zero(buffer.type.dtype.compute))
                        lines += [f"for k in unroll({count}):", f"    {name}[k] = {first}"]
                case Scalar(name) if carry:
                    lines.append(f"{name} = {print_expr(carry.identity)}")
                case InArena() if carry:
                    call, first = f"shared_store_{suffix(buffer.type.dtype)}", print_expr(carry.identity)
                    store = f"{call}({self._arena(home)}, e, {first})"
                    lines += [f"for e in range(t, {size}, {self.team.threads}):", f"    {store}"]
        for key, kept in self.homes.kept.items():
            match kept:
                case InRegisters(name):
                    count = self._count(self._size_of(key))
                case InParts(_, begin, InRegisters(name), end) if end > begin:
                    count = (end - begin) * self.homes.widths[self._size_of(key)]
                case _:
                    continue
            lines.append(f"{name} = registers_{suffix(key[0].type.dtype.compute)}({count})")
        if any(isinstance(self.homes.tiles.get(b), InArena) for b in self.homes.carries):
            lines += self.team.barrier
        return lines

    def _count(self, size: int) -> int:
        return (1 if self.chunks > 1 else self.homes.rounds(size)) * self.homes.widths[size]

    def _size_of(self, key: object) -> int:
        for d in self.homes.nests:
            for i in d.instructions:
                if isinstance(i, Load) and (i.buffer, d.offset(i.offset)) == key:
                    return d.size
        raise AssertionError("a kept load is a load of some nest")

    def _arena(self, home: InArena) -> str:
        return f"{self.names.base} + {home.offset}"

    # -- rows -----------------------------------------------------------------------------------------

    def _rows(self, body: list[str]) -> list[str]:
        rows, teams = self.rows, self.team.teams
        if self.lane.flat and self.homes.carries:
            return self._share(body)
        if rows == 1:
            first = ["chunk = p", *(["ok = team == 0"] if self.sliced else [])]
            return [*first, *body] if self.chunks > 1 else body
        if self.homes.carries:
            return self._program_rows(body)
        if self.chunks > 1:
            return [f"r = quotient(p, {self.chunks})", f"chunk = remainder_pos(p, {self.chunks})", *body]
        row = f"p * {teams} + team" if teams > 1 else "p"
        if self.names.guarded:
            return [f"q = {row}", f"ok = q < {rows}", f"r = clamp_index(q, 0, {rows - 1})", *body]
        return [f"r = {row}", *guarded("" if rows % teams == 0 else f"r < {rows}", body)]

    def _share(self, body: list[str]) -> list[str]:
        """A program's elements of a flat lane."""
        share, rows = self.lane.share, self.lane.rows
        ends = (f"clamp_index(p * {share}{more}, 0, {rows})" for more in ("", f" + {share}"))
        return [f"{name} = {end}" for name, end in zip(("lo", "hi"), ends, strict=True)] + body

    def _program_rows(self, body: list[str]) -> list[str]:
        """A program's rows, in turn; every team makes as many turns where a warp holds several."""
        lane, teams = self.lane, self.team.teams
        lo = f"lo = {share_begins('p', lane.rows, lane.programs)}"
        hi = f"hi = {share_begins('(p + 1)', lane.rows, lane.programs)}"
        if not self.names.guarded:
            start = "lo + team" if teams > 1 else "lo"
            return [lo, hi, f"for r in range({start}, hi, {teams}):", *indent(body)]
        row = ["q = first + team", "ok = q < hi", "r = clamp_index(q, lo, hi - 1)"]
        return [lo, hi, f"for first in range(lo, hi, {teams}):", *indent([*row, *body])]

    def _stages(self) -> list[str]:
        lines: list[str] = []
        meets = self.homes.meets
        stages = [s for s in self.lane.stages if not s.once]
        for stage, nests in zip(stages, self.homes.stages, strict=True):
            texts = [NestText(self.homes, d, self.names, self.chunks) for d in nests]
            lines += stage_comments(stage)
            for text in texts:
                lines += text.loops() + (self.team.barrier if meets and text is not texts[-1] else [])
            lines += self._exchange([c for text in texts for c in text.combines()])
            for text in texts:
                lines += text.finish()
            lines += self.team.barrier if meets else []
        if self.sites == 1 and not meets and self.homes.carries:
            lines += self.team.barrier if self.team.threads > WARP else []
        return lines

    def _exchange(self, combines: Sequence[Combine]) -> list[str]:
        if not combines:
            return []
        lines = exchange(combines, self.dtypes, self.team, self.exchanged)
        self.exchanged += exchange_bytes(combines, self.team)
        self.sites += 1
        return lines

    def _exchange_slices(self, combines: Sequence[Combine]) -> list[str]:
        lines = exchange_slices(combines, self.dtypes, self.team, self.exchanged)
        self.exchanged += slices_bytes(combines, self.team)
        return lines

    def _exchange_again(self, combines: Sequence[Combine]) -> list[str]:
        """Inside a loop: the next turn waits until this one's values are read."""
        return self._exchange(combines) + (self.team.barrier if self.team.threads > WARP else [])


def share_begins(number: str, rows: int, shares: int) -> str:
    """The first row of a share, quotient(number * rows, shares), by numbers that are no larger than `rows`.

    24000000 rows in 198 shares   ->   number * 121212 + quotient(number * 24, 198)
    """
    each, rest = divmod(rows, shares)
    whole = number if each == 1 else f"{number} * {each}"
    part = f"quotient({number} * {rest}, {shares})"
    return " + ".join([whole] * (each > 0) + [part] * (rest > 0))


def _zero(dtype: DType) -> Const:
    return Const(False if dtype is DType.BOOL else 0.0 if dtype.is_float else 0, dtype)
