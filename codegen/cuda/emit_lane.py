"""The text of one row lane: rows dealt out to teams, stages in order, partial results at the end.

t = remainder_pos(thread(), 64)
team = quotient(thread(), 64)
for q in range(lo + team, hi, 4):            rows of a program that has partial results, or
r = p * 4 + team                             one row for each team
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jstitch.codegen.cuda.deal import WARP, Mode
from jstitch.codegen.cuda.emit_nest import Names, NestText, guarded, indent, suffix
from jstitch.codegen.cuda.exchange import SLOT, Team, exchange, exchange_bytes, merge
from jstitch.codegen.cuda.homes import Carry, InArena, InRegisters, NoRoom, Scalar, find_homes
from jstitch.codegen.cuda.traffic import traffic
from jstitch.codegen.kernel_ir import OTHER, Buffer, Combine, Lane, Load


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


def emit_lane(
    lane: Lane,
    pointer: Callable[[Buffer], str],
    read_only: Callable[[Buffer], bool],
    arena_bytes: int,
    block: int,
) -> LaneText:
    """The lane's code for one CTA of at least `block` threads. Raises NoRoom."""
    return _Lane(lane, pointer, read_only, arena_bytes, block).emit()


class _Lane:
    def __init__(
        self,
        lane: Lane,
        pointer: Callable[[Buffer], str],
        read_only: Callable[[Buffer], bool],
        limit: int,
        block: int,
    ) -> None:
        self.lane, self.limit, self.pointer = lane, limit, pointer
        self.rows = 1 if lane.flat else lane.rows
        self.homes = find_homes(lane, limit, block)
        self.chunks = self._count_chunks()
        if self.chunks > 1:
            self.homes.team = Team(self.homes.team.block, 1)
        self.team = self.homes.team
        self.exchanged = 0  # arena bytes of exchanges so far
        self.sites = 0
        self.dtypes = {a.name: a.dtype for d in self.homes.nests for a in d.nest.accumulators}
        self.reserved = self._reserved()
        base = f"{self.reserved} + team * {self.homes.arena}" if self.team.teams > 1 else str(self.reserved)
        self.names = Names(pointer, read_only, base, self.team.threads < WARP, self._exchange_again)

    def emit(self) -> LaneText:
        stages = self._stages()
        lines = [*self._threads(), *self._held(), *self._rows(stages), *self._ends()]
        teams = self.team.teams
        programs = self.lane.programs if self.homes.carries else -(-self.rows // teams) * self.chunks
        shared = max(self.reserved + self.homes.arena * teams, self._end_bytes())
        if shared > self.limit:
            raise NoRoom(f"needs {shared} bytes of shared memory for a CTA, the target has {self.limit}")
        return LaneText(tuple(lines), programs, self.team.block, shared, traffic(self.homes))

    # -- shape ----------------------------------------------------------------------------------------

    def _reserved(self) -> int:
        """Arena bytes of all exchanges: each has its own, so that one barrier is enough for each."""
        combines = [d.combines for d in self.homes.nests if d.mode is Mode.REDUCE]
        total = sum(exchange_bytes(c, self.team) for c in combines)
        return -(-total // 16) * 16

    def _count_chunks(self) -> int:
        """CTAs for one row, where its elements have nothing to do with each other."""
        homes = self.homes
        sizes = {d.size for d in homes.nests}
        simple = all(d.mode in (Mode.SPREAD, Mode.KEEP) and not d.serial for d in homes.nests)
        if homes.carries or not simple or len(sizes) != 1 or homes.meets:
            return 1
        if any(isinstance(h, InArena) for h in (*homes.tiles.values(), *homes.kept.values())):
            return 1
        (size,) = sizes
        return -(-size // (homes.team.block * homes.widths[size]))

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
                    if carry:
                        lines += [f"for k in unroll({count}):", f"    {name}[k] = {carry.identity}"]
                case Scalar(name) if carry:
                    lines.append(f"{name} = {carry.identity}")
                case InArena() if carry:
                    store = (
                        f"shared_store_{suffix(buffer.type.dtype)}({self._arena(home)}, e, {carry.identity})"
                    )
                    lines += [f"for e in range(t, {size}, {self.team.threads}):", f"    {store}"]
        for (buffer, offset), home in self.homes.kept.items():
            if isinstance(home, InRegisters):
                count = self._count(self._size_of((buffer, offset)))
                lines.append(f"{home.name} = registers_{suffix(buffer.type.dtype.compute)}({count})")
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
            return ["chunk = p", *body] if self.chunks > 1 else body
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
        lo = f"lo = quotient(p * {lane.rows}, {lane.programs})"
        hi = f"hi = quotient((p + 1) * {lane.rows}, {lane.programs})"
        if not self.names.guarded:
            start = "lo + team" if teams > 1 else "lo"
            return [lo, hi, f"for r in range({start}, hi, {teams}):", *indent(body)]
        row = ["q = first + team", "ok = q < hi", f"r = clamp_index(q, 0, {lane.rows - 1})"]
        return [lo, hi, f"for first in range(lo, hi, {teams}):", *indent([*row, *body])]

    def _stages(self) -> list[str]:
        lines: list[str] = []
        meets = self.homes.meets
        stages = [s for s in self.lane.stages if not s.once]
        for stage, nests in zip(stages, self.homes.stages, strict=True):
            texts = [NestText(self.homes, d, self.names, self.chunks) for d in nests]
            lines.append(f"# {stage.note}")
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

    def _exchange_again(self, combines: Sequence[Combine]) -> list[str]:
        """Inside a loop: the next turn waits until this one's values are read."""
        return self._exchange(combines) + (self.team.barrier if self.team.threads > WARP else [])

    # -- the end --------------------------------------------------------------------------------------

    def _end_bytes(self) -> int:
        """Arena bytes with which teams combine what they carried."""
        if not self.homes.carries or (self.team.teams == 1 and not self._scalars()):
            return 0
        groups = [combine.buffers for combine, _ in self._ending()]
        across = max(sum(_row_bytes(self.homes.carries[b]) for b in group) for group in groups)
        return self.reserved + max(across * self.team.teams, self._cta_bytes(max(map(len, groups))))

    def _scalars(self) -> bool:
        return any(c.size == 1 for c in self.homes.carries.values())

    def _cta_bytes(self, values: int) -> int:
        return values * SLOT * max(1, self.team.block // WARP)

    def _ending(self) -> list[tuple[Combine, bool]]:
        """How partial results are combined; whether each thread of a team has its own."""
        found = {c.buffers: (c, d.mode is Mode.REDUCE) for d in self.homes.nests for c in d.nest.combines}
        return [ending for buffers, ending in found.items() if buffers]

    def _ends(self) -> list[str]:
        lines: list[str] = []
        for combine, per_thread in self._ending():
            alone = self.homes.carries[combine.buffers[0]].size == 1
            lines += self._end_scalars(combine, per_thread) if alone else self._end_vectors(combine)
        return lines

    def _end_scalars(self, combine: Combine, per_thread: bool) -> list[str]:
        """Numbers: combined over all threads of the CTA."""
        lines = ["barrier()"]
        for name, buffer in zip(combine.names, combine.buffers, strict=True):
            home = self.homes.tiles[buffer]
            assert isinstance(home, Scalar)
            lines.append(f"{name} = {home.name}")
            if not per_thread and self.team.threads > 1:
                lines += ["if t > 0:", f"    {name} = {self.homes.carries[buffer].identity}"]
        dtypes = {name: b.type.dtype for name, b in zip(combine.names, combine.buffers, strict=True)}
        whole = Team(self.team.block, 1)
        lines += exchange([combine], dtypes, whole, self.reserved, "thread()")
        return [*lines, "if thread() == 0:", *indent(self._stores(combine, "p"))]

    def _end_vectors(self, combine: Combine) -> list[str]:
        """Rows of numbers: combined over the teams, element by element."""
        carries = [self.homes.carries[b] for b in combine.buffers]
        size, teams = carries[0].size, self.team.teams
        out = self._stores(combine, f"p * {size} + e")
        if teams == 1:
            return self._own_elements(combine, out)
        if any(isinstance(self.homes.tiles[b], InArena) for b in combine.buffers):
            raise NoRoom("partial results in the arena with several teams")
        tiles = list(itertools.accumulate((_row_bytes(c) * teams for c in carries), initial=self.reserved))
        put, first, other = [], [], []
        for name, c, tile in zip(combine.names, carries, tiles, strict=False):
            dtype, row = suffix(c.buffer.type.dtype), _row_bytes(c)
            put.append(f"shared_store_{dtype}({tile} + team * {row}, e, {name})")
            first.append(f"{name} = shared_load_{dtype}({tile}, e)")
            other.append(f"{name}{OTHER} = shared_load_{dtype}({tile} + (g + 1) * {row}, e)")
        return [
            "barrier()",
            *self._own_elements(combine, put),
            "barrier()",
            f"for e in range(thread(), {size}, {self.team.block}):",
            *indent(first),
            f"    for g in unroll({teams - 1}):",
            *indent(indent([*other, *merge(combine)])),
            *indent(out),
        ]

    def _stores(self, combine: Combine, at: str) -> list[str]:
        return [
            f"store_{suffix(b.type.dtype)}({self.pointer(b)}, {at}, {name})"
            for name, b in zip(combine.names, combine.buffers, strict=True)
        ]

    def _own_elements(self, combine: Combine, then: list[str]) -> list[str]:
        """Each thread's elements of what is carried, one after another."""
        size, threads = self.homes.carries[combine.buffers[0]].size, self.team.threads
        homes = [self.homes.tiles[b] for b in combine.buffers]
        held = [self._held_element(*part) for part in zip(combine.names, combine.buffers, homes, strict=True)]
        width = self.homes.widths[size]
        met = any(isinstance(home, InArena) and not home.own for home in homes)
        wait = self.team.barrier if met else []
        if all(isinstance(home, InArena) for home in homes):
            first = "t" if width == 1 else f"t * {width}"
            body = ["e = first + j", *held, *then]
            loop = f"for first in range({first}, {size}, {threads * width}):"
            return [*wait, loop, f"    for j in unroll({width}):", *indent(indent(body))]
        body = [f"e = (k * {threads} + t) * {width} + j", f"if e < {size}:", *indent([*held, *then])]
        rounds = f"for k in unroll({self.homes.rounds(size)}):"
        return [*wait, rounds, f"    for j in unroll({width}):", *indent(indent(body))]

    def _held_element(self, name: str, buffer: Buffer, home: object) -> str:
        if isinstance(home, InArena):
            return f"{name} = shared_load_{suffix(buffer.type.dtype)}({self._arena(home)}, e)"
        assert isinstance(home, InRegisters)
        return f"{name} = {home.name}[k * {self.homes.widths[self.homes.carries[buffer].size]} + j]"


def _row_bytes(carry: Carry) -> int:
    return -(-carry.size * carry.buffer.type.dtype.itemsize // 16) * 16
