"""Launch IR -> the text of its functions, for both targets: one line a statement, and no decision.

def phase0(x, y):
    t = remainder_pos(thread(), 64)
    for k in unroll(3):
        v0 = read_f32(x, k * 64 + t)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch

from jstitch.codegen.branches import indent
from jstitch.codegen.launch_calls import Multiply, SortItems
from jstitch.codegen.launch_ir import (
    PIECE_BYTES,
    Address,
    Assign,
    AwaitCopies,
    Barrier,
    Comment,
    CommitCopies,
    CopyAsync,
    Fence,
    Flag,
    For,
    Get,
    If,
    Integer,
    LaunchCode,
    LoadMatrices,
    MultiplyAdd,
    PhaseCode,
    Pointer,
    Prefetch,
    Put,
    Read,
    Registers,
    Scope,
    Shuffle,
    Statement,
    Stream,
    Unroll,
    Write,
)
from jstitch.codegen.launch_places import Apart, Elements, Equal, Global, IsSet, Less, Memory, Shared, Test
from jstitch.codegen.print_expr import print_expr
from jstitch.codegen.print_index import print_index
from jstitch.ir.index import const
from jstitch.ir.types import DType
from jstitch.ir.visible import visible


def print_launch(launch: LaunchCode) -> str:
    """The function of one launch."""
    head = f"def {launch.name}({', '.join(p.name for p in launch.parameters)}):"
    return "\n".join([head, *indent(print_body(launch.body))])


def print_phase(phase: PhaseCode) -> str:
    """The function of one phase of a kernel on a CPU."""
    return "\n".join([f"def {phase.name}(bufs, arena, program):", *indent(print_body(phase.body))])


def print_body(body: Iterable[Statement]) -> Iterator[str]:
    for s in body:
        yield from _lines(s)


def _comment(text: str) -> str:
    """On its line to the end: what follows a line break would be code."""
    return visible(text, len(text))


@singledispatch
def _lines(s: object) -> Iterable[str]:
    raise TypeError(f"expected a statement of the Launch IR, found {type(s).__name__}")


@_lines.register
def _(s: Comment) -> Iterable[str]:
    yield f"# {_comment(s.text)}"


@_lines.register
def _(s: Pointer) -> Iterable[str]:
    yield f"{s.name} = {s.parameter}"


@_lines.register
def _(s: Address) -> Iterable[str]:
    base = "arena" if s.number is None else f"load_s64(bufs, {print_index(s.number)}, 0)"
    offset = "" if s.offset == const(0) else f" + {print_index(s.offset)}"
    yield f"{s.name} = {base}{offset}  # {_comment(s.about)}"


@_lines.register
def _(s: Prefetch) -> Iterable[str]:
    place = f"{s.pointer}, {print_index(s.at)}"
    yield f"prefetch_bulk({place}, {s.nbytes})" if s.nbytes else f"prefetch({place})"


@_lines.register
def _(s: Stream) -> Iterable[str]:
    yield f"stream({s.pointer}, {print_index(s.at)}, {s.tile}, {print_index(s.nbytes)})"


@_lines.register
def _(s: Fence) -> Iterable[str]:
    yield "end_streams()"


@_lines.register
def _(s: Multiply) -> Iterable[str]:
    places = [f"{tile.memory.pointer}, {print_index(tile.at)}" for tile, _ in s.tiles]
    strides = [str(stride) for tile, _ in s.tiles for stride in tile.strides]
    del strides[1]  # columns of a result lie side by side
    types = "_".join(suffix(tile.dtype) for tile in (s.left, s.right))
    yield f"multiply_{types}({', '.join([*places, s.panel.pointer, *strides, *map(str, s.sizes)])})"


@_lines.register
def _(s: SortItems) -> Iterable[str]:
    yield f"sort_items({s.items.pointer}, {s.room.pointer}, {s.count})"


@_lines.register
def _(s: Integer) -> Iterable[str]:
    value = print_index(s.value)
    if s.within is not None:
        low, high = map(print_index, s.within)
        value = f"clamp_index({value}, {low}, {high})"
    yield f"{s.name} = {value}"


@_lines.register
def _(s: Flag) -> Iterable[str]:
    yield f"{s.name} = {_test(s.test)}"


@_lines.register
def _(s: Assign) -> Iterable[str]:
    yield f"{s.name} = {print_expr(s.value)}"


@_lines.register
def _(s: Registers) -> Iterable[str]:
    yield f"{s.name} = registers_{suffix(s.dtype)}({s.count})"


@_lines.register
def _(s: Get) -> Iterable[str]:
    yield f"{s.name} = {s.array}[{print_index(s.at)}]"


@_lines.register
def _(s: Put) -> Iterable[str]:
    yield f"{s.array}[{print_index(s.at)}] = {print_expr(s.value)}"


@_lines.register
def _(s: Read) -> Iterable[str]:
    yield f"{s.name} = {_access('load', s)}{_scope(s.memory)})"


@_lines.register
def _(s: Write) -> Iterable[str]:
    match s.value:
        case Elements(array, first):
            value = f"{array}, {print_index(first)}"
        case value_:
            value = print_expr(value_)
    yield f"{_access('store', s)}, {value}{_scope(s.memory)})"


@_lines.register
def _(s: Shuffle) -> Iterable[str]:
    yield f"{s.name} = shuffle_xor({s.value}, {s.mask})"


@_lines.register
def _(s: Barrier) -> Iterable[str]:
    match s.scope:
        case Scope.WARP:
            call = "barrier_warp()"
        case Scope.TEAM:
            call = f"barrier_team(team + 1, {s.threads})"
        case Scope.CTA:
            call = "barrier()"
    yield f"{call}  # {_comment(s.why)}"


def _piece(dtype: DType) -> str:
    """16 bytes of such elements."""
    return f"{suffix(dtype)}x{PIECE_BYTES // dtype.itemsize}"


@_lines.register
def _(s: CopyAsync) -> Iterable[str]:
    places = f"{_first(s.to)}, {print_index(s.at)}, {s.source.pointer}, {print_index(s.place)}"
    yield f"shared_copy_{_piece(s.dtype)}({places})"


@_lines.register
def _(s: CommitCopies) -> Iterable[str]:
    yield "commit_copies()"


@_lines.register
def _(s: AwaitCopies) -> Iterable[str]:
    yield f"await_copies({s.pending})"


@_lines.register
def _(s: LoadMatrices) -> Iterable[str]:
    verb = "turned" if s.turned else "matrices"
    places = f"{_first(s.memory)}, {print_index(s.at)}, {s.array}, {print_index(s.first)}"
    yield f"shared_{verb}_{_piece(s.dtype)}({places})"


@_lines.register
def _(s: MultiplyAdd) -> Iterable[str]:
    parts = (f"{part.array}, {print_index(part.first)}" for part in (s.sums, s.left, s.right))
    yield f"multiply_add_{suffix(s.dtype)}({', '.join(parts)})"


@_lines.register
def _(s: For) -> Iterable[str]:
    low, high = print_index(s.low), print_index(s.high)
    step = f", {s.step}" if s.step != 1 else ""
    yield f"for {s.name} in range({low}, {high}{step}):"
    yield from _inside(s.body)


@_lines.register
def _(s: Unroll) -> Iterable[str]:
    yield f"for {s.name} in unroll({s.count}):"
    yield from _inside(s.body)


@_lines.register
def _(s: If) -> Iterable[str]:
    yield f"if {_test(s.test)}:"
    yield from _inside(s.body)
    if s.orelse:
        yield "else:"
        yield from _inside(s.orelse)


# -- parts ------------------------------------------------------------------------------------------------


def suffix(dtype: DType) -> str:
    """What memory's functions have at their end."""
    return dtype.name.lower()


def _inside(body: Iterable[Statement]) -> list[str]:
    return indent(print_body(body)) or indent(["pass"])


def _test(test: Test) -> str:
    match test:
        case Less(left, right):
            return f"{print_index(left)} < {print_index(right)}"
        case Equal(left, right):
            return f"{print_index(left)} == {print_index(right)}"
        case IsSet(name):
            return name


def _access(verb: str, s: Read | Write) -> str:
    """The call of a memory function, up to the element's number."""
    tail = f"{suffix(s.dtype)}x{s.width}" if s.width > 1 else suffix(s.dtype)
    return f"{_function(verb, s.memory)}_{tail}({_first(s.memory)}, {print_index(s.at)}"


def _function(verb: str, memory: Memory) -> str:
    match memory:
        case Shared():
            return f"shared_{verb}"
        case Global(_, invariant):
            return "read" if invariant and verb == "load" else verb
        case Apart():
            return verb


def _first(memory: Memory) -> str:
    match memory:
        case Shared(base):
            return print_index(base)
        case Global(pointer) | Apart(pointer):
            return pointer


def _scope(memory: Memory) -> str:
    """The last argument of an access on a CPU."""
    return f", {memory.scope}" if isinstance(memory, Apart) else ""
