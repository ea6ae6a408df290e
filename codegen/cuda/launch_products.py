"""What a CTA does for a lane that multiplies matrices: all rows of a step, stage by stage, in shared memory.

by the warps together     t0[64, 512] = q * keys         a product
by rows, a warp each      t1 = exp(t0 - its maximum)     what lies between two products
by the warps together     t2[64, 64] = t1 * values

What goes from one to the other are tiles that hold all rows of the step. CTAs are as many as there are steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jstitch.codegen.comments import stage_notes
from jstitch.codegen.cuda.deal import WARP
from jstitch.codegen.cuda.homes import TOO_LARGE, Common, Homes, NoRoom
from jstitch.codegen.cuda.launch_lane import LaneCode, RowLane
from jstitch.codegen.cuda.multiply_tiles import TiledProduct, left_tile
from jstitch.codegen.cuda.share_arena import ALIGN, lowest_gap
from jstitch.codegen.cuda.tiling import SMALLER, TILE, InMemory, InShared, Tiling, pitch_of
from jstitch.codegen.cuda.traffic import traffic
from jstitch.codegen.in_turns import in_turns
from jstitch.codegen.kernel_ir import (
    ROW,
    ROW_IN_STEP,
    STEP,
    Buffer,
    Instr,
    Lane,
    Let,
    Loop,
    Matrix,
    Nest,
    Product,
    Space,
    Stage,
)
from jstitch.codegen.launch_ir import (
    AwaitCopies,
    Barrier,
    Body,
    Comment,
    CommitCopies,
    For,
    Integer,
    Scope,
)
from jstitch.codegen.launch_places import FAR, PROGRAM, THREAD, Global, Shared
from jstitch.codegen.launch_turns import launch_turns
from jstitch.codegen.memory_map import Area, LaneMap
from jstitch.codegen.step_places import in_steps
from jstitch.codegen.tile_lives import Point, asked, tile_lives, touched_tiles
from jstitch.ir.index import Index, Var, add, atoms, const, mul, var
from jstitch.ir.reason import Reason
from jstitch.ir.types import HALVES, DType, TensorType

MULTIPLIED = (*HALVES, DType.F32)
PLACE = Var(ROW_IN_STEP, FAR)
NEXT = "all rows are there"
HELD = "left operands are there"


def launch_products(
    lane: Lane,
    pointer: Callable[[Buffer], str],
    read_only: Callable[[Buffer], bool],
    arena_bytes: int,
    block: int,
    tag: str,
) -> LaneCode:
    """The lane's code for one CTA of `block` threads. Raises NoRoom."""
    return _ProductLane(lane, pointer, read_only, arena_bytes, block, tag).code()


def product_parts(lane: Lane, arena_bytes: int, block: int) -> Iterator[tuple[Homes | TiledProduct, float]]:
    """What each part does: where rows keep what they hold, or a product; and how often. Raises NoRoom."""
    made = _ProductLane(lane, str, lambda _: True, arena_bytes, block, "")
    for n, part in enumerate(made.parts):
        yield made.rows(n, part).homes if isinstance(part, _Rows) else made.product(n, part), part.turns


@dataclass(frozen=True)
class _Rows:
    """Stages without products: rows have nothing to do with each other."""

    stages: tuple[Stage, ...]

    @property
    def turn(self) -> Loop | None:
        return self.stages[0].turn

    @property
    def turns(self) -> float:
        return self.stages[0].turns


@dataclass(frozen=True)
class _Multiplied:
    """One product, of a stage."""

    product: Product
    stage: Stage

    @property
    def turn(self) -> Loop | None:
        return self.stage.turn

    @property
    def turns(self) -> float:
        return self.stage.turns


_Part = _Rows | _Multiplied


def parts_of(lane: Lane) -> list[_Part]:
    """What is done one after the other, with a barrier between."""
    parts: list[_Part] = []
    for stage in lane.stages:
        for nest in stage.nests:
            if isinstance(nest, Product):
                parts.append(_Multiplied(nest, stage))
                continue
            own = replace(stage, nests=(nest,))
            match parts[-1:]:
                case [_Rows(stages)] if stages[0].turn == stage.turn:
                    parts[-1] = _Rows((*stages, own))
                case _:
                    parts.append(_Rows((own,)))
    return parts


