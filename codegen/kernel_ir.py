"""The Kernel IR: what a stitched kernel does, for every target.

    Kernel ::= buffers: Buffer*  phases: Phase*           phases are separated by a barrier (CPU) or a launch
    Phase  ::= lanes: Lane*                               independent; their programs share one grid (packing)
    Lane   ::= rows R, step s, programs P, stages: Stage* a program runs its share of the R/s steps in order
    Stage  ::= prefetches: Prefetch*  nests: Nest*        a barrier (block composition) between two stages;
                                                          neighbours with one `turn` are a loop of stages
    Nest   ::= loops: Loop*  accumulators: Accumulator*  body: Instr*
           | Product | Sorting                            and what a call of a function does so
    Instr  ::= Load | Let | Store                         scalar; `depth` = number of loops around it
             | LoadPair | StorePair | Streamed            what passes over a target's kernels make of them

A lane's row r owns elements [r * n / R, (r + 1) * n / R) of every blocked tensor of n elements, so a program
never needs another's values before the next phase. Nothing here is specific to a target: threads, vector
width and the meaning of a barrier are the emitters' business. Scalars are expressions (jstitch.ir.expr).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jstitch.codegen.in_turns import in_turns
from jstitch.ir.expr import Expr
from jstitch.ir.index import Index, Var, bounds
from jstitch.ir.types import DType, TensorType
from jstitch.template import Template


class Space(enum.Enum):
    """Where a buffer lives; the composition scheme of the edge between its writer and its readers."""

    ARG = "argument"
    RESULT = "result"
    SCRATCH = "scratch"  # global memory of one call: edges between phases
    ARENA = "arena"  # private to a program, reused from step to step: block composition


@dataclass(frozen=True, eq=False)
class Buffer:
    """A named tensor; in the ARENA, rows of a step. offset: in bytes, in the call's scratch or the arena."""

    name: str
    type: TensorType
    space: Space
    number: int = 0
    offset: int = 0


class InPairs(Buffer):
    """Of complex numbers: the real and imaginary parts in turn, whose type it has."""


@dataclass(frozen=True)
class Load:
    """name = buffer[offset], in the buffer's compute type."""

    name: str
    buffer: Buffer
    offset: Index
    depth: int


@dataclass(frozen=True)
class Let:
    """name = expression."""

    name: str
    value: Expr
    depth: int


@dataclass(frozen=True)
class Store:
    """buffer[offset] = value, rounded to the buffer's type."""

    buffer: Buffer
    offset: Index
    value: Expr
    depth: int


@dataclass(frozen=True)
class LoadPair(Load):
    """name = the word that holds elements `offset`, an even number, and the next, of 16 bits each."""


@dataclass(frozen=True)
class StorePair(Store):
    """Elements `offset`, an even number, and the next become `value` and `second`."""

    second: Expr


@dataclass(frozen=True)
class Streamed(Store):
    """A store that goes to `buffer` by way of a tile.

    place: the element of the tile. target: the element of the buffer where the tile begins. loop: the number
    of the loop after which the tile goes to memory. whole: it holds all that this loop writes; if not, the
    loop is cut into blocks as long as the tile, each of which begins at START.
    """

    tile: Buffer
    place: Index
    target: Index
    loop: int
    whole: bool


Instr = Load | Let | Store


@dataclass(frozen=True)
class Loop:
    """for var in range(lo, hi).

    each: rows that a turn takes, of the row loop of a flat lane, which runs over the program's share.
    """

    var: Var
    lo: int
    hi: int
    each: int = 1

    @property
    def mean(self) -> float:
        """Turns, where they depend on nothing."""
        return self.hi - self.lo


@dataclass(frozen=True)
class Unless:
    """Whether some row of a step has no more than `above` in `tile`; its rows have an element each."""

    tile: Buffer
    above: float


