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
from collections.abc import Iterable, Sequence

from jstitch.codegen.cuda.deal import DEALT, Mode
from jstitch.codegen.cuda.homes import InRegisters, Scalar
from jstitch.codegen.cuda.launch_instructions import OK, Exchange, NestInstructions
from jstitch.codegen.cuda.under import under
from jstitch.codegen.kernel_ir import Accumulator, Combine, Instr, Let, Load, Store
from jstitch.codegen.launch_ir import Assign, Body, For, Integer, Unroll
from jstitch.codegen.launch_places import FAR, Less
from jstitch.ir.expr import variables
from jstitch.ir.index import Index, Var, const, var


class NestCode(NestInstructions):
    """One dealt nest of a lane. `finish` is what follows the exchange of its accumulators."""

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
        if (parts := self.homes.parts(d)) > 1:
            return self._parted(parts)
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
        return [Integer(DEALT + n, self._here(e)) for n, e in self.dealt.element.items() if n in read]

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

    def _parted(self, parts: int) -> Body:
        """KEEP: threads far apart in a team share an element's sum; those past the end take the last."""
        d, team, level = self.dealt, self.homes.team, self.level
        apart = team.threads // parts
        self.element = self.homes.name("e")
        self.e = var(Var(self.element, d.size))
        within = None if apart == d.size else (const(0), const(d.size - 1))
        body: Body = [Integer(self.element, team.thread % apart, within), *self._variables(d.nest.body)]
        body += self._each(self._at(d.nest.body, level))
        body += [Assign(a.name, a.init) for a in d.nest.accumulators]
        loop = d.inner[0]
        turns = tuple(self._thread_loops(level + 1))
        body.append(For(loop.var.name, team.thread // apart + loop.lo, const(loop.hi), parts, turns))
        assert self.names.parts is not None
        body += self.names.parts(d.combines, parts)
        for held, instrs in itertools.groupby(self._at(d.nest.after, level), self._is_held):
            body += under(None if held else Less(team.thread, const(d.size)), self._each([*instrs]))
        return body

    def _is_held(self, i: Instr) -> bool:
        """Not in memory: every thread that has a part of an element's sum has to know it."""
        return isinstance(i, Let) or isinstance(self.homes.tiles.get(i.buffer), InRegisters | Scalar)

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