@dataclass(frozen=True)
class _Tile:
    """Rows of a step in shared memory, from byte `offset` on. rows: with those that fill a tile of a warp.

    first, last: parts that touch it.
    """

    buffer: Buffer
    rows: int
    pitch: int
    first: int
    last: int
    offset: int = 0

    @property
    def nbytes(self) -> int:
        size = self.rows * self.pitch * self.buffer.type.dtype.itemsize
        return -(-size // ALIGN) * ALIGN

    @property
    def shared(self) -> InShared:
        return InShared(const(self.offset), self.pitch, self.buffer.type.dtype)


class _StepRows(RowLane):
    """Rows of a step, a warp each, one after another."""

    def _count_chunks(self, threads: int) -> int:
        return 1

    def _is_sliced(self) -> bool:
        return False

    def body(self) -> Body:
        stages = self._stages()
        return [*self._held(), *self._rows(stages)]

    def _rows(self, body: Body) -> Body:
        row = Integer(ROW, PROGRAM * self.lane.step + var(PLACE))
        rows = For(ROW_IN_STEP, self.team.number, const(self.lane.step), self.team.teams, (row, *body))
        return [rows]


@dataclass
class _ProductLane:
    lane: Lane
    pointer: Callable[[Buffer], str]
    read_only: Callable[[Buffer], bool]
    limit: int
    block: int
    tag: str

    def code(self) -> LaneCode:
        if any(stage.once for stage in self.lane.stages) or self.lane.counted:
            raise NoRoom("sums over rows, beside products")
        body: Body = [Integer("t", THREAD % WARP), Integer("team", THREAD // WARP), Integer(STEP, PROGRAM)]
        read = written = 0
        nbytes = self.tile_bytes
        for loop, numbers in in_turns([part.turn for part in self.parts]):
            inside: Body = []
            for n in numbers:
                made, moved, end = self._part(n, self.parts[n])
                inside += made
                read, written, nbytes = read + moved[0], written + moved[1], max(nbytes, end)
            body += inside if loop is None else self._loop(loop, numbers, inside)
        if nbytes > self.limit:
            raise NoRoom(Reason("shared memory", TOO_LARGE, nbytes, self.limit))
        memory = LaneMap(0, 0, tuple(s.note for s in self.lane.stages), tuple(self._areas(nbytes)), nbytes)
        return LaneCode(tuple(body), self.steps, self.block, nbytes, (read, written), memory)

    @property
    def steps(self) -> int:
        return self.lane.rows // self.lane.step

    @cached_property
    def parts(self) -> list[_Part]:
        return parts_of(self.lane)

    # -- tiles ----------------------------------------------------------------------------------------

    @cached_property
    def tiles(self) -> dict[Buffer, _Tile]:
        """What is never needed by the same part, nor by parts around one another, may share bytes."""
        placed: list[_Tile] = []
        for b, (first, last) in self._lives().items():
            tile = self._sized(b, first, last)
            others = (t for t in placed if not self.lane.shares or (t.first <= last and first <= t.last))
            busy = sorted((t.offset, t.offset + t.nbytes) for t in others)
            placed.append(replace(tile, offset=lowest_gap(busy, tile.nbytes)))
        return {t.buffer: t for t in placed}

    def _sized(self, b: Buffer, first: int, last: int) -> _Tile:
        """Left operands have whole tiles of rows and depths."""
        columns, rows = b.type.size // self.lane.step, self.lane.step
        is_left = b in self._left or b.type.dtype in HALVES
        if is_left:
            rows = -(-rows // TILE) * TILE
        return _Tile(b, rows, pitch_of(columns, b.type.dtype, by_matrices=is_left), first, last)

    @cached_property
    def _left(self) -> set[Buffer]:
        """Tiles that products have on their left."""
        return {part.product.left.buffer for part in self.parts if isinstance(part, _Multiplied)}

    def _lives(self) -> dict[Buffer, tuple[int, int]]:
        return tile_lives([Point(part.turn, (*asked(part.turn), *_touched(part))) for part in self.parts])

    @property
    def tile_bytes(self) -> int:
        return max((t.offset + t.nbytes for t in self.tiles.values()), default=0)

    def _areas(self, nbytes: int) -> Iterator[Area]:
        last = len(self.lane.stages) - 1
        for b, t in self.tiles.items():
            yield Area(b.name, str(b.type), t.offset, t.nbytes, 0, last)
        yield Area("panels", "of operands in memory", self.tile_bytes, nbytes - self.tile_bytes, 0, last)

    # -- parts ----------------------------------------------------------------------------------------

    def rows(self, n: int, part: _Rows) -> _StepRows:
        stages = tuple(replace(s, nests=tuple(map(self._pitched, s.nests)), turn=None) for s in part.stages)
        lane = replace(self.lane, stages=stages, threads=WARP, exact=False)
        common = {t.buffer: Common(t.offset) for t in self._homes(stages)}
        return _StepRows(lane, self.pointer, self.read_only, 0, self.block, f"{self.tag}{n}_", common)

    def _loop(self, loop: Loop, numbers: range, inside: Body) -> Body:
        """The turns of a loop; left operands that are the same in all of them come before."""
        body: Body = []
        for n in numbers:
            part = self.parts[n]
            before = [at for k, at in self.held.items() if k < n]
            if n in self.held and self.held[n] not in before and isinstance(part, _Multiplied):
                body += [*self.product(n, part).fill_left(), CommitCopies()]
        if body:
            body += [AwaitCopies(0), Barrier(Scope.CTA, HELD)]
        tiles = [self.tiles[tile] for tile, _ in asked(loop)]
        place, pitch = (Shared(const(tiles[0].offset)), tiles[0].pitch) if tiles else (None, 1)
        return [*body, *launch_turns(loop, inside, place, self.lane.step, pitch)]

    @cached_property
    def held(self) -> dict[int, InShared]:
        """Parts of loops whose left operand is the same in all turns, and where it is, behind the tiles."""
        found: dict[int, InShared] = {}
        known: dict[Matrix, InShared] = {}
        end = self.tile_bytes
        for n, part in enumerate(self.parts):
            match part:
                case _Multiplied(Product(left=left), Stage(turn=Loop() as loop)) if not self._is_tile(left):
                    if loop.var not in atoms([left.first]):
                        m, _, k = part.product.sizes
                        found[n] = known.setdefault(left, left_tile(end, k, left.buffer.type.dtype))
                        end = max(end, found[n].base.const + found[n].bytes_of(m))
        return found

    @property
    def held_bytes(self) -> int:
        """The end of all that is not a panel."""
        ends = (at.base.const + at.bytes_of(self.lane.step) for at in self.held.values())
        return max(ends, default=self.tile_bytes)

    @staticmethod
    def _is_tile(m: Matrix) -> bool:
        return m.buffer.space is Space.ARENA

    def _part(self, n: int, part: _Part) -> tuple[Body, tuple[int, int], int]:
        return self._by_rows(n, part) if isinstance(part, _Rows) else self._by_warps(n, part)

    def _by_rows(self, n: int, part: _Rows) -> tuple[Body, tuple[int, int], int]:
        """Statements, bytes read and written by all CTAs, and the end of what it has in shared memory."""
        rows = self.rows(n, part)
        body = rows.body()
        if n + 1 < len(self.parts):
            body = [*body, Barrier(Scope.CTA, NEXT)]
        return body, traffic(rows.homes, part.turns), 0

    def _homes(self, stages: Sequence[Stage]) -> Iterator[_Tile]:
        """The tiles that stages touch, as these have them."""
        seen: set[Buffer] = set()
        for b in (b for stage in stages for nest in stage.nests for b in _arena(nest)):
            if b not in seen:
                seen.add(b)
                yield replace(self.tiles[self._unpitched[b]], buffer=b)

    def product(self, n: int, part: _Multiplied) -> TiledProduct:
        product = part.product
        left, right, result = (self._matrix(m) for m in (product.left, product.right, product.result))
        if isinstance(right, InShared) or left.dtype is not right.dtype or left.dtype not in MULTIPLIED:
            raise NoRoom(f"a product of {left.dtype.value} and {right.dtype.value}")
        what = product.sizes, right.dtype.itemsize, self.block // WARP
        forms = (Tiling(*what, *form) for form in SMALLER)
        where = left, right, result, self.held_bytes, self.held.get(n)
        made = [TiledProduct(f"{self.tag}{n}", form, *where) for form in forms]
        return next((p for p in made if self.held_bytes + p.nbytes <= self.limit), made[-1])

    def _by_warps(self, n: int, part: _Multiplied) -> tuple[Body, tuple[int, int], int]:
        """As `_by_rows`."""
        made = self.product(n, part)
        body = [*map(Comment, stage_notes(part.stage)), *made.body()]
        return body, made.traffic(self.steps, part.turns), self.held_bytes + made.nbytes

    def _matrix(self, m: Matrix) -> InShared | InMemory:
        if m.buffer.space is not Space.ARENA:
            memory = Global(self.pointer(m.buffer), self.read_only(m.buffer))
            return InMemory(memory, m.first, m.strides, m.buffer.type.dtype, m.buffer.type.nbytes)
        if m.first != const(0) or m.strides != (m.buffer.type.size // self.lane.step, 1):
            raise NoRoom(f"{m.buffer.name} is no matrix of the step's rows")
        return self.tiles[m.buffer].shared

    # -- places ---------------------------------------------------------------------------------------

    @cached_property
    def _pitches(self) -> dict[Buffer, Buffer]:
        """Each tile as a buffer with rows as far apart as they are."""
        step = self.lane.step
        return {b: replace(b, type=TensorType((step, t.pitch), b.type.dtype)) for b, t in self.tiles.items()}

    @cached_property
    def _unpitched(self) -> dict[Buffer, Buffer]:
        return {pitched: b for b, pitched in self._pitches.items()}

    def _pitched(self, nest: Nest) -> Nest:
        """Without its loop over rows, with tiles where they are."""
        if not nest.loops or nest.loops[0].var.name != ROW or nest.loops[0].each != 1:
            raise NoRoom("a nest that does not go by rows")

        def moved(i: Instr) -> Instr:
            if isinstance(i, Let) or i.buffer.space is not Space.ARENA:
                return i
            return replace(i, buffer=self._pitches[i.buffer], offset=self._place(i.buffer, i.offset))

        return replace(nest, body=tuple(map(moved, nest.body)), after=tuple(map(moved, nest.after)))

    def _place(self, b: Buffer, offset: Index) -> Index:
        """An element of a tile, with rows a pitch apart."""
        tile, columns = self.tiles[b], b.type.size // self.lane.step
        inside = in_steps(offset, self.lane, PLACE)
        rest = add(inside, mul(var(PLACE), -columns))
        if any(isinstance(a, Var) and a.name in (ROW_IN_STEP, STEP) for a, _ in rest.terms):
            raise NoRoom(f"{b.name} is read from other rows")
        return add(rest, mul(var(PLACE), tile.pitch))


def _arena(nest: Nest) -> Iterator[Buffer]:
    for i in nest.instructions:
        if not isinstance(i, Let) and i.buffer.space is Space.ARENA:
            yield i.buffer


def _touched(part: _Part) -> Iterator[tuple[Buffer, bool]]:
    """The tiles that a part needs, and whether it reads them."""
    match part:
        case _Rows(stages):
            yield from touched_tiles(nest for stage in stages for nest in stage.nests)
        case _Multiplied(product):
            for m, reads in ((product.left, True), (product.right, True), (product.result, False)):
                if m.buffer.space is Space.ARENA:
                    yield m.buffer, reads
