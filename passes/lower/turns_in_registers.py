"""Lanes in which a carry is in a register: all turns of an element, one element after the other.

sums of 1024 rows of 4096 numbers:   for r: c = 0;  for turn: c = c + x[r * 4096 + turn];  ys[...] = c
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jstitch.codegen.kernel_ir import ROW, STEP, Accumulator, Instr, Lane, Let, Loop, Nest, Stage
from jstitch.ir.expr import Atomic, Const, Ref
from jstitch.ir.index import Index, Var, add, const, linearize, mul, var
from jstitch.passes.graph.find_recurrence import Carry
from jstitch.passes.lower.aside_of_turns import Aside
from jstitch.passes.lower.build_turn import TurnBuilder
from jstitch.passes.lower.divide_turns import Divided, divide_turns
from jstitch.passes.lower.turn_lane import TurnLane, nothing

ROWS_AT_ONCE = 4, 2  # elements whose turns are done side by side
SMALLEST_CTA, USUAL_CTA = 32, 256  # threads
ELEMENT = "i"  # the loop over elements that threads share


@dataclass(eq=False)
class InRegisters(TurnLane):
    """All turns of an element, one element after the other, or a few side by side."""

    accumulators: list[Accumulator] = field(default_factory=list)

    def lane(self) -> Lane:
        """A step is one element, or a few, of which dear values are made for all turns at once."""
        tiles = len(self.pattern.tiles)
        divided = divide_turns(self.loop, self.pattern.producers, self.stacked)
        made = self._lane(divided)
        if self.pattern.arena_bytes > self.pattern.profile.arena_bytes:
            del self.pattern.tiles[tiles:]
            made = self._lane(Divided())
        return made

    def _lane(self, divided: Divided) -> Lane:
        step = next((n for n in ROWS_AT_ONCE if self.size % n == 0 and self.size > n), 1)
        rows = self.rows if step == 1 else []
        self.accumulators = []
        builder = self.builder([*rows, self.turn], nothing)
        aside = Aside(self, divided, builder, rows)
        behind: list[Instr] = []
        next_turn: list[Let] = []  # rows may share a carry, which all of them read before it changes
        for j in range(step):
            row = var(Var(ROW, self.size))
            if step > 1:
                row = add(mul(var(Var(STEP, self.size // step)), step), const(j))
            aside.begin()
            done, goes_on = self.row(row, builder, rows, aside)
            behind += done
            next_turn += goes_on
        builder.body += next_turn
        loops = (*rows, self.turn)
        nest = Nest(loops, tuple(self.accumulators), tuple(builder.body), tuple(behind))
        stages = (
            *aside.stages(aside.before, "what no turn waits for"),
            Stage((nest,), "all turns", lines=self.pattern.lines),
            *aside.stages(aside.after, "what waits for no turn"),
        )
        work = self.pattern.work(self.size)
        return Lane(self.size, step, self.pattern.programs(self.size // step, work), stages, False, work)

    def by_threads(self, alone: bool) -> Lane:
        """One row whose elements are dealt out to threads, each of which does all turns of its own.

        alone: in its phase; then CTAs may be small, so that few elements are on many multiprocessors.
        """
        element = Loop(Var(ELEMENT, self.size), 0, self.size)
        builder = self.builder([element, self.turn], nothing)
        behind, next_turn = self.row(var(element.var), builder, [element])
        builder.body += next_turn
        loops, body = (element, self.turn), tuple(builder.body)
        nests: tuple[Nest, ...] = (Nest(loops, tuple(self.accumulators), body, tuple(behind)),)
        if not self.accumulators:  # threads share the turns, too, so that nothing of a nest is behind them
            first, last = Nest(loops, (), body, ()), Nest((element,), (), tuple(behind), ())
            nests = tuple(nest for nest in (first, last) if nest.instructions)
        stage = Stage(nests, "all turns", lines=self.pattern.lines)
        each = self.size // self.pattern.profile.machine.units
        threads = max(SMALLEST_CTA, 1 << max(0, each.bit_length() - 1))
        threads = threads if alone and threads < USUAL_CTA else 0
        return Lane(1, 1, 1, (stage,), False, self.pattern.work(self.size), threads)

    def row(
        self, row: Index, builder: TurnBuilder, rows: Sequence[Loop], aside: Aside | None = None
    ) -> tuple[list[Instr], list[Let]]:
        """Add the turns of the row; what is done behind them, and what the next turn goes on from.

        rows: loops around that over turns.
        """
        inside, homes = len(rows) + 1, self.homes(row)
        variables: dict[Carry, Accumulator] = {}

        def begin(c: Carry, index: tuple[Index, ...]) -> Ref:
            name, kind = builder.names().replace("v", "acc"), c.after.tensor.dtype.compute
            variables[c] = Accumulator(name, self.first(c, index, builder), len(rows), kind)
            builder.depth_of[name] = inside
            return Ref(name)

        def at_end(c: Carry, index: tuple[Index, ...]) -> Ref:
            builder.value(c.before, index)
            end.depth_of[variables[c].name] = len(rows)
            return Ref(variables[c].name)

        builder.begin, builder.carried = begin, {}
        stored = self.stacks(builder, row, () if aside is None else aside.divided.late)
        if aside is not None:
            aside.leave(row)
        end = self.builder(rows, at_end, at_end=True)
        for v in self.ends:
            end.store(self.pattern.results[v], linearize(homes[v], v.shape), *end.parts(v, homes[v]))
        after = self.afters(builder)
        if aside is not None:
            aside.end()
        for v, offset, values in stored:
            builder.store(self.pattern.results[v], offset, *values)
        self.accumulators += variables.values()
        goes_on = self.go_on(builder, variables, after, inside)
        return [replace(i, depth=len(rows)) for i in end.body], goes_on

    @staticmethod
    def go_on(
        builder: TurnBuilder, variables: dict[Carry, Accumulator], after: dict[Carry, Atomic], inside: int
    ) -> list[Let]:
        """What the next turn goes on from, all at once: one may be what another was."""
        values = list(after.values())
        if len(values) > 1 or any(isinstance(v, Const) for v in values):
            values = [builder.let(v, inside) for v in values]
        pairs = zip(after, values, strict=True)
        return [Let(variables[c].name, value, inside) for c, value in pairs]
