"""Where a row lane keeps what its threads hold: registers, the arena, or memory.

    t0 of one element a row      a variable that every thread has        (thread composition)
    t3[e], touched by its own    registers, if they fit
    t5, touched by other threads the arena, behind a barrier             (block composition)
    x[r * n + e], read twice     registers or the arena after the first read: a row is read once
    s0[p * n + e] += ...         registers over all rows of a program, written at its end

Registers first, then the arena. A row that is read again and finds no room for all of it is kept in part:
its first rounds in the arena, the next ones in registers, and the rest is read from memory again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jstitch.codegen.cuda.deal import MAX_WIDTH, WARP, Dealt, Mode, deal, vector_of
from jstitch.codegen.cuda.exchange import Team, exchange_bytes, slices_bytes
from jstitch.codegen.cuda.share_arena import LATE, Life, find_offset, life_of
from jstitch.codegen.cuda.wanted import Carry, Kept, Wanted, find_carries
from jstitch.codegen.kernel_ir import Buffer, Lane, Let, Load, Space, Store
from jstitch.ir.index import Index, Var, atoms
from jstitch.ir.reason import Reason
from jstitch.ir.types import DType

MOST_THREADS = 1024
REGISTERS_PER_CTA = 65536
WORDS = 64  # 32-bit registers of a thread that hold parts of a row, at most
WORKING = 48  # those that a thread needs besides, where as many as possible are to hold rows
UNROLLED = 32  # rounds up to which a loop over registers is written out
MANY = 1 << 62
ITEMS = 16  # elements of a row for each thread
TOO_LARGE = "needs {found} bytes of shared memory for a CTA, the target has {bound}"


class NoRoom(Exception):
    """A lane that cannot hold its tiles in the arena; the message, and `reason`, say what it needs."""

    def __init__(self, reason: str | Reason) -> None:
        self.reason = Reason("form", reason) if isinstance(reason, str) else reason
        super().__init__(str(reason))


@dataclass(frozen=True)
class Scalar:
    """One value that every thread of the team has."""

    name: str


@dataclass(frozen=True)
class InRegisters:
    """Elements of each thread's own."""

    name: str


@dataclass(frozen=True)
class InArena:
    """Bytes [offset, offset + size) of each team's share. own: no thread touches another's elements."""

    offset: int
    own: bool


@dataclass(frozen=True)
class Common:
    """Bytes of the arena from `offset` on, the same for all teams of a CTA, whichever row they are at."""

    offset: int


@dataclass(frozen=True)
class InParts:
    """Rounds [0, first) of a row in the arena, [first, last) in registers, the others in memory only."""

    arena: InArena | None
    first: int
    registers: InRegisters
    last: int

    def part(self, k: int) -> InArena | InRegisters | None:
        """Where round k is."""
        if k < self.first:
            return self.arena
        return self.registers if k < self.last else None


Tile = Scalar | InRegisters | InArena | Common
Home = Tile | InParts


