"""The Launch IR: what each thread of a launch does, where its values are, and when threads wait.

    LaunchCode ::= grid x block, shared bytes, parameters, body: Statement*          a launch on a GPU
    PhaseCode  ::= programs, body: Statement*                                        a parallel loop on a CPU
    Statement  ::= Comment | Integer | Flag | Assign | Read | Write | For | If       on both
                 | Prefetch
                 | Pointer | Registers | Get | Put | Unroll | Shuffle | Barrier      on GPUs
                 | CopyAsync | CommitCopies | AwaitCopies | LoadMatrices | MultiplyAdd
                 | Address | Stream | Fence | Multiply | SortItems        on CPUs
    Memory     ::= Global(pointer) | Shared(first byte) | Apart(pointer, scope)
    Test       ::= Less | Equal | IsSet

    q = p * 4 + team                   Integer("q", ...)
    ok = q < 4096                      Flag("ok", Less(...))
    for k in unroll(3): ...            Unroll("k", 3, ...)
    v0 = read_f32(b0, r * 768 + e)     Read("v0", Global("b0", invariant=True), ...)
    barrier_team(team + 1, 64)         Barrier(Scope.TEAM, "each warp's sums are there", 64)

Every decision about threads, memory and barriers is taken when there is a LaunchCode; to write it down takes
none. Places are Index, values are Expr: a name in an Index is an integer, one in an Expr any scalar.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from jstitch.codegen.launch_calls import Multiply, SortItems
from jstitch.codegen.launch_places import Elements, Global, Memory, Shared, Test
from jstitch.ir.expr import Expr
from jstitch.ir.index import Index
from jstitch.ir.types import DType

# -- statements -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comment:
    """For readers only."""

    text: str


@dataclass(frozen=True)
class Pointer:
    """name = another name of the parameter `parameter`."""

    name: str
    parameter: str


@dataclass(frozen=True)
class Address:
    """name = pointer number `number` of the table that a kernel on a CPU receives, `offset` bytes on.

    number: None for the task's arena. nbytes: that lie there. about: what they are.
    """

    name: str
    number: Index | None
    offset: Index
    nbytes: int
    about: str


@dataclass(frozen=True)
class Integer:
    """name = value; with `within`, the nearest number that is at least the first and at most the second."""

    name: str
    value: Index
    within: tuple[Index, Index] | None = None


@dataclass(frozen=True)
class Flag:
    """name = test"""

    name: str
    test: Test


@dataclass(frozen=True)
class Assign:
    """name = value"""

    name: str
    value: Expr


@dataclass(frozen=True)
class Registers:
    """name = an array of `count` values of each thread's own."""

    name: str
    dtype: DType
    count: int


@dataclass(frozen=True)
class Get:
    """name = array[at]"""

    name: str
    array: str
    at: Index


@dataclass(frozen=True)
class Put:
    """array[at] = value"""

    array: str
    at: Index
    value: Expr


@dataclass(frozen=True)
class Read:
    """name = memory[at], as `dtype` is computed with; of width n > 1: an array of n neighbours."""

    name: str
    memory: Memory
    at: Index
    dtype: DType
    width: int = 1


@dataclass(frozen=True)
class Write:
    """memory[at] = value, rounded to dtype; of width n > 1: n neighbours."""

    memory: Memory
    at: Index
    dtype: DType
    value: Expr | Elements
    width: int = 1


@dataclass(frozen=True)
class Prefetch:
    """Ask for the line of memory that holds byte `at` of what `pointer` points to. nbytes: on GPUs (sm_90),
    for so many from piece `at` of 16 on, a multiple of 16.
    """

    pointer: str
    at: Index
    nbytes: int = 0


@dataclass(frozen=True)
class Stream:
    """Copy `nbytes` of the tile to byte `at` behind `pointer`, past the caches."""

    pointer: str
    at: Index
    tile: str
    nbytes: Index


@dataclass(frozen=True)
class Fence:
    """What was streamed is in memory for everyone."""


