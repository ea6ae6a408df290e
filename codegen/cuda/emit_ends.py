"""The text at the end of a program: what its teams carried from row to row is combined and stored.

h2[k] of 4 teams    ->   each team's row to the arena, barrier, combined in halves          ->  s0[p * n + e]
h3 of 256 threads   ->   combined over the CTA by an exchange                               ->  s1[p]

Partial results that combine together (a sum and the count of its elements) do so here, too; among them may be
single numbers, of which every thread of a team has a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jstitch.codegen.branches import indent
from jstitch.codegen.cuda.deal import WARP, Mode
from jstitch.codegen.cuda.emit_nest import suffix
from jstitch.codegen.cuda.exchange import SLOT, Team, exchange, merge
from jstitch.codegen.cuda.homes import Common, Homes, InArena, InRegisters, Scalar
from jstitch.codegen.cuda.wanted import Carry
from jstitch.codegen.kernel_ir import OTHER, Buffer, Combine
from jstitch.codegen.print_expr import print_expr


@dataclass(eq=False)
class Ends:
    """The end of a lane. base: the arena offset of the team's share, as text. reserved: of the first one."""

    homes: Homes
    pointer: Callable[[Buffer], str]
    base: str
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

    def lines(self) -> list[str]:
        """Statements for all that is carried."""
        found: list[str] = []
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

    def _numbers(self, combine: Combine, per_thread: bool) -> list[str]:
        """Numbers: combined over all threads of the CTA."""
        lines = ["barrier()"]
        for name, carry in zip(combine.names, self._carries(combine), strict=True):
            lines.append(f"{name} = {self._held(carry)}")
            if not per_thread and self.team.threads > 1:
                lines += ["if t > 0:", f"    {name} = {print_expr(carry.identity)}"]
        dtypes = {name: b.type.dtype for name, b in zip(combine.names, combine.buffers, strict=True)}
        whole = Team(self.team.block, 1)
        lines += exchange([combine], dtypes, whole, self.start, "thread()")
        return [*lines, "if thread() == 0:", *indent(self._stores(combine))]

    def _rows(self, combine: Combine) -> list[str]:
        """Rows of numbers: combined over the teams, element by element."""
        carries, teams, tile = self._carries(combine), self.team.teams, self.start
        if teams == 1:
            return self._own_elements(combine, self._stores(combine))
        size = max(c.size for c in carries)
        row, put, first, other = _row_bytes(carries), [], [], []
        for name, c in zip(combine.names, carries, strict=True):
            dtype = suffix(c.buffer.type.dtype)
            put.append(f"shared_store_{dtype}({tile} + team * {row}, e, {name})")
            first.append(f"{name} = shared_load_{dtype}({tile} + team * {row}, e)")
            other.append(f"{name}{OTHER} = shared_load_{dtype}({tile} + (team + HALF) * {row}, e)")
            tile += row * teams
        lines = ["barrier()", *self._own_elements(combine, put), "barrier()"]
        half = teams // 2
        while half:
            second = [line.replace("HALF", str(half)) for line in other]
            last = self._stores(combine) if half == 1 else put
            body = [*first, *second, *merge(combine), *last]
            loop = [f"for e in range(t, {size}, {self.team.threads}):", *indent(body)]
            lines += [f"if team < {half}:", *indent(loop)] + (["barrier()"] if half > 1 else [])
            half //= 2
        return lines

    def _stores(self, combine: Combine) -> list[str]:
        alone = _is_numbers(carries := self._carries(combine))
        lines: list[str] = []
        for name, c in zip(combine.names, carries, strict=True):
            at = f"p * {c.size} + e" if c.size > 1 else "p"
            line = f"store_{suffix(c.buffer.type.dtype)}({self.pointer(c.buffer)}, {at}, {name})"
            lines += [line] if alone else _once(c, line)
        return lines

    def _own_elements(self, combine: Combine, then: list[str]) -> list[str]:
        """Each thread's elements of what is carried, one after another."""
        carries, threads = self._carries(combine), self.team.threads
        size = max(c.size for c in carries)
        held = [f"{name} = {self._held(c)}" for name, c in zip(combine.names, carries, strict=True)]
        homes, width = [self.homes.tiles[b] for b in combine.buffers], self.homes.widths[size]
        met = any(isinstance(home, InArena) and not home.own for home in homes)
        wait = self.team.barrier if met else []
        if not any(isinstance(home, InRegisters) for home in homes):
            loop = f"for first in range(t * {width}, {size}, {threads * width}):"
            body = ["e = first + j", *held, *then]
            return [*wait, loop, f"    for j in unroll({width}):", *indent(indent(body))]
        body = [f"e = (k * {threads} + t) * {width} + j", f"if e < {size}:", *indent([*held, *then])]
        rounds = f"for k in unroll({self.homes.rounds(size)}):"
        return [*wait, rounds, f"    for j in unroll({width}):", *indent(indent(body))]

    def _held(self, carry: Carry) -> str:
        """What the thread has of element e."""
        match self.homes.tiles[carry.buffer]:
            case Scalar(name):
                return name
            case InRegisters(name):
                return f"{name}[k * {self.homes.widths[carry.size]} + j]"
            case InArena(offset, _):
                return f"shared_load_{suffix(carry.buffer.type.dtype)}({self.base} + {offset}, e)"
            case Common():
                raise AssertionError("what a team carries is its own")


def _is_numbers(carries: list[Carry]) -> bool:
    return all(c.size == 1 for c in carries)


def _once(carry: Carry, line: str) -> list[str]:
    """A statement of each element; of a number, of the first element alone."""
    return [line] if carry.size > 1 else ["if e == 0:", *indent([line])]


def _row_bytes(carries: list[Carry]) -> int:
    """Arena bytes of one team's part of each: of numbers, a copy for every element of the others."""
    size = max(c.size for c in carries)
    return -(-size * max(c.buffer.type.dtype.itemsize for c in carries) // 16) * 16
