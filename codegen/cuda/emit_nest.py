"""The text of one nest: rounds of vectors over the dealt elements, scalars inside.

for k in unroll(3):
    e = (k * 64 + t) * 4
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

from jstitch.codegen.branches import indent
from jstitch.codegen.cuda.deal import ELEMENT, Dealt, Mode, mentions, vector_of
from jstitch.codegen.cuda.homes import Common, Home, Homes, InArena, InParts, InRegisters, Scalar
from jstitch.codegen.kernel_ir import Buffer, Combine, Instr, Let, Load, Space, Store
from jstitch.codegen.print_expr import print_expr
from jstitch.codegen.print_index import print_index
from jstitch.ir.expr import variables
from jstitch.ir.index import Dynamic, Index, Var, add, atoms, substitute, var
from jstitch.ir.types import DType


@dataclass(frozen=True)
class Names:
    """How the text of a lane speaks of memory. pointer: of a buffer; read_only: nobody writes it.

    base: the arena offset of the team's share, as text. guarded: teams may stand past the last row.
    exchange: the statements that combine accumulators over the team. slices: those that combine the teams'
    parts of long sums, where all teams work on the same row (only the first one is ok to store).
    """

    pointer: Callable[[Buffer], str]
    read_only: Callable[[Buffer], bool]
    base: str
    guarded: bool
    exchange: Callable[[Sequence[Combine]], list[str]]
    slices: Callable[[Sequence[Combine]], list[str]] | None = None


def suffix(dtype: DType) -> str:
    return dtype.name.lower()


def guarded(test: str, lines: Sequence[str]) -> list[str]:
    """The lines under a condition; an empty condition always holds."""
    return [f"if {test}:", *indent(lines)] if test and lines else list(lines)


class NestText:
    """One dealt nest of a lane. `finish` is what follows the exchange of its accumulators.

    element: the name of a dealt element's number in the text.
    """

    element = ELEMENT

    def __init__(self, homes: Homes, dealt: Dealt, names: Names, chunks: int = 1) -> None:
        self.homes, self.dealt, self.names, self.chunks = homes, dealt, names, chunks
        vectors = dealt.mode is not Mode.KEEP and not dealt.serial
        self.width = homes.widths.get(dealt.size, 1) if vectors else 1
        self.level = len(dealt.serial) + len(dealt.loops)
        self.start = 0  # the first of the rounds that are being written
        self.lead = "t == 0" if homes.team.threads > 1 else ""
        inside = (i for i in dealt.nest.body if dealt.level(i) > len(dealt.serial))
        self.own = {i.name for i in inside if isinstance(i, Load | Let)}

    # -- parts ----------------------------------------------------------------------------------------

    def loops(self) -> list[str]:
        """Everything up to the exchange of row accumulators."""
        inside = self._inside(0)
        stores = any(isinstance(i, Store) and self._in_place(i) for i in self._at(self.dealt.instructions, 0))
        whole = self.dealt.mode is Mode.SPREAD and not stores
        return guarded("ok" if whole and self._overwrites() else "", self._row(inside))

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

    def finish(self) -> list[str]:
        """What comes after the exchange, at row level."""
        if not self.dealt.loops:
            return []
        return [line for i in self._at(self.dealt.nest.after, 0) for line in self._uniform(i)]

    def _row(self, inside: list[str]) -> list[str]:
        before = [line for i in self._at(self.dealt.nest.body, 0) for line in self._uniform(i)]
        return before + inside

    def _inside(self, depth: int) -> list[str]:
        """Loops from `depth` of the serial ones on."""
        d = self.dealt
        if not d.loops:
            return []
        if depth == len(d.serial):
            rounds = guarded("ok" if self._overwrites() else "", self._rounds())
            return self._starts(depth) + rounds if d.mode is Mode.REDUCE else rounds
        loop = d.serial[depth]
        body = [line for i in self._at(d.nest.body, depth + 1) for line in self._uniform(i)]
        body += self._inside(depth + 1)
        if depth + 1 == len(d.serial):
            body += self.names.exchange(d.combines)
        body += [line for i in self._at(d.nest.after, depth + 1) for line in self._uniform(i)]
        return [f"for {loop.var.name} in range({loop.lo}, {loop.hi}):", *indent(body)]

    def _starts(self, depth: int) -> list[str]:
        lines = []
        for a in self.dealt.nest.accumulators:
            if max(0, a.depth - self.dealt.rows) == depth:
                lines.append(f"{a.name} = {print_expr(a.init)}")
        return lines

    def _at(self, instrs: Iterable[Instr], level: int) -> list[Instr]:
        return [i for i in instrs if self.dealt.level(i) == level]

    # -- rounds ---------------------------------------------------------------------------------------

    def _rounds(self) -> list[str]:
        d, team, width = self.dealt, self.homes.team, self.width
        if self.names.slices is not None and d.long:
            return self._slice(self.names.slices)
        if d.size in self.homes.unrolled and not d.serial:
            return self._unrolled()
        body = self._element()
        if self.chunks > 1:
            return [
                f"{self.element} = (chunk * {team.threads} + t) * {width}",
                *guarded(f"{self.element} < {d.size}", body),
            ]
        first, end = f"t * {width}" if width > 1 else "t", str(d.size)
        if self.homes.lane.flat and self.homes.carries:
            first, end = f"lo + {first}", "hi"
        return [f"for {self.element} in range({first}, {end}, {team.threads * width}):", *indent(body)]

    def _unrolled(self) -> list[str]:
        """Rounds written out, in as many loops as there are pieces of what is kept."""
        d, threads, width, lines = self.dealt, self.homes.team.threads, self.width, list[str]()
        seams = self.homes.seams(d.size) if self.chunks == 1 else [0, 1]
        before = set(self.homes.filled)
        for self.start, end in itertools.pairwise(seams):
            self.homes.filled = set(before)
            number = "chunk + k" if self.chunks > 1 else f"k + {self.start}" if self.start else "k"
            stride = f"({number}) * {threads} + t" if number != "k" else f"k * {threads} + t"
            first = f"{self.element} = ({stride}) * {width}" if width > 1 else f"{self.element} = {stride}"
            partial = self.chunks > 1 or end * threads * width > d.size
            body = [first, *guarded(f"{self.element} < {d.size}" if partial else "", self._element())]
            lines += [f"for k in unroll({end - self.start}):", *indent(body)]
        return lines

    def _element(self) -> list[str]:
        """One vector of elements: loads, the scalar program for each element, stores."""
        before: list[str] = []
        inside: list[str] = []
        after: list[str] = []
        body = [i for i in self.dealt.nest.body if self.dealt.level(i) >= self.level and self.dealt.loops]
        body = [i for i in body if self.dealt.level(i) > len(self.dealt.serial)]
        inside += self._variables(body)
        if self.dealt.inner:
            inside += self._thread_loops(self.level)
        else:
            for i in body:
                self._dealt(i, before, inside, after)
        if self.width > 1:
            inside = [f"for j in unroll({self.width}):", *indent(inside)] if inside else []
        return before + inside + after

    def _variables(self, body: Sequence[Instr]) -> list[str]:
        """Loop variables that scalar expressions read."""
        everything = (*body, *self.dealt.nest.after)
        read = {name for i in everything if not isinstance(i, Load) for name in variables(i.value)}
        found = [n for n in self.dealt.element if n in read]
        return [f"{n} = {self._print(self.dealt.element[n])}" for n in found]

    def _slice(self, combine: Callable[[Sequence[Combine]], list[str]]) -> list[str]:
        """KEEP: each team sums a part for its threads' elements; threads past the end take the last."""
        d, team, level = self.dealt, self.homes.team, self.level
        e = f"chunk * {team.threads} + t"
        lines = [f"{self.element} = clamp_index({e}, 0, {d.size - 1})", *self._variables(d.nest.body)]
        lines += [line for i in self._at(d.nest.body, level) for line in self._scalar(i)]
        lines += [f"{a.name} = {print_expr(a.init)}" for a in d.nest.accumulators]
        loop = d.inner[0]
        lines.append(f"for {loop.var.name} in range({loop.lo} + team, {loop.hi}, {team.teams}):")
        lines += [*indent(self._thread_loops(level + 1)), *combine(d.combines)]
        after = [line for i in self._at(d.nest.after, level) for line in self._scalar(i)]
        return [*lines, *guarded(f"{e} < {d.size}" if d.size % team.threads else "", after)]

    def _thread_loops(self, level: int) -> list[str]:
        """KEEP: the loops that one thread runs for its element."""
        d = self.dealt
        lines = [line for i in self._at(d.nest.body, level) for line in self._scalar(i)]
        depth = level - self.level
        if depth < len(d.inner):
            for a in d.nest.accumulators:
                if max(0, a.depth - d.rows) == level:
                    lines.append(f"{a.name} = {print_expr(a.init)}")
            loop = d.inner[depth]
            lines.append(f"for {loop.var.name} in range({loop.lo}, {loop.hi}):")
            lines += indent(self._thread_loops(level + 1))
        return lines + [line for i in self._at(d.nest.after, level) for line in self._scalar(i)]

    # -- instructions ---------------------------------------------------------------------------------

    def _dealt(self, i: Instr, before: list[str], inside: list[str], after: list[str]) -> None:
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
            inside += [f"{i.name} = {i.name}_v[j]", *self._hold(i, offset)]
        else:
            name = self.homes.name("w")
            before.append(f"{name} = registers_{suffix(i.buffer.type.dtype.compute)}({self.width})")
            inside.append(f"{name}[j] = {print_expr(i.value)}")
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

    def _hold(self, i: Load, offset: Index) -> list[str]:
        """After the first of several equal loads: keep the value for the others."""
        key = (i.buffer, offset)
        if key not in self.homes.kept or key in self.homes.filled:
            return []
        self.homes.filled.add(key)
        home = self._part(self.homes.kept[key])
        if home is None:
            return []
        if isinstance(home, InRegisters):
            return [f"{home.name}[{self._slot(home)}] = {i.name}"]
        at = self._print(self._plain(home, offset))
        return [f"{self._call('store', i.buffer, home, 1)}{at}, {i.name})"]

    def _plain(self, home: Home | None, offset: Index) -> Index:
        own = isinstance(home, InArena) and home.own
        return var(Var(ELEMENT, self.dealt.size)) if own else offset

    def _vector_load(self, i: Load, offset: Index, home: Home | None, n: int) -> list[str]:
        start = print_index(self._plain(home, offset))
        call = self._call("load", i.buffer, home, n)
        if self.width == n:
            return [f"{i.name}_v = {call}{start})"]
        return [
            f"{i.name}_v = registers_{suffix(i.buffer.type.dtype.compute)}({self.width})",
            f"for h in unroll({self.width // n}):",
            f"    {i.name}_h = {call}{start} + h * {n})",
            f"    for j in unroll({n}):",
            f"        {i.name}_v[h * {n} + j] = {i.name}_h[j]",
        ]

    def _vector_store(self, i: Store, offset: Index, home: Home | None, n: int, name: str) -> list[str]:
        start = print_index(self._plain(home, offset))
        call = self._call("store", i.buffer, home, n)
        lines = [f"{call}{start}, {name}, 0)"]
        if self.width > n:
            body = f"{call}{start} + h * {n}, {name}, h * {n})"
            lines = [f"for h in unroll({self.width // n}):", f"    {body}"]
        return guarded(self._ok(i.buffer if isinstance(home, InArena) else None), lines)

    def _call(self, what: str, buffer: Buffer, home: Home | None, n: int) -> str:
        """The call of a memory function up to its element."""
        tail = f"{suffix(buffer.type.dtype)}{f'x{n}' if n > 1 else ''}"
        if isinstance(home, InArena):
            return f"shared_{what}_{tail}({self.names.base} + {home.offset}, "
        if isinstance(home, Common):
            return f"shared_{what}_{tail}({home.offset}, "
        # Of a load that may be moved out of the loop over rows, the compiler keeps the value in registers.
        if what == "load" and self.names.read_only(buffer) and buffer not in self.homes.fleeting:
            what = "read"
        return f"{what}_{tail}({self.names.pointer(buffer)}, "

    def _scalar(self, i: Instr) -> list[str]:
        """One instruction for element e (+ j), or inside a thread's own loops."""
        if isinstance(i, Let):
            return [f"{i.name} = {print_expr(i.value)}"]
        offset = self._local(i)
        home = self._home(i, offset)
        if isinstance(i, Load):
            return self._scalar_load(i, offset, home)
        value = print_expr(i.value)
        match home:
            case InRegisters(name):
                return guarded(self._ok(i.buffer), [f"{name}[{self._slot(home)}] = {value}"])
            case Scalar(name):
                return guarded(self._ok(i.buffer), [f"{name} = {value}"])
        at = self._print(self._plain(home, offset))
        lines = [f"{self._call('store', i.buffer, home, 1)}{at}, {value})"]
        return guarded(self._ok(i.buffer if isinstance(home, InArena) else None), lines)

    def _scalar_load(self, i: Load, offset: Index, home: Home | None) -> list[str]:
        match home:
            case InRegisters(name):
                return [f"{i.name} = {name}[{self._slot(home)}]"]
            case Scalar(name):
                return [f"{i.name} = {name}"]
        at = self._print(self._plain(home, offset))
        return [f"{i.name} = {self._call('load', i.buffer, home, 1)}{at})", *self._hold(i, offset)]

    # -- rows -----------------------------------------------------------------------------------------

    def _uniform(self, i: Instr) -> list[str]:
        """An instruction that every thread of the team runs; one of them stores."""
        if isinstance(i, Let):
            return [f"{i.name} = {print_expr(i.value)}"]
        lines = self._scalar(i)
        if isinstance(i, Load) or isinstance(self.homes.home(i.buffer, self._local(i)), Scalar):
            return lines
        return [*self._after_reads(i), *guarded(self.lead, lines)]

    def _after_reads(self, i: Store) -> list[str]:
        """One thread writes in place what all threads of its team have read: it waits for them.

        Threads without a row have read the last one.
        """
        if not self._in_place(i):
            return []
        return ["barrier()"] if self.names.guarded else self.homes.team.barrier

    def _in_place(self, i: Store) -> bool:
        """Whether the nest loads what the store may overwrite."""
        loads = (j.buffer for j in self.dealt.nest.body if isinstance(j, Load))
        return i.buffer.space is Space.RESULT and any(
            b.space is Space.ARG and not self.names.read_only(b) for b in loads
        )

    # -- texts ----------------------------------------------------------------------------------------

    def _local(self, i: Load | Store) -> Index:
        carry = self.homes.carries.get(i.buffer)
        return self.dealt.offset(carry.local(i.offset) if carry else i.offset)

    def _ok(self, buffer: Buffer | None) -> str:
        """The test for teams past the last row: what outlives the row must not change."""
        lasting = buffer is None or buffer in self.homes.carries
        return "ok" if self.names.guarded and lasting else ""

    def _slot(self, home: InRegisters) -> str:
        """The place of an element in the registers that hold its round, and later ones."""
        if self.chunks > 1:
            return "j" if self.width > 1 else "0"
        begins = next((h.first for h in self.homes.kept.values() if _holds(h, home)), 0)
        number = f"(k + {self.start - begins})" if self.start > begins else "k"
        return f"{number} * {self.width} + j" if self.width > 1 else number

    def _print(self, e: Index) -> str:
        if self.width == 1 and self.element == ELEMENT:
            return print_index(e)
        moved = add(var(Var(self.element, self.dealt.size)), var(Var("j", self.width)))
        return print_index(
            substitute(e, lambda a: moved if isinstance(a, Var) and a.name == ELEMENT else None)
        )


def _holds(home: Home, registers: InRegisters) -> TypeGuard[InParts]:
    return isinstance(home, InParts) and home.registers == registers