@dataclass(frozen=True)
class Turns(Loop):
    """The turns of a loop of stages before number `first` of the step, or those from there on.

    unless: what has to be so for these; None: they are the turns before.
    """

    first: Index = field(kw_only=True)
    unless: Unless | None = None

    @property
    def mean(self) -> float:
        """Of turns, where they are expected: before `first`."""
        if self.unless is not None:
            return 0.0
        low, high = bounds(self.first)
        return (low + high) / 2


@dataclass(frozen=True)
class Accumulator:
    """A running value over the loops deeper than `depth`: name = init before them."""

    name: str
    init: Expr
    depth: int
    dtype: DType


@dataclass(frozen=True)
class Combine:
    """How values of accumulators that were made apart become one: names = results, after lets.

    The expressions read the accumulators' names, and the same names with OTHER appended. buffers: the partial
    results of a program, one for each name, when it is these that the values go on from and end up in.
    """

    names: tuple[str, ...]
    lets: tuple[Let, ...]
    results: tuple[Expr, ...]
    buffers: tuple[Buffer, ...] = ()


@dataclass(frozen=True)
class Nest:
    """One loop nest. The row loop comes first; inside a step of an unrolled stage there is none.

    body: instructions that run at their depth before deeper loops; `after` run at their depth after them.
    """

    loops: tuple[Loop, ...]
    accumulators: tuple[Accumulator, ...]
    body: tuple[Instr, ...]
    after: tuple[Instr, ...]
    combines: tuple[Combine, ...] = ()

    @property
    def instructions(self) -> tuple[Instr, ...]:
        """At all depths: the body's, then those after it."""
        return (*self.body, *self.after)


@dataclass(frozen=True)
class Matrix:
    """Element [i, j] is that of `buffer` at first + i * strides[0] + j * strides[1]; first: of a step."""

    buffer: Buffer
    first: Index
    strides: tuple[int, int]


class Called(Nest):
    """A nest that runs as a call of a function; its loops say what that computes."""


@dataclass(frozen=True, kw_only=True)
class Product(Called):
    """A nest that computes result[i, j] = sum over k of left[i, k] * right[k, j] for the rows i of a step.

    sizes: how many i, j and k there are. panel: room for a part of the right operand, on a CPU.
    """

    left: Matrix
    right: Matrix
    result: Matrix
    sizes: tuple[int, int, int]
    panel: Buffer | None = None


@dataclass(frozen=True, kw_only=True)
class Sorting(Called):
    """A nest that sorts words by their upper halves, equal ones as they were. room: a second tile."""

    items: Buffer
    room: Buffer


@dataclass(frozen=True)
class Prefetch:
    """Lines [first, last) of a buffer's rows are asked for, of those that the step `ahead` of this one uses.

    nbytes: of a step's rows.
    """

    buffer: Buffer
    nbytes: int
    first: int
    last: int
    ahead: int


@dataclass(frozen=True)
class Stage:
    """Nests with no barrier between them, and what they are for. `once`: per program, not per step.

    lines: of the user's code that they come from, with the ops of each. prefetches: before the nests.
    turn: the loop that the stage and its neighbours with the same one are in, a turn after another.
    """

    nests: tuple[Nest, ...]
    note: str
    once: bool = False
    lines: tuple[str, ...] = ()
    prefetches: tuple[Prefetch, ...] = ()
    turn: Loop | None = None

    @property
    def turns(self) -> float:
        """How often a step does it, in the mean."""
        return 1.0 if self.turn is None else self.turn.mean


START = Var("start", 1 << 62)  # of a block: the loop's variable in its first turn
OTHER = "_other"
ROW = "r"  # the row loop's variable
STEP = "q"  # the number of the current row step
ROW_IN_STEP = "row_in_step"
FLAT_ALIGN = 16  # elements; flat lanes are cut at multiples, so that vector loops start aligned
PROGRAM = "p"  # the program's number in its lane
STRIP = "strip"  # the program's strip of columns
CACHE_LINE = 64  # bytes