@dataclass(eq=False)
class Homes:
    """Decisions for one lane. widths: vector width of each size of dealt loops.

    parted: threads of a team may share an element's sum.
    """

    lane: Lane
    stages: list[list[Dealt]]
    carries: dict[Buffer, Carry]
    widths: dict[int, int]
    team: Team
    tiles: dict[Buffer, Tile] = field(default_factory=dict)
    kept: dict[Kept, Home] = field(default_factory=dict)  # filled: those that were loaded already
    filled: set[Kept] = field(default_factory=set)
    unrolled: set[int] = field(default_factory=set)
    placed: list[tuple[int, Life]] = field(default_factory=list)
    named: int = 0
    tag: str = ""  # in names of the text
    reread: int = MANY  # bytes of a row that are read from memory more than once; until all is placed: many
    parted: bool = True
    fleeting: set[Buffer] = field(default_factory=set)  # every row reads them: no registers to keep them in

    def name(self, letter: str = "h") -> str:
        """A name for the text that nothing else has."""
        self.named += 1
        return f"{letter}{self.tag}{self.named}"

    @cached_property
    def loaded_arguments(self) -> frozenset[Buffer]:
        """Arguments of the kernel that some nest of the lane reads."""
        loads = (i.buffer for d in self.nests for i in d.instructions if isinstance(i, Load))
        return frozenset(b for b in loads if b.space is Space.ARG)

    @property
    def nests(self) -> list[Dealt]:
        return [d for stage in self.stages for d in stage]

    def rounds(self, size: int) -> int:
        return -(-size // (self.team.threads * self.widths[size]))

    def elements(self, size: int, rounds: int) -> int:
        """Elements of so many rounds."""
        return min(size, rounds * self.team.threads * self.widths[size])

    def unkept(self, key: Kept, size: int) -> int:
        """Elements of a row that every nest reads from memory."""
        match self.kept.get(key):
            case None:
                return size
            case InParts(_, _, _, last):
                return size - self.elements(size, last)
        return 0

    def seams(self, size: int) -> list[int]:
        """Rounds over elements at which some value's home changes, the first and the end among them."""
        parts = [h for h in self.kept.values() if isinstance(h, InParts)]
        inside = {k for h in parts for k in (h.first, h.last) if size in self.unrolled}
        return sorted({0, self.rounds(size), *(k for k in inside if k < self.rounds(size))})

    def parts(self, d: Dealt) -> int:
        """In how many parts the threads of the team make the sums of elements that are fewer.

        What lies in bytes of a thread's own, another thread that shares the sum would not see.
        """
        touched = (self.tiles.get(i.buffer) for i in d.instructions if not isinstance(i, Let))
        apart = any(isinstance(home, InArena) and home.own for home in touched)
        return d.sharing(self.team.threads) if self.parted and not apart else 1

    @property
    def reserved(self) -> int:
        """Arena bytes of all exchanges: each has its own, so that one barrier is enough for each."""
        combines = [d.combines for d in self.nests if d.mode is Mode.REDUCE]
        parted = [(d.combines, parts) for d in self.nests if (parts := self.parts(d)) > 1]
        total = sum(exchange_bytes(c, self.team) for c in combines)
        return -(-(total + sum(slices_bytes(c, self.team, parts) for c, parts in parted)) // 16) * 16

    def home(self, buffer: Buffer, offset: Index) -> Home | None:
        """Where an access goes instead of memory."""
        return self.kept.get((buffer, offset), self.tiles.get(buffer))

    @property
    def arena(self) -> int:
        """Bytes of one team's share."""
        return max((offset + life.nbytes for offset, life in self.placed), default=0)

    @property
    def meets(self) -> bool:
        """Whether a tile passes values from thread to thread."""
        stores = (i for d in self.nests for i in d.instructions if isinstance(i, Store))
        passed = any(isinstance(h, InArena) and not h.own for h in self.tiles.values())
        return passed or any(isinstance(self.tiles.get(i.buffer), Common) for i in stores)


def find_homes(
    lane: Lane,
    arena_bytes: int,
    block: int,
    common: Mapping[Buffer, Common] | None = None,
    tag: str = "",
) -> Homes:
    """Homes for a lane, in at most `arena_bytes` of arena for one CTA. Raises NoRoom.

    block: threads of a CTA that takes several rows; a row that needs more has them. common: tiles that have a
    home already. tag: in the names of registers.
    """
    carries = find_carries(lane)
    stages = [[deal(n, lane.flat) for n in s.nests] for s in lane.stages if not s.once]
    nests = [d for stage in stages for d in stage]
    widths = _widths(nests, carries, common or {})
    if lane.threads and lane.step > 1:  # rows around products: vectors for all
        widths = {size: min(width, _fitting(size, lane.threads)) for size, width in widths.items()}
    wanted = Wanted(nests, carries, widths, common or {})
    alone = lane.flat or lane.rows == 1
    few = (lane.threads or block) if not lane.flat else block  # of a phase's only lane
    team = Team(few, 1) if alone else _choose_team(nests, widths, wanted, block, lane.threads)
    if lane.exact and not alone and team.threads != lane.threads:
        raise NoRoom(f"teams of {lane.threads} threads in a CTA of {block}, which has no barriers for them")
    homes = Homes(lane, stages, carries, widths, team, {**(common or {})}, tag=tag)
    # Half as many threads have twice the registers each, and need no more of them to work with.
    fewer = Homes(lane, stages, carries, widths, Team(MOST_THREADS // 2, 1), {**(common or {})}, tag=tag)
    largest = team == Team(MOST_THREADS, 1) and block < MOST_THREADS and not alone and not lane.threads
    usual = min(WORDS, (REGISTERS_PER_CTA // team.block - 32) * 3 // 4)
    try:
        _place(homes, wanted, arena_bytes, usual)
    except NoRoom:
        if not largest:
            raise
    else:
        if not largest or not homes.reread:
            return homes
    _place(fewer, wanted, arena_bytes, REGISTERS_PER_CTA // fewer.team.block - WORKING)
    return min(fewer, homes, key=lambda found: found.reread)


def _widths(
    nests: Sequence[Dealt], carries: Mapping[Buffer, Carry], common: Collection[Buffer]
) -> dict[int, int]:
    """The widest vectors that some access of the size can use; one width for all, so that threads agree."""
    found: dict[int, int] = {}
    alone = {d.size for d in nests if d.mode is Mode.KEEP}
    for d in nests:
        most = found.setdefault(d.size, 1)
        for i in d.instructions:
            if isinstance(i, Let) or d.size in alone or d.serial:
                continue
            if i.buffer.space is Space.ARENA and i.buffer not in common:
                continue
            carry = carries.get(i.buffer)
            offset = d.offset(carry.local(i.offset) if carry else i.offset)
            width = min(MAX_WIDTH, d.size & -d.size) if d.size else 1
            most = max(most, vector_of(i.buffer, offset, width))
        found[d.size] = most
    return found


def _fitting(size: int, threads: int) -> int:
    """The widest vectors of which every thread has one."""
    return 1 << max(0, (size // threads).bit_length() - 1)


def _choose_team(
    nests: Sequence[Dealt], widths: Mapping[int, int], wanted: Wanted, block: int, asked: int
) -> Team:
    """Threads asked for, or enough for a row's elements in registers, and for vectors next to each other."""
    if asked:
        return Team.fitting(asked, block)
    size = max((d.size for d in nests if d.loops), default=1)
    width = widths.get(size, 1)
    held = [k for k in wanted.repeated if wanted.sizes[k] == size]
    arrays = len(held) + sum(n == size for n in wanted.own.values())
    items = max(width, min(ITEMS, WORDS // max(arrays, 1)))
    threads = max(min(WARP, -(-size // width)), -(-size // items))
    threads = min(MOST_THREADS, 1 << (threads - 1).bit_length())
    return Team.fitting(threads, block)


def _reread(homes: Homes, wanted: Wanted) -> int:
    """Bytes of a row that are read from memory more than once."""
    again = ((key, homes.unkept(key, wanted.sizes[key]), times - 1) for key, times in wanted.loads.items())
    return sum(times * elements * key[0].type.dtype.itemsize for key, elements, times in again)


def _place(homes: Homes, wanted: Wanted, arena_bytes: int, room: int) -> None:
    """Carries first, then tiles, then repeated loads. room: 32-bit registers of a thread for them."""
    given = room
    for buffer in wanted.shared:
        _check_order(homes, buffer)
        size = homes.carries[buffer].size if buffer in homes.carries else buffer.type.size
        homes.tiles[buffer] = _arena(homes, buffer, None, size, own=False)
    for d in homes.nests:
        for i in d.instructions:
            if not isinstance(i, Let) and (i.buffer.space is Space.ARENA or i.buffer in homes.carries):
                if i.buffer not in homes.tiles:
                    homes.tiles[i.buffer] = Scalar(homes.name())
    order = sorted((b for b, n in wanted.own.items() if n), key=lambda b: b not in homes.carries)
    for buffer in order:
        room = _choose(homes, buffer, wanted.own[buffer], room)
    _check_room(homes, arena_bytes)
    for key in wanted.repeated:
        room = _keep(homes, key, wanted.sizes[key], room, arena_bytes)
    homes.reread = _reread(homes, wanted)
    hoisted = {k: size for k, size in wanted.common.items() if homes.carries and size in homes.unrolled}
    needed = sum(_words(homes, size, k[0].type.dtype.compute) for k, size in hoisted.items())
    if given - room + needed + WORKING > REGISTERS_PER_CTA // homes.team.block:
        homes.fleeting = {buffer for buffer, _ in hoisted}


def _check_order(homes: Homes, buffer: Buffer) -> None:
    """Refuse a nest that loads and stores one shared tile, but for what is each thread's own: a race."""
    for d in homes.nests:
        touched = [i for i in d.instructions if not isinstance(i, Let) and i.buffer is buffer]
        places = {i.offset for i in touched}
        dealt = {loop.var.name for loop in d.loops if loop.var.extent > 1}
        own = all(dealt <= {a.name for a in atoms([e]) if isinstance(a, Var)} for e in places)
        alone = d.mode is Mode.SPREAD and not d.serial and len(places) == 1 and own
        if len({type(i) for i in touched}) > 1 and not alone and buffer not in homes.carries:
            raise NoRoom(f"a nest updates {buffer.name} in memory: the kernel was not lowered for CUDA")


def _choose(homes: Homes, buffer: Buffer, size: int, room: int) -> int:
    words = _words(homes, size, buffer.type.dtype)
    if words <= room and homes.rounds(size) <= UNROLLED:
        homes.tiles[buffer] = InRegisters(homes.name())
        homes.unrolled.add(size)
        return room - words
    homes.tiles[buffer] = _arena(homes, buffer, None, size, own=True)
    return room


def _keep(homes: Homes, key: Kept, size: int, room: int, arena_bytes: int) -> int:
    buffer, offset = key
    words = _words(homes, size, buffer.type.dtype.compute)
    name = f"x{homes.tag}{len(homes.kept)}"
    if words <= room and homes.rounds(size) <= UNROLLED:
        homes.kept[key] = InRegisters(name)
        homes.unrolled.add(size)
        return room - words
    home = _arena(homes, buffer, offset, size, own=True)
    if homes.arena * homes.team.teams <= arena_bytes:
        homes.kept[key] = home
        return room
    homes.placed.pop()
    return _keep_parts(homes, key, size, room, arena_bytes)


def _keep_parts(homes: Homes, key: Kept, size: int, room: int, arena_bytes: int) -> int:
    """As many rounds as there is room for, in the arena, then in registers."""
    buffer, _ = key
    each = homes.widths[size] * max(1, buffer.type.dtype.compute.itemsize // 4)
    free = (arena_bytes - homes.reserved) // homes.team.teams - homes.arena
    stride = homes.team.threads * homes.widths[size] * buffer.type.dtype.itemsize
    first = min(max(0, free // stride), homes.rounds(size))
    last = min(first + room // each, homes.rounds(size))
    if not last or homes.rounds(size) > UNROLLED or homes.team.teams > 1:
        return room
    arena = None
    if first:
        elements = homes.elements(size, first)
        always = Life(0, LATE, (0, LATE), False, buffer.type.dtype.itemsize, elements, LATE, -1)
        arena = InArena(find_offset(always, homes.placed, homes.lane.shares), True)
        homes.placed.append((arena.offset, always))
    homes.kept[key] = InParts(arena, first, InRegisters(f"x{homes.tag}{len(homes.kept)}"), last)
    homes.unrolled.add(size)
    return room - (last - first) * each


def _arena(homes: Homes, buffer: Buffer, offset: Index | None, size: int, own: bool) -> InArena:
    life = life_of(homes.lane, homes.stages, buffer, offset, size, own, buffer in homes.carries)
    at = find_offset(life, homes.placed, homes.lane.shares)
    homes.placed.append((at, life))
    return InArena(at, own)


def _check_room(homes: Homes, arena_bytes: int) -> None:
    if (needed := homes.arena * homes.team.teams) > arena_bytes:
        raise NoRoom(Reason("shared memory", TOO_LARGE, needed, arena_bytes))


def _words(homes: Homes, size: int, dtype: DType) -> int:
    return homes.rounds(size) * homes.widths[size] * max(1, dtype.itemsize // 4)
