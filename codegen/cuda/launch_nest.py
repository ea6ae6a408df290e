"""What the threads of a team do for one nest: rounds of vectors over the dealt elements, scalars inside.

for k in unroll(3):
    e = k * 256 + t * 4
    a0_v = read_f32x4(b0, r * 768 + e)
    for j in unroll(4):
        v0 = a0_v[j]
        acc1 = add_reassoc(acc1, v0)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from jstitch.codegen.cuda.deal import ELEMENT, Dealt, Mode, mentions, vector_of
from jstitch.codegen.cuda.homes import Common, Home, Homes, InArena, InParts, InRegisters, Scalar
from jstitch.codegen.kernel_ir import Accumulator, Buffer, Combine, Instr, Let, Load, Space, Store
from jstitch.codegen.launch_ir import (
    FAR,
    Assign,
    Barrier,
    Body,
    Elements,
    Equal,
    For,
    Get,
    Global,
    Integer,
    IsSet,
    Less,
    Memory,
    Put,
    Read,
    Registers,
    Scope,
    Shared,
    Test,
    Unroll,
    Write,
    under,
)
from jstitch.ir.expr import Ref, variables
from jstitch.ir.index import Dynamic, Index, Var, atoms, const, substitute, var

OK = IsSet("ok")
OVERWRITES = "the team has read what is overwritten"
Exchange = Callable[[Sequence[Combine]], Body]


@dataclass(frozen=True)
class Names:
    """How a lane speaks of memory. pointer: of a buffer; read_only: nobody writes it.

    base: the first byte of the team's share. guarded: teams may stand past the last row. exchange: combines
    accumulators over the team. slices: combines the teams' parts of long sums, where all teams work on the
    same row (only the first one is ok to store).
    """

    pointer: Callable[[Buffer], str]
    read_only: Callable[[Buffer], bool]
    base: Index
    guarded: bool
    exchange: Exchange
    slices: Exchange | None = None


class NestCode:
    """One dealt nest of a lane. `finish` is what follows the exchange of its accumulators.

    element: the name of a dealt element's number.
    """

    element = ELEMENT

    def __init__(self, homes: Homes, dealt: Dealt, names: Names, chunks: int = 1) -> None:
        self.homes, self.dealt, self.names, self.chunks = homes, dealt, names, chunks
        vectors = dealt.mode is not Mode.KEEP and not dealt.serial
        self.width = homes.widths.get(dealt.size, 1) if vectors else 1
        self.level = len(dealt.serial) + len(dealt.loops)
        self.start = 0  # the first of the rounds that are being written
        self.k = self.j = const(0)  # the round, from there on; the element in its vector
        if self.width > 1:
            self.j = var(Var("j", self.width))
        self.e = var(Var(self.element, dealt.size))
        self.lead = Equal(homes.team.thread, const(0)) if homes.team.threads > 1 else None
        inside = (i for i in dealt.nest.body if dealt.level(i) > len(dealt.serial))
        self.own = {i.name for i in inside if isinstance(i, Load | Let)}

    # -- parts ----------------------------------------------------------------------------------------

    def loops(self) -> Body:
        """Everything up to the exchange of row accumulators."""
        inside = self._inside(0)
        stores = any(isinstance(i, Store) and self._in_place(i) for i in self._at(self.dealt.instructions, 0))
        whole = self.dealt.mode is Mode.SPREAD and not stores
        return under(OK if whole and self._overwrites() else None, self._row(inside))

    def _overwrites(self) -> bool:
        """Whether a thread without a row would read what another one overwrites, in any nest of the lane."""
        if not self.names.guarded or self.names.slices is not None:
            return False
        return not all(map(self.names.read_only, self.homes.loaded_arguments))

    def combines(self) -> tuple[Combine, ...]:
        """Accumulators that the team still has to combine, at row level."""
        if self.dealt.mode is not Mode.REDUCE or self.dealt.serial:
            return ()
        return self.dealt.combines

    def finish(self) -> Body:
        """What comes after the exchange, at row level."""
        return self._uniform(self._at(self.dealt.nest.after, 0)) if self.dealt.loops else []

    def _row(self, inside: Body) -> Body:
        return self._uniform(self._at(self.dealt.nest.body, 0)) + inside

    def _inside(self, depth: int) -> Body:
        """Loops from `depth` of the serial ones on."""
        d = self.dealt
        if not d.loops:
            return []
        if depth == len(d.serial):
            rounds = under(OK if self._overwrites() else None, self._rounds())
            return self._starts(depth) + rounds if d.mode is Mode.REDUCE else rounds
        loop = d.serial[depth]
        body = self._uniform(self._at(d.nest.body, depth + 1)) + self._inside(depth + 1)
        if depth + 1 == len(d.serial):
            body += self.names.exchange(d.combines)
        body += self._uniform(self._at(d.nest.after, depth + 1))
        return [For(loop.var.name, const(loop.lo), const(loop.hi), 1, tuple(body))]

    def _starts(self, depth: int) -> Body:
        """Accumulators of that depth at their initial values."""
        return [Assign(a.name, a.init) for a in self.dealt.nest.accumulators if self._depth(a) == depth]

    def _depth(self, a: Accumulator) -> int:
        return max(0, a.depth - self.dealt.rows)

    def _at(self, instrs: Iterable[Instr], level: int) -> list[Instr]:
        return [i for i in instrs if self.dealt.level(i) == level]

    # -- rounds ---------------------------------------------------------------------------------------

    def _rounds(self) -> Body:
        d, team = self.dealt, self.homes.team
        if self.names.slices is not None and d.long:
            return self._slice(self.names.slices)
        if d.size in self.homes.unrolled and not d.serial:
            return self._unrolled()
        body = self._element()
        if self.chunks > 1:
            first = (self._chunk * team.threads + team.thread) * self.width
            return [Integer(self.element, first), *under(Less(self.e, const(d.size)), body)]
        low, high = team.thread * self.width, const(d.size)
        if self.homes.lane.flat and self.homes.carries:
            low, high = var(Var("lo", FAR)) + low, var(Var("hi", FAR))
        return [For(self.element, low, high, team.threads * self.width, tuple(body))]

    @property
    def _chunk(self) -> Index:
        """The CTA's number, of those that share a row."""
        return var(Var("chunk", self.chunks))

    def _unrolled(self) -> Body:
        """Rounds written out, in as many loops as there are pieces of what is kept."""
        d, team, body = self.dealt, self.homes.team, Body()
        seams = self.homes.seams(d.size) if self.chunks == 1 else [0, 1]
        before = set(self.homes.filled)
        for self.start, end in itertools.pairwise(seams):
            self.homes.filled = set(before)
            self.k = var(Var("k", end - self.start))
            number = self._chunk if self.chunks > 1 else self.k + self.start
            first = Integer(self.element, (number * team.threads + team.thread) * self.width)
            partial = self.chunks > 1 or end * team.threads * self.width > d.size
            inside = under(Less(self.e, const(d.size)) if partial else None, self._element())
            body.append(Unroll("k", end - self.start, (first, *inside)))
        return body

    def _element(self) -> Body:
        """One vector of elements: loads, the scalar program for each element, stores."""
        before, inside, after = Body(), Body(), Body()
        body = [i for i in self.dealt.nest.body if self.dealt.level(i) >= self.level and self.dealt.loops]
        body = [i for i in body if self.dealt.level(i) > len(self.dealt.serial)]
        inside += self._variables(body)
        if self.dealt.inner:
            inside += self._thread_loops(self.level)
        else:
            for i in body:
                self._dealt(i, before, inside, after)
        if self.width > 1 and inside:
            inside = [Unroll("j", self.width, tuple(inside))]
        return before + inside + after

    def _variables(self, body: Sequence[Instr]) -> Body:
        """Loop variables that scalar expressions read."""
        everything = (*body, *self.dealt.nest.after)
        read = {name for i in everything if not isinstance(i, Load) for name in variables(i.value)}
        return [Integer(n, self._here(e)) for n, e in self.dealt.element.items() if n in read]

    def _slice(self, combine: Exchange) -> Body:
        """KEEP: each team sums a part for its threads' elements; threads past the end take the last."""
        d, team, level = self.dealt, self.homes.team, self.level
        e = self._chunk * team.threads + team.thread
        body: Body = [Integer(self.element, e, (const(0), const(d.size - 1))), *self._variables(d.nest.body)]
        body += self._each(self._at(d.nest.body, level))
        body += [Assign(a.name, a.init) for a in d.nest.accumulators]
        loop = d.inner[0]
        turns = tuple(self._thread_loops(level + 1))
        body.append(For(loop.var.name, team.number + loop.lo, const(loop.hi), team.teams, turns))
        body += combine(d.combines)
        whole = None if d.size % team.threads == 0 else Less(e, const(d.size))
        return [*body, *under(whole, self._each(self._at(d.nest.after, level)))]

    def _thread_loops(self, level: int) -> Body:
        """KEEP: the loops that one thread runs for its element."""
        d = self.dealt
        body = self._each(self._at(d.nest.body, level))
        depth = level - self.level
        if depth < len(d.inner):
            body += self._starts(level)
            loop = d.inner[depth]
            turns = tuple(self._thread_loops(level + 1))
            body.append(For(loop.var.name, const(loop.lo), const(loop.hi), 1, turns))
        return body + self._each(self._at(d.nest.after, level))

    # -- instructions ---------------------------------------------------------------------------------

    def _dealt(self, i: Instr, before: Body, inside: Body, after: Body) -> None:
        """One instruction of a dealt element, vectors outside the loop over j."""
        if isinstance(i, Let) or self.width == 1 or self._by_element(i):
            inside += self._scalar(i)
            return
        offset = self._local(i)
        home = self._home(i, offset)
        if isinstance(home, InRegisters | Scalar):
            inside += self._scalar(i)
        elif isinstance(i, Load) and home is None and not mentions(offset, ELEMENT):
            before += self._scalar(i)
        elif (n := vector_of(i.buffer, self._plain(home, offset), self.width)) == 1:
            inside += self._scalar(i)
        elif isinstance(i, Load):
            before += self._vector_load(i, offset, home, n)
            inside += [Get(i.name, f"{i.name}_v", self.j), *self._hold(i, offset)]
        else:
            name = self.homes.name("w")
            before.append(Registers(name, i.buffer.type.dtype.compute, self.width))
            inside.append(Put(name, self.j, i.value))
            after += self._vector_store(i, offset, home, n, name)

    def _by_element(self, i: Load | Store) -> bool:
        """Whether the offset depends on a number that each element reads for itself."""
        return any(isinstance(a, Dynamic) and str(a.operand) in self.own for a in atoms([i.offset]))

    def _home(self, i: Load | Store, offset: Index) -> Home | None:
        """Where the access goes; the first of several equal loads goes to memory."""
        first = (i.buffer, offset) in self.homes.kept and (i.buffer, offset) not in self.homes.filled
        return None if first else self._part(self.homes.home(i.buffer, offset))

    def _part(self, home: Home | None) -> Home | None:
        """Of a home in pieces, the one of these rounds."""
        return home.part(self.start) if isinstance(home, InParts) else home

    def _hold(self, i: Load, offset: Index) -> Body:
        """After the first of several equal loads: keep the value for the others."""
        key = (i.buffer, offset)
        if key not in self.homes.kept or key in self.homes.filled:
            return []
        self.homes.filled.add(key)
        home = self._part(self.homes.kept[key])
        if home is None:
            return []
        if isinstance(home, InRegisters):
            return [Put(home.name, self._slot(home), Ref(i.name))]
        at, dtype = self._here(self._plain(home, offset)), i.buffer.type.dtype
        return [Write(self._memory(i.buffer, home), at, dtype, Ref(i.name))]

    def _plain(self, home: Home | None, offset: Index) -> Index:
        own = isinstance(home, InArena) and home.own
        return var(Var(ELEMENT, self.dealt.size)) if own else offset

    def _vector_load(self, i: Load, offset: Index, home: Home | None, n: int) -> Body:
        """Of as many vectors as the width takes."""
        start, dtype = self._plain(home, offset), i.buffer.type.dtype
        memory = self._memory(i.buffer, home, loads=True)
        if self.width == n:
            return [Read(f"{i.name}_v", memory, start, dtype, n)]
        h, j = var(Var("h", self.width // n)), var(Var("j", n))
        each = Get(f"{i.name}_u", f"{i.name}_h", j), Put(f"{i.name}_v", h * n + j, Ref(f"{i.name}_u"))
        part = Read(f"{i.name}_h", memory, start + h * n, dtype, n), Unroll("j", n, each)
        return [Registers(f"{i.name}_v", dtype.compute, self.width), Unroll("h", self.width // n, part)]

    def _vector_store(self, i: Store, offset: Index, home: Home | None, n: int, name: str) -> Body:
        start, dtype = self._plain(home, offset), i.buffer.type.dtype
        memory = self._memory(i.buffer, home)
        h = var(Var("h", self.width // n))
        part = Write(memory, start + h * n, dtype, Elements(name, h * n), n)
        body: Body = [part] if self.width == n else [Unroll("h", self.width // n, (part,))]
        return under(self._ok(i.buffer if isinstance(home, InArena) else None), body)

    def _memory(self, buffer: Buffer, home: Home | None, loads: bool = False) -> Memory:
        match home:
            case InArena(offset, _):
                return Shared(self.names.base + offset)
            case Common(offset):
                return Shared(const(offset))
        # Of a load that may be moved out of the loop over rows, the compiler keeps the value in registers.
        invariant = loads and self.names.read_only(buffer) and buffer not in self.homes.fleeting
        return Global(self.names.pointer(buffer), invariant)

    def _each(self, instrs: Iterable[Instr]) -> Body:
        return [s for i in instrs for s in self._scalar(i)]

    def _scalar(self, i: Instr) -> Body:
        """One instruction for element e (+ j), or inside a thread's own loops."""
        if isinstance(i, Let):
            return [Assign(i.name, i.value)]
        offset = self._local(i)
        home = self._home(i, offset)
        if isinstance(i, Load):
            return self._scalar_load(i, offset, home)
        match home:
            case InRegisters(name):
                return under(self._ok(i.buffer), [Put(name, self._slot(home), i.value)])
            case Scalar(name):
                return under(self._ok(i.buffer), [Assign(name, i.value)])
        at = self._here(self._plain(home, offset))
        store = Write(self._memory(i.buffer, home), at, i.buffer.type.dtype, i.value)
        return under(self._ok(i.buffer if isinstance(home, InArena) else None), [store])

    def _scalar_load(self, i: Load, offset: Index, home: Home | None) -> Body:
        match home:
            case InRegisters(name):
                return [Get(i.name, name, self._slot(home))]
            case Scalar(name):
                return [Assign(i.name, Ref(name))]
        at, memory = self._here(self._plain(home, offset)), self._memory(i.buffer, home, loads=True)
        return [Read(i.name, memory, at, i.buffer.type.dtype), *self._hold(i, offset)]

    # -- rows -----------------------------------------------------------------------------------------

    def _uniform(self, instrs: Iterable[Instr]) -> Body:
        """Instructions that every thread of the team runs; one of them stores."""
        body: Body = []
        for i in instrs:
            found = self._scalar(i)
            stores = isinstance(i, Store) and not isinstance(self._tile(i), Scalar)
            body += [*self._after_reads(i), *under(self.lead, found)] if stores else found
        return body

    def _tile(self, i: Store) -> Home | None:
        return self.homes.home(i.buffer, self._local(i))

    def _after_reads(self, i: Instr) -> Body:
        """One thread writes in place what all threads of its team have read: it waits for them.

        Threads without a row have read the last one.
        """
        if not isinstance(i, Store) or not self._in_place(i):
            return []
        return [Barrier(Scope.CTA, OVERWRITES)] if self.names.guarded else self.homes.team.barrier(OVERWRITES)

    def _in_place(self, i: Store) -> bool:
        """Whether the nest loads what the store may overwrite."""
        loads = (j.buffer for j in self.dealt.nest.body if isinstance(j, Load))
        return i.buffer.space is Space.RESULT and any(
            b.space is Space.ARG and not self.names.read_only(b) for b in loads
        )

    # -- places ---------------------------------------------------------------------------------------

    def _local(self, i: Load | Store) -> Index:
        carry = self.homes.carries.get(i.buffer)
        return self.dealt.offset(carry.local(i.offset) if carry else i.offset)

    def _ok(self, buffer: Buffer | None) -> Test | None:
        """The test for teams past the last row: what outlives the row must not change."""
        lasting = buffer is None or buffer in self.homes.carries
        return OK if self.names.guarded and lasting else None

    def _slot(self, home: InRegisters) -> Index:
        """The place of an element in the registers that hold its round, and later ones."""
        if self.chunks > 1:
            return self.j
        begins = next((h.first for h in self.homes.kept.values() if _holds(h, home)), 0)
        return (self.k + max(0, self.start - begins)) * self.width + self.j

    def _here(self, e: Index) -> Index:
        """A place of the dealt element, for the one that is worked on."""
        if self.width == 1 and self.element == ELEMENT:
            return e
        here = self.e + self.j
        return substitute(e, lambda a: here if isinstance(a, Var) and a.name == ELEMENT else None)


def _holds(home: Home, registers: InRegisters) -> TypeGuard[InParts]:
    return isinstance(home, InParts) and home.registers == registers
