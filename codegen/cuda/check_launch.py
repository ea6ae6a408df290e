"""Check a launch before it is written down: names, registers, shared memory, and who reaches a barrier.

    if r < 4095: ... barrier()      r is of a team, the barrier of the CTA: some threads may never reach it
    h1[k * 4 + j] of 12             k * 4 + j may reach 13

Barriers and shuffles need as many threads together as wait at them.
"""

from __future__ import annotations

from jstitch.codegen.check_body import ALL, BodyCheck, Value
from jstitch.codegen.cuda.deal import WARP
from jstitch.codegen.cuda.exchange import TEAM_BARRIERS
from jstitch.codegen.interval import Interval, point
from jstitch.codegen.launch_ir import (
    PIECE_BYTES,
    AwaitCopies,
    Barrier,
    CommitCopies,
    CopyAsync,
    Get,
    LaunchCode,
    LoadMatrices,
    MultiplyAdd,
    Pointer,
    Prefetch,
    Put,
    Read,
    Registers,
    Scope,
    Shuffle,
    Statement,
    Write,
)
from jstitch.codegen.launch_places import CTA, MOST_CTAS, THREAD, Apart, Global, Shared
from jstitch.ir.index import Index


def check_launch(launch: LaunchCode) -> tuple[str, ...]:
    """What is wrong with it, one line each; empty when nothing is."""
    walk = _LaunchCheck(launch)
    walk.body(launch.body, ALL)
    return tuple(walk.found)


class _LaunchCheck(BodyCheck):
    def __init__(self, launch: LaunchCode) -> None:
        thread = Value(Interval(0, launch.block - 1), 1, 1)
        cta = Value(Interval(0, min(launch.grid, MOST_CTAS) - 1))
        super().__init__({_name(THREAD): thread, _name(CTA): cta})
        self.launch = launch
        self.pointers = {p.name for p in launch.parameters}

    def own(self, s: Statement, alike: int) -> None:
        match s:
            case Pointer(name, parameter):
                self.pointer(parameter)
                self.pointers.add(name)
            case Registers(name, _, count):
                self.arrays[name] = count
            case Get(name, array, at):
                self.element(array, self.index(at), 1)
                self.names[name] = Value(alike=1)
            case Put(array, at, value):
                self.scalar(value)
                self.element(array, self.index(at), 1)
            case Shuffle(name, value, _):
                self.together(s, f"a shuffle of {value}", min(WARP, self.launch.block), alike)
                self.lookup(value)
                self.names[name] = Value(alike=1)
            case Barrier():
                self.barrier(s, alike)
            case CopyAsync() | LoadMatrices():
                self.matrices(s, alike)
            case MultiplyAdd(sums, left, right):
                self.together(s, "a product of a warp", WARP, alike)
                for part, width in ((sums, 4), (left, 4), (right, 2)):
                    self.element(part.array, self.index(part.first), width)
            case CommitCopies() | AwaitCopies():
                pass
            case Prefetch(pointer, at, nbytes):
                self.pointer(pointer)
                self.index(at)
                if nbytes <= 0 or nbytes % PIECE_BYTES:
                    self.complain(s, f"asks for {nbytes} bytes, not of whole pieces of {PIECE_BYTES}")
            case _:
                super().own(s, alike)

    def matrices(self, s: CopyAsync | LoadMatrices, alike: int) -> None:
        """What is copied, or read by a warp: neighbours of 16 bytes, at a multiple of so many."""
        at, count = self.index(s.at), PIECE_BYTES // s.dtype.itemsize
        if isinstance(s, LoadMatrices):
            self.together(s, "matrices of a warp", WARP, alike)
            self.element(s.array, self.index(s.first), 4)
        else:
            self.pointer(s.source.pointer)
            self.aligned(s, self.index(s.place), count)
        self.aligned(s, at, count)
        self.shared(s, s.memory if isinstance(s, LoadMatrices) else s.to, at, count, s.dtype.itemsize)

    def aligned(self, s: Statement, at: Value, count: int) -> None:
        if at.multiple % count:
            self.complain(s, f"begins at a multiple of {at.multiple} elements, of {count} it should be")

    # -- who is there ---------------------------------------------------------------------------------

    def barrier(self, s: Barrier, alike: int) -> None:
        match s.scope:
            case Scope.WARP:
                needed = min(WARP, self.launch.block)
            case Scope.TEAM:
                needed = s.threads
                if s.threads % WARP or self.launch.block > s.threads * TEAM_BARRIERS:
                    self.complain(s, f"teams of {s.threads} in a CTA of {self.launch.block} have no barriers")
            case Scope.CTA:
                needed = self.launch.block
        self.together(s, f"the barrier of a {s.scope.value}", needed, alike)

    def together(self, s: Statement, what: str, needed: int, alike: int) -> None:
        if alike < needed:
            self.complain(s, f"{what} needs {needed} threads, only {alike} surely come there together")

    # -- places ---------------------------------------------------------------------------------------

    def place(self, s: Read | Write, at: Value) -> int:
        match s.memory:
            case Global(pointer):
                self.pointer(pointer)
                return at.alike
            case Shared():
                return self.shared(s, s.memory, at, s.width, s.dtype.itemsize)
            case Apart(pointer):
                self.complain(s, f"is of {pointer}, in the memory of a CPU")
                return at.alike

    def shared(self, s: Statement, memory: Shared, at: Value, width: int, size: int) -> int:
        """How many threads touch the same `width` elements of `size` bytes; all within the CTA's memory."""
        start = self.index(memory.base)
        bytes_ = start.range + at.range * point(size)
        last = bytes_.high + width * size
        if bytes_.low < 0 or last > self.launch.shared_bytes:
            self.complain(s, f"may touch bytes [{bytes_.low}, {last}) of {self.launch.shared_bytes}")
        return min(at.alike, start.alike)

    def pointer(self, name: str) -> None:
        if name not in self.pointers:
            self.found[f"{name} is no pointer of this launch"] = None


def _name(e: Index) -> str:
    ((atom, _),) = e.terms
    return str(atom)
