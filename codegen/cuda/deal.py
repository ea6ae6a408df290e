"""How the loops of a nest are dealt out to the threads of a team.

for i0: x -> y                           SPREAD   elements go round the threads, in memory order
acc; for i0: acc += x                    REDUCE   the same, then the threads combine their accumulators
for i1: acc; for i0: acc += x[i0, i1]    KEEP     kept elements go round the threads, each sums its own; where
                                                  they are few, several threads share the sum of one
no loops                                 UNIFORM  every thread does the same
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jstitch.codegen.kernel_ir import ROW, Buffer, Combine, Instr, Let, Loop, Nest
from jstitch.ir.expr import Ref
from jstitch.ir.index import Dynamic, Index, Var, atoms, delinearize, substitute, var

ELEMENT = "e"  # the number of an element among those that are dealt out
DEALT = "x_"  # a dealt loop's variable goes by its name behind this: in another nest it may be a loop's
WARP = 32
LONG = 64  # turns of a loop over elements that are not neighbours
TURNS = 4  # of a thread that shares the sum of an element with others of its team
VECTOR_BYTES = 16
MAX_WIDTH = 8


class Mode(enum.Enum):
    UNIFORM = "uniform"
    SPREAD = "spread"
    REDUCE = "reduce"
    KEEP = "keep"


@dataclass(frozen=True, eq=False)
class Dealt:
    """A nest's loops inside its row: `serial` outside, `loops` dealt out, `inner` inside one thread.

    rows: loops of the nest that belong to the row (0 or 1).
    """

    nest: Nest
    mode: Mode
    rows: int
    serial: tuple[Loop, ...]
    loops: tuple[Loop, ...]
    inner: tuple[Loop, ...]

    @property
    def size(self) -> int:
        return math.prod(loop.var.extent for loop in self.loops)

    @cached_property
    def element(self) -> dict[str, Index]:
        """The dealt loops' variables as parts of the element's number."""
        if not self.loops:
            return {}
        extents = [loop.var.extent for loop in self.loops]
        parts = delinearize(var(Var(ELEMENT, self.size)), extents)
        return {loop.var.name: part for loop, part in zip(self.loops, parts, strict=True)}

    def offset(self, e: Index) -> Index:
        """An offset in terms of the element's number."""
        return substitute(e, lambda a: self.element.get(a.name) if isinstance(a, Var) else None)

    def level(self, instr: Instr) -> int:
        """Loops inside the row around an instruction: of a dealt element, at least all dealt ones."""
        depth = max(0, instr.depth - self.rows)
        inside = len(self.serial) + len(self.loops)
        return depth if depth <= len(self.serial) else max(depth, inside)

    @property
    def combines(self) -> tuple[Combine, ...]:
        """How a team's accumulators of one row become one; partial results wait for the last row."""
        return tuple(c for c in self.nest.combines if not c.buffers)

    @property
    def divisible(self) -> bool:
        """Whether several threads can share the sum of an element."""
        names = {name for c in self.combines for name in c.names}
        alike = all(max(0, a.depth - self.rows) == len(self.loops) for a in self.nest.accumulators)
        return self.mode is Mode.KEEP and alike and all(a.name in names for a in self.nest.accumulators)

    @property
    def long(self) -> bool:
        """Whether each thread makes sums so long that several threads had better share one."""
        return self.divisible and self.inner[0].hi >= LONG

    def sharing(self, threads: int) -> int:
        """In how many parts a team of so many threads makes the sums of elements that are fewer: 1, 2, 4, ...

        Every part has at least `TURNS` turns of the outermost loop that is summed over.
        """
        if not self.divisible or threads < 2 * WARP:
            return 1
        most = min(threads // self.size, self.inner[0].hi // TURNS)
        return 1 << max(0, most.bit_length() - 1)

    @property
    def instructions(self) -> tuple[Instr, ...]:
        return self.nest.instructions


def deal(nest: Nest, flat: bool = False) -> Dealt:
    """The way in which a team works on a nest. flat: its row loop is dealt out as well."""
    rows = 0 if flat else sum(loop.var.name == ROW for loop in nest.loops)
    loops = nest.loops[rows:]
    depths = {max(0, a.depth - rows) for a in nest.accumulators}
    if not loops:
        return Dealt(nest, Mode.UNIFORM, rows, (), (), ())
    if not depths:
        assert not nest.after, "nothing is behind turns that threads share"
        return Dealt(nest, Mode.SPREAD, rows, (), loops, ())
    depth = max(depths)
    if depth == 0:
        return Dealt(nest, Mode.REDUCE, rows, (), loops, ())
    kept, reduced = loops[:depth], loops[depth:]
    if _by_teams(nest, kept, reduced):
        return Dealt(nest, Mode.REDUCE, rows, kept, reduced, ())
    return Dealt(nest, Mode.KEEP, rows, (), kept, reduced)


def _by_teams(nest: Nest, kept: Sequence[Loop], reduced: Sequence[Loop]) -> bool:
    """Whether a whole team sums one kept element after another: long sums of neighbours in memory."""
    offsets = [i.offset for i in nest.body if not isinstance(i, Let)]
    own = [e for e in offsets if any(mentions(e, loop.var.name) for loop in kept)]
    near = any((reduced[-1].var, 1) in e.terms for e in own)
    if not nest.combines:  # what goes on from turn to turn is no sum
        return False
    resumed = any(isinstance(a.init, Ref) for a in nest.accumulators)
    return near and not resumed and math.prod(loop.hi for loop in reduced) >= WARP


def mentions(e: Index, name: str) -> bool:
    return any(isinstance(a, Var) and a.name == name for a in atoms([e]))


def is_dynamic(e: Index) -> bool:
    return any(isinstance(a, Dynamic) for a in atoms([e]))


def vector_of(buffer: Buffer, offset: Index, width: int) -> int:
    """Elements of one vector access for `width` neighbouring elements e, e + 1, ...; 1: no vector."""
    rest = [(a, k) for a, k in offset.terms if not (isinstance(a, Var) and a.name == ELEMENT and k == 1)]
    if len(rest) == len(offset.terms) or any(mentions(Index(0, ((a, k),)), ELEMENT) for a, k in rest):
        return 1
    n = min(width, VECTOR_BYTES // buffer.type.dtype.itemsize)
    while n > 1 and (offset.const % n or any(k % n for _, k in rest)):
        n //= 2
    return n