@dataclass(frozen=True)
class Shuffle:
    """name = what `value` is in the thread of the warp whose number differs in the bits of `mask`."""

    name: str
    value: str
    mask: int


@dataclass(frozen=True)
class CopyAsync:
    """16 bytes from to[at] on become those from source[place] on, while the thread goes on."""

    to: Shared
    at: Index
    source: Global
    place: Index
    dtype: DType


@dataclass(frozen=True)
class CommitCopies:
    """The copies that the thread began since the last such statement are a group."""


@dataclass(frozen=True)
class AwaitCopies:
    """Of the thread's groups of copies, at most `pending` are still under way afterwards."""

    pending: int


@dataclass(frozen=True)
class LoadMatrices:
    """array[first + n] = the thread's part of matrix n of four, of 8 rows of 16 bytes.

    memory[at]: in thread 8 * n + i of the warp, the first element of row i of matrix n. Thread 4 * i + j
    holds the 4 bytes number j of row i: elements 2 * j and 2 * j + 1 of 16 bits, or element j of f32; turned,
    which elements of 16 bits may be: of column i.
    """

    array: str
    first: Index
    memory: Shared
    at: Index
    dtype: DType
    turned: bool = False


@dataclass(frozen=True)
class MultiplyAdd:
    """sums[i, j] += sum over k of left[i, k] * right[k, j], 16 x 8 x 16 elements, by a warp (mma.m16n8k16).

    Arrays, each with the first element of the thread's part: four sums of f32; four pairs of the left
    operand, two of the right one, of elements of `dtype`. Those of f32 are rounded to tf32 before, and single
    elements instead of pairs: 16 x 8 x 8 (mma.m16n8k8).
    """

    sums: Elements
    left: Elements
    right: Elements
    dtype: DType


PIECE_BYTES = 16  # of one copy, of a row of a matrix


class Scope(enum.Enum):
    """Which threads wait for each other."""

    WARP = "warp"
    TEAM = "team"
    CTA = "cta"


@dataclass(frozen=True)
class Barrier:
    """All threads of the scope wait for each other. threads: of a TEAM."""

    scope: Scope
    why: str
    threads: int = 0


@dataclass(frozen=True)
class For:
    """name = low, low + step, ... while it is below `high`"""

    name: str
    low: Index
    high: Index
    step: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Unroll:
    """The body `count` times over; name = 0, 1, ..."""

    name: str
    count: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class If:
    test: Test
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()


Statement = (
    Comment
    | Pointer
    | Address
    | Integer
    | Flag
    | Assign
    | Registers
    | Get
    | Put
    | Read
    | Write
    | Prefetch
    | Stream
    | Fence
    | Multiply
    | SortItems
    | Shuffle
    | Barrier
    | CopyAsync
    | CommitCopies
    | AwaitCopies
    | LoadMatrices
    | MultiplyAdd
    | For
    | Unroll
    | If
)
Body = list[Statement]


# -- launches -------------------------------------------------------------------------------------------


Mode = Literal["read", "write", "update"]


@dataclass(frozen=True)
class Parameter:
    """One pointer. dtype: a DType's name in lower case. mode: what the launch does with the memory."""

    name: str
    dtype: str
    elements: int
    mode: Mode


@dataclass(frozen=True)
class LaunchCode:
    """`grid` CTAs of `block` threads, each with `shared_bytes` of shared memory.

    work: elements of light work, roughly. bytes_read, bytes_written: of memory, by all of them.
    """

    name: str
    grid: int
    block: int
    shared_bytes: int
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]
    work: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class PhaseCode:
    """What each of `programs` tasks of a CPU does. alone_ns: what one core takes for all of them."""

    name: str
    programs: int
    alone_ns: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class KernelCode:
    """A kernel on a CPU. operands, results: numbers of the kernel's, in the order of the table.

    scratch_bytes: that the table's last pointer leads to. arena_bytes: of each task.
    """

    phases: tuple[PhaseCode, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    scratch_bytes: int
    arena_bytes: int

    @property
    def scratch(self) -> int:
        """The number of the scratch's pointer in the table."""
        return len(self.operands) + len(self.results)
