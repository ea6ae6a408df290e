"""The end of a program: what its teams carried from row to row is combined and stored.

h2[k] of 4 teams    ->   each team's row to the arena, barrier, combined in halves          ->  s0[p * n + e]
h3 of 256 threads   ->   combined over the CTA by an exchange                               ->  s1[p]

Partial results that combine together (a sum and the count of its elements) do so here, too; among them may be
single numbers, of which every thread of a team has a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jstitch.codegen.cuda.deal import WARP, Mode
from jstitch.codegen.cuda.exchange import SLOT, Team, exchange, merge
from jstitch.codegen.cuda.homes import Common, Homes, InArena, InRegisters, Scalar
from jstitch.codegen.cuda.under import under
from jstitch.codegen.cuda.wanted import Carry
from jstitch.codegen.kernel_ir import OTHER, Buffer, Combine
from jstitch.codegen.launch_ir import (
    Assign,
    Barrier,
    Body,
    For,
    Get,
    If,
    Integer,
    Read,
    Scope,
    Statement,
    Unroll,
    Write,
)
from jstitch.codegen.launch_places import FAR, PROGRAM, THREAD, Equal, Global, Less, Shared
from jstitch.ir.expr import Ref
from jstitch.ir.index import Index, Var, const, var

ELEMENT = var(Var("e", FAR))
ALL_DONE = "all teams are done with their rows"


@dataclass(eq=False)
class Ends:
    """The end of a lane. base: the first byte of the team's share. reserved: of the first one."""

    homes: Homes
    pointer: Callable[[Buffer], str]
    base: Index
    reserved: int
    team: Team = field(init=False)

    def __post_init__(self) -> None:
        self.team = self.homes.team

    @property
    def start(self) -> int:
        """Where exchanges may begin: behind the teams' shares while something carried is still in them."""
        held = any(isinstance(self.homes.tiles[b], InArena) for b in self.homes.carries)
        return self.reserved + (-(-self.homes.arena * self.team.teams // 16) * 16 if held else 0)

    @property
    def nbytes(self) -> int:
        """Arena bytes from 0 on."""
        most = 0
        for combine, _ in self._combines():
            carries = self._carries(combine)
            if _is_numbers(carries):
                most = max(most, len(carries) * SLOT * max(1, self.team.block // WARP))
            elif self.team.teams > 1:
                most = max(most, len(carries) * _row_bytes(carries) * self.team.teams)
        return self.start + most if most else 0

    def body(self) -> Body:
        """Statements for all that is carried."""
        found: Body = []
        for combine, per_thread in self._combines():
            numbers = _is_numbers(self._carries(combine))
            found += self._numbers(combine, per_thread) if numbers else self._rows(combine)
        return found

    def _combines(self) -> list[tuple[Combine, bool]]:
        """How partial results are combined; whether each thread of a team has its own."""
        found = {c.buffers: (c, d.mode is Mode.REDUCE) for d in self.homes.nests for c in d.nest.combines}
        return [combine for buffers, combine in found.items() if buffers]

    def _carries(self, combine: Combine) -> list[Carry]:
        return [self.homes.carries[b] for b in combine.buffers]

    def _numbers(self, combine: Combine, per_thread: bool) -> Body:
        """Numbers: combined over all threads of the CTA."""
        body: Body = [Barrier(Scope.CTA, ALL_DONE)]
        for name, carry in zip(combine.names, self._carries(combine), strict=True):
            body.append(self._held(name, carry))
            if not per_thread and self.team.threads > 1:
                body.append(If(Less(const(0), self.team.thread), (Assign(name, carry.identity),)))
        dtypes = {name: b.type.dtype for name, b in zip(combine.names, combine.buffers, strict=True)}
        whole = Team(self.team.block, 1)
        body += exchange([combine], dtypes, whole, self.start, THREAD)
        return [*body, If(Equal(THREAD, const(0)), tuple(self._stores(combine)))]

    def _rows(self, combine: Combine) -> Body:
        """Rows of numbers: combined over the teams, element by element."""
        carries, team = self._carries(combine), self.team
        if team.teams == 1:
            return self._own_elements(combine, self._stores(combine))
        size = max(c.size for c in carries)
        body: Body = [Barrier(Scope.CTA, ALL_DONE), *self._own_elements(combine, self._puts(combine))]
        body.append(Barrier(Scope.CTA, "the parts of all teams are there"))
        half = team.teams // 2
        while half:
            last = self._stores(combine) if half == 1 else self._puts(combine)
            merged = *self._gets(combine, 0), *self._gets(combine, half), *merge(combine), *last
            loop = For("e", team.thread, const(size), team.threads, merged)
            body.append(If(Less(team.number, const(half)), (loop,)))
            if half > 1:
                body.append(Barrier(Scope.CTA, f"the parts of {half} teams are there"))
            half //= 2
        return body

    def _places(self, combine: Combine) -> list[tuple[str, Carry, int]]:
        """Where the teams' parts of each stand, one after the other."""
        carries = self._carries(combine)
        row = _row_bytes(carries)
        starts = range(self.start, self.start + row * self.team.teams * len(carries), row * self.team.teams)
        return list(zip(combine.names, carries, starts, strict=True))

    def _puts(self, combine: Combine) -> Body:
        """Element e of the team's parts to shared memory."""
        row = _row_bytes(self._carries(combine))
        return [
            Write(Shared(self.team.number * row + at), ELEMENT, c.buffer.type.dtype, Ref(name))
            for name, c, at in self._places(combine)
        ]

    def _gets(self, combine: Combine, further: int) -> Body:
        """Element e of the parts of the team that is so much further."""
        row, more = _row_bytes(self._carries(combine)), OTHER if further else ""
        team = self.team.number + further
        return [
            Read(f"{name}{more}", Shared(team * row + at), ELEMENT, c.buffer.type.dtype)
            for name, c, at in self._places(combine)
        ]

    def _stores(self, combine: Combine) -> Body:
        alone = _is_numbers(carries := self._carries(combine))
        body: Body = []
        for name, c in zip(combine.names, carries, strict=True):
            at = PROGRAM * c.size + (ELEMENT if c.size > 1 else const(0))
            store = Write(Global(self.pointer(c.buffer)), at, c.buffer.type.dtype, Ref(name))
            first = None if alone or c.size > 1 else Equal(ELEMENT, const(0))  # of a number, there is but one
            body += under(first, [store])
        return body

    def _own_elements(self, combine: Combine, then: Body) -> Body:
        """Each thread's elements of what is carried, one after another."""
        carries, team = self._carries(combine), self.team
        size = max(c.size for c in carries)
        held = [self._held(name, c) for name, c in zip(combine.names, carries, strict=True)]
        homes, width = [self.homes.tiles[b] for b in combine.buffers], self.homes.widths[size]
        met = any(isinstance(home, InArena) and not home.own for home in homes)
        wait = team.barrier("all threads have added to what the team carries") if met else []
        j, done = var(Var("j", width)), (*held, *then)
        if not any(isinstance(home, InRegisters) for home in homes):
            own: Body = [Integer("e", var(Var("first", FAR)) + j), *done]
            each = Unroll("j", width, tuple(own))
            return [*wait, For("first", team.thread * width, const(size), team.threads * width, (each,))]
        k = var(Var("k", self.homes.rounds(size)))
        e = (k * team.threads + team.thread) * width + j
        each = Unroll("j", width, (Integer("e", e), If(Less(ELEMENT, const(size)), done)))
        return [*wait, Unroll("k", self.homes.rounds(size), (each,))]

    def _held(self, name: str, carry: Carry) -> Statement:
        """name = what the thread has of element e"""
        match self.homes.tiles[carry.buffer]:
            case Scalar(held):
                return Assign(name, Ref(held))
            case InRegisters(held):
                width, rounds = self.homes.widths[carry.size], self.homes.rounds(carry.size)
                return Get(name, held, var(Var("k", rounds)) * width + var(Var("j", width)))
            case InArena(offset, _):
                return Read(name, Shared(self.base + offset), ELEMENT, carry.buffer.type.dtype)
            case Common():
                raise AssertionError("what a team carries is its own")


def _is_numbers(carries: list[Carry]) -> bool:
    return all(c.size == 1 for c in carries)


def _row_bytes(carries: list[Carry]) -> int:
    """Arena bytes of one team's part of each: of numbers, a copy for every element of the others."""
    size = max(c.size for c in carries)
    return -(-size * max(c.buffer.type.dtype.itemsize for c in carries) // 16) * 16
