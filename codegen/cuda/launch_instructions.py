"""What a thread does for the instructions of a nest: in vectors or one by one, and where their operands are.

v0 = a0_v[j]                         of a vector that is loaded before the loop over its elements
shared_store_f32(16384, e, acc1)     of a tile in shared memory
if ok: store_f32(o0, r * n + e, v2)  of a row that may be none
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from jstitch.codegen.cuda.deal import DEALT, ELEMENT, Dealt, Mode, mentions, vector_of
from jstitch.codegen.cuda.homes import Common, Home, Homes, InArena, InParts, InRegisters, Scalar
from jstitch.codegen.cuda.under import under
from jstitch.codegen.kernel_ir import Buffer, Combine, Instr, Let, Load, Space, Store
from jstitch.codegen.launch_ir import Assign, Barrier, Body, Get, Put, Read, Registers, Scope, Unroll, Write
from jstitch.codegen.launch_places import FAR, Elements, Equal, Global, IsSet, Memory, Shared, Test
from jstitch.ir.expr import Expr, Ref, move_numbers
from jstitch.ir.index import Dynamic, Index, Var, atoms, const, substitute, var

OK = IsSet("ok")
OVERWRITES = "the team has read what is overwritten"
Exchange = Callable[[Sequence[Combine]], Body]
ExchangeParts = Callable[[Sequence[Combine], int], Body]


@dataclass(frozen=True)
class Names:
    """How a lane speaks of memory. pointer: of a buffer; read_only: nobody writes it.

    base: the first byte of the team's share. guarded: teams may stand past the last row. exchange: combines
    accumulators over the team. slices: combines the teams' parts of long sums, where all teams work on the
    same row (only the first one is ok to store). parts: combines those of a team's threads.
    """

    pointer: Callable[[Buffer], str]
    read_only: Callable[[Buffer], bool]
    base: Index
    guarded: bool
    exchange: Exchange
    slices: Exchange | None = None
    parts: ExchangeParts | None = None


class NestInstructions:
    """The instructions of one dealt nest of a lane.

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
            inside.append(Put(name, self.j, self._value(i)))
            after += self._vector_store(i, offset, home, n, name)

    def _by_element(self, i: Load | Store) -> bool:
        """Whether the offset depends on a number that each element reads for itself."""
        return any(isinstance(a, Dynamic) and str(a.operand) in self.own for a in atoms([i.offset]))

    def _home(self, i: Load | Store, offset: Index) -> Home | None:
        """Where the access goes; the first of several equal loads goes to memory, or to a common tile."""
        first = (i.buffer, offset) in self.homes.kept and (i.buffer, offset) not in self.homes.filled
        return self.homes.tiles.get(i.buffer) if first else self._part(self.homes.home(i.buffer, offset))

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
            return [Assign(i.name, self._value(i))]
        offset = self._local(i)
        home = self._home(i, offset)
        if isinstance(i, Load):
            return self._scalar_load(i, offset, home)
        match home:
            case InRegisters(name):
                return under(self._ok(i.buffer), [Put(name, self._slot(home), self._value(i))])
            case Scalar(name):
                return under(self._ok(i.buffer), [Assign(name, self._value(i))])
        at = self._here(self._plain(home, offset))
        store = Write(self._memory(i.buffer, home), at, i.buffer.type.dtype, self._value(i))
        return under(self._ok(i.buffer if isinstance(home, InArena) else None), [store])

    def _value(self, i: Let | Store) -> Expr:
        """What an instruction computes, the dealt loops' variables under names that no loop has."""
        renamed = {n: var(Var(DEALT + n, FAR)) for n in self.dealt.element}

        def moved(e: Index) -> Index:
            return substitute(e, lambda a: renamed.get(a.name) if isinstance(a, Var) else None)

        return move_numbers(i.value, moved) if renamed else i.value

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