@dataclass(frozen=True)
class Lane:
    """Rows of one row space, cut into steps of `step` rows, spread over `programs` programs.

    threads: that share a row, where the target has any; 0: as many as it takes. exact: whether a template
    asks for these threads; counted: for these programs. shares: whether values that are never live at once
    may share bytes of the arena. owns: columns of the strip that a row is (a Column schedule); 0: it is none.
    period: rows of an inner loop, by which indices divide a row's number; 1: one loop. block: rows of a flat
    lane that go through all its stages; 0: all. common: tiles that keep what a program's once-stages leave.
    """

    rows: int
    step: int
    programs: int
    stages: tuple[Stage, ...]
    flat: bool  # rows are elements: the row loop is the innermost, vectorised one
    work: int  # elements of light work, roughly
    threads: int = 0
    exact: bool = False
    counted: bool = False
    shares: bool = True
    owns: int = 0
    period: int = 1
    block: int = 0
    common: tuple[Buffer, ...] = ()

    @property
    def loops(self) -> list[tuple[Loop | None, range]]:
        """Loops of stages, with the numbers of these; None: a stage that is in none."""
        return in_turns([stage.turn for stage in self.stages])

    @property
    def leaves_out(self) -> bool:
        """Whether some of its stages have turns that most steps do without."""
        return any(isinstance(stage.turn, Turns) for stage in self.stages)

    @property
    def multiplies(self) -> bool:
        """Whether some of its nests are products of matrices."""
        return any(isinstance(nest, Product) for stage in self.stages for nest in stage.nests)

    @property
    def rows_in_words(self) -> str:
        return f"{self.rows} strips of {self.owns} columns" if self.owns else f"{self.rows} rows"

    @property
    def share(self) -> int:
        """Rows of a flat lane that each program takes: an even share, rounded up to whole vectors."""
        return -(-self.rows // (self.programs * FLAT_ALIGN)) * FLAT_ALIGN


@dataclass(frozen=True)
class StripLane(Lane):
    """A lane whose programs take a strip of columns of a band of rows: p = band * strips + strip.

    before: stages about the strip's columns alone; every band runs them, the first one stores their results.
    """

    strips: int = 1
    columns: int = 0
    before: int = 0

    @property
    def bands(self) -> int:
        return self.programs // self.strips


@dataclass(frozen=True)
class Phase:
    """What ends before the next one begins. alone_ns: nanoseconds on one core of a CPU, as modelled."""

    lanes: tuple[Lane, ...]
    alone_ns: int = 0


@dataclass(frozen=True, eq=False)
class Kernel:
    """One custom call. `aliases`: result number -> argument number written in place.

    updates: numbers of results of which the kernel writes a part, and leaves the rest as the argument has it.
    template: its schedules, as one can write them down.
    """

    name: str
    args: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    arena: tuple[Buffer, ...]
    phases: tuple[Phase, ...]
    scratch_bytes: int
    arena_bytes: int
    aliases: Mapping[int, int] = field(default_factory=dict)
    updates: frozenset[int] = frozenset()
    template: Template | None = None

    @property
    def in_place(self) -> dict[Buffer, Buffer]:
        """Results, and the arguments whose memory they take."""
        return {self.results[r]: self.args[a] for r, a in self.aliases.items()}

    @property
    def products(self) -> int:
        """How many nests go by tiles of registers; turns that are left out repeat those of others."""
        stages = (stage for phase in self.phases for lane in phase.lanes for stage in lane.stages)
        own = (s for s in stages if not isinstance(s.turn, Turns) or s.turn.unless is None)
        return sum(isinstance(nest, Product) for stage in own for nest in stage.nests)

    def instructions(self) -> Iterator[tuple[int, int, int, Instr]]:
        """Every instruction with its (phase, lane, stage) position."""
        for p, phase in enumerate(self.phases):
            for q, lane in enumerate(phase.lanes):
                for s, stage in enumerate(lane.stages):
                    for nest in stage.nests:
                        for instr in nest.instructions:
                            yield p, q, s, instr
