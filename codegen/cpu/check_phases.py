"""Check a kernel's phases before they are written down: names, pointers, and the bytes that tasks touch.

    store_f32(b2, r * 768 + i, ...)      b2 has 4,096 x 768 elements, r may reach 4,096
    b5 = load_s64(bufs, 7, 0)            the table has 7 pointers

Places in a tile are distances from where a loop begins: r - q * 4 for r in [q * 4, q * 4 + 4). So the
variable of a loop of so many turns at most is looked at as its beginning and its turn, too.
"""

from __future__ import annotations

from jstitch.codegen.check_body import ALL, BodyCheck, Value
from jstitch.codegen.cpu.panel import PANEL_BYTES
from jstitch.codegen.interval import Interval, point
from jstitch.codegen.launch_calls import Multiply, SortItems
from jstitch.codegen.launch_ir import (
    Address,
    Fence,
    For,
    Integer,
    KernelCode,
    PhaseCode,
    Prefetch,
    Read,
    Statement,
    Stream,
    Unroll,
    Write,
)
from jstitch.codegen.launch_places import FAR, Apart
from jstitch.ir.index import Index, Var, add, const, mul, substitute, var
from jstitch.ir.types import DType


def check_phases(code: KernelCode) -> tuple[str, ...]:
    """What is wrong, one line each; empty when nothing is."""
    return tuple(found for phase in code.phases for found in _check(phase, code))


def _check(phase: PhaseCode, code: KernelCode) -> tuple[str, ...]:
    walk = _PhaseCheck(phase, code)
    walk.body(phase.body, ALL)
    return tuple(f"{phase.name}: {found}" for found in walk.found)


class _PhaseCheck(BodyCheck):
    """sizes: bytes behind each pointer. most: what an integer is at most. turns: a loop's variable as its
    beginning and its turn.
    """

    def __init__(self, phase: PhaseCode, code: KernelCode) -> None:
        super().__init__({"program": Value(Interval(0, phase.programs - 1))})
        self.code, self.sizes = code, dict[str, int]()
        self.most, self.turns = dict[str, Index](), dict[str, Index]()

    def statement(self, s: Statement, alike: int) -> None:
        super().statement(s, alike)
        match s:
            case Integer(name, value, within):
                least = self.index(value).range.low
                if within is None or (within[0] == const(0) and least >= 0):
                    self.most[name] = value

    def loop(self, s: For | Unroll, alike: int) -> None:
        turns = add(self.at_most(s.high), mul(s.low, -1)) if isinstance(s, For) else const(-1)
        self.turns.pop(s.name, None)
        if isinstance(s, For) and turns.is_const and turns.const > 0 and s.low != const(0):
            turn = f"{s.name} turn"
            self.names[turn] = Value(Interval(0, turns.const - 1))
            self.turns[s.name] = add(s.low, var(Var(turn, FAR)))
        super().loop(s, alike)

    def at_most(self, e: Index) -> Index:
        """e, or more: integers that it grows with as what they are at most."""
        found = const(e.const)
        for atom, k in e.terms:
            most = self.most.get(atom.name) if isinstance(atom, Var) and k > 0 else None
            found = add(found, mul(var(atom) if most is None else most, k))
        return found

    def index(self, e: Index) -> Value:
        """Variables by their names alone; a loop's by where it begins, where that cancels something."""
        found = _by_name(e)
        for atom, k in found.terms:
            if isinstance(atom, Var) and atom.name in self.turns:
                other = add(found, mul(add(_by_name(self.turns[atom.name]), mul(var(atom), -1)), k))
                found = other if len(other.terms) <= len(found.terms) else found
        return super().index(found)

    def own(self, s: Statement, alike: int) -> None:
        match s:
            case Address(name):
                self.address(s)
                self.sizes[name] = s.nbytes
            case Prefetch(pointer, at):  # past the end nothing happens
                self.size(pointer)
                self.index(at)
            case Stream(pointer, at, tile, nbytes):  # where it ends hangs on who has the block: the beginning
                self.span(s, pointer, self.index(at).range.low, self.index(at).range.low)
                copied = self.index(self.at_most(nbytes)).range.high
                if copied > self.size(tile):
                    self.complain(s, f"copies {copied} bytes of {tile}, which has {self.size(tile)}")
            case Multiply():
                self.multiply(s)
            case SortItems(items, room, count):
                self.sort(s, items, room, count)
            case Fence():
                pass
            case _:
                super().own(s, alike)

    def multiply(self, s: Multiply) -> None:
        """Tiles lie behind their pointers, and nobody else has the panel."""
        for tile, sizes in s.tiles:
            at = self.index(tile.at).range
            last = sum((n - 1) * stride for n, stride in zip(sizes, tile.strides, strict=True))
            size = tile.dtype.itemsize
            self.span(s, tile.memory.pointer, at.low * size, (at.high + last + 1) * size)
            if tile.memory.scope == s.panel.scope or (
                tile is not s.result and tile.memory == s.result.memory
            ):
                self.complain(s, f"writes {tile.memory.pointer}, which it reads")
        if s.result.dtype is not DType.F32:
            self.complain(s, "has sums of another type than f32")
        if s.result.strides[1] != 1 or min(s.sizes) < 1:
            self.complain(s, "has no columns that lie side by side")
        if self.size(s.panel.pointer) < PANEL_BYTES:
            self.complain(s, f"packs {PANEL_BYTES} bytes into {self.size(s.panel.pointer)}")

    def sort(self, s: SortItems, items: Apart, room: Apart, count: int) -> None:
        """Both tiles hold all words, and nobody else has the second one."""
        for tile in (items, room):
            if self.size(tile.pointer) < count * DType.U64.itemsize:
                self.complain(s, f"sorts {count} words in {self.size(tile.pointer)} bytes")
        if items.scope == room.scope:
            self.complain(s, f"writes {items.pointer}, which it reads")

    def address(self, s: Address) -> None:
        """The pointer is one of the table's, and what lies there is inside its memory."""
        number = point(-1) if s.number is None else self.index(s.number).range
        if number.high > self.code.scratch or (s.number is not None and number.low < 0):
            self.complain(s, f"pointer {number.high} of {self.code.scratch + 1}")
        last = self.index(s.offset).range.high + s.nbytes
        if s.number is None:
            room = self.code.arena_bytes
        elif number.low == self.code.scratch:
            room = self.code.scratch_bytes
        else:
            return
        if last > room:
            self.complain(s, f"{s.about} ends at byte {last} of {room}")

    def place(self, s: Read | Write, at: Value) -> int:
        match s.memory:
            case Apart(pointer):
                size = s.dtype.itemsize
                self.span(s, pointer, at.range.low * size, at.range.high * size + size)
            case _:
                self.complain(s, "is about the memory of a GPU")
        return ALL

    def span(self, s: Statement, pointer: str, first: int, end: int) -> None:
        """Bytes [first, end) lie behind the pointer."""
        if first < 0 or end > self.size(pointer):
            self.complain(s, f"may touch bytes [{first}, {end}) of {self.size(pointer)} behind {pointer}")

    def size(self, pointer: str) -> int:
        if pointer not in self.sizes:
            self.found[f"{pointer} is no pointer of this phase"] = None
        return self.sizes.get(pointer, 0)


def _by_name(e: Index) -> Index:
    """Whoever wrote it may have known how far a variable goes."""
    return substitute(e, lambda atom: var(Var(atom.name, FAR)) if isinstance(atom, Var) else None)
