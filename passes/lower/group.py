"""Ops that share a row space: their rows, how many a step takes, who shares one, how many programs there are.

reduce, exponential of 1024 x 768    ->    1024 rows, 1 a step, 24 programs of the CPU
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from jstitch.codegen.cpu.short_rows import GATHERED, SHORT
from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import lookup
from jstitch.ir.ops.build import is_concatenate
from jstitch.ir.ops.elementwise import SUMS
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import ROWS, Reduction, is_reduction, reduction
from jstitch.passes.lower.tile_rows import Products, StepTile, step_tiles

MOST_THREADS = 1024
VECTOR = 4  # elements of a row for each thread, at least
SEVERAL = 4  # columns of which a vector has several rows
LONGEST = 1024  # elements of rows of which there are several at a time
STREAMED = 128  # of rows that are waited for
CACHED = 1 << 25  # bytes of a tensor, times those of an element, for which memory takes no longer than sums
AT_A_TIME = tuple(sorted(range(4, 33), key=lambda rows: abs(rows - 8)))
LANE_BYTES, TILES = 4, 4  # of an element on chip; of a row that may be kept there
SHARE = 1 << 15  # elements that a program adds up at most
MANY_PARTS, LEAST_SHARE = 4, 1 << 8  # arrays that are joined; elements of a program that has a part of one
TURNS = 4  # of each program, at least: they are to be of about one length


@dataclass(eq=False)
class Group:
    """Ops that share a row space. `largest`: elements of its largest tensor. profile: of their target.

    fixed: programs that a template asks for, and threads that share a row; 0: not said. exact: whether it
    says the threads. columns: of the strip that a row is; 0: it is none. tiles: rows of a step with products
    and columns between these, to try in turn. block: such columns that a template asks for; 0: whole rows;
    None: not said. sharing: programs that there are partial sums of; 0: of none.
    """

    rows: int
    ops: set[Op]
    largest: int
    profile: Profile
    step: int = 1
    accumulates: bool = False
    fixed: int = 0
    threads: int = 0
    exact: bool = False
    columns: int = 0
    tiles: tuple[StepTile, ...] = ()
    block: int | None = None
    sharing: int = 0

    @property
    def flat(self) -> bool:
        return self.rows == self.largest and self.rows > 1 and not self.reduces_rows

    @property
    def reduces_rows(self) -> bool:
        """Whether a row has a result of its own reduction, which needs a tile."""
        found = (reduction(op, self.rows) for op in self.ops if is_reduction(op))
        return Reduction.INNER in found

    @property
    def may_rest(self) -> bool:
        """Whether rows that fill no step may have a lane, and a share of what programs add up over all."""
        sums = any(is_reduction(op) and reduction(op, self.rows) is Reduction.CROSS for op in self.ops)
        if self.profile.row_step == 1 or self.products or self.flat:
            return False
        return self.programs > 1 or not (sums or self.accumulates)

    @property
    def products(self) -> list[Op]:
        """Sums that are a product of matrices."""
        return [op for op in self.ops if ROWS in op.attrs and is_reduction(op)]

    @property
    def arena_bytes(self) -> int:
        """That a program's tiles had better not take more of."""
        return self.profile.product_bytes if self.products else self.profile.arena_bytes

    @property
    def counted(self) -> bool:
        """Whether a template says its programs, which take their rows in turn."""
        return self.fixed > 0 and not self.flat and self.rows > 1

    @property
    def programs(self) -> int:
        """Fixed by the shapes, never by the machine's threads, so that results are deterministic."""
        if self.fixed or self.sharing:
            return self.fixed or self.sharing
        if self.accumulates:
            return self.profile.column_programs(self.rows, self.step, self.largest)
        most = self.profile.max_programs
        return max(1, min(self.rows // self.step, self.largest // self.profile.program_work, most))


def share_long_sums(op: Op, group: Group) -> None:
    """More programs, where each would add up very many elements: additions to a large sum cost digits.

    Or elements of many arrays, each of which had better have programs of its own (cut_rows.py).
    """
    if group.profile.machine.device is not None or not group.flat or group.fixed:
        return
    programs = group.programs
    if op.attrs.get("monoid") in SUMS and op.results[0].tensor.dtype.is_float and group.profile.blocks:
        programs = max(programs, group.rows // SHARE)
    joined = max((len(other.operands) for other in group.ops if is_concatenate(other)), default=1)
    if joined >= MANY_PARTS and group.profile.seams:
        most = min(group.profile.max_programs, group.rows // LEAST_SHARE)
        programs = max(programs, min(2 * joined, most))
    if programs > group.programs:
        group.fixed = programs


def share_partial_sums(group: Group) -> int:
    """The programs that there are partial sums of: tiles with rows for all of them may still be chosen."""
    group.sharing = group.programs
    tiles = [tile for tile in group.tiles if group.rows // tile.rows >= group.sharing]
    if group.tiles and all(tile.block for tile in tiles):
        tiles.append(StepTile(group.step))  # where no blocks of columns find room
    group.tiles = tuple(tiles)
    return group.sharing


def choose_steps(groups: Iterable[Group]) -> None:
    """Several rows at a time where column accumulators would otherwise be loaded and stored for each row.

    And where they share the right operand of a product: so many as its micro-kernel is quick with.
    """
    for group in groups:
        if group.products and not group.flat:
            _choose_product_rows(group)
            continue
        columns = [
            op
            for op in group.ops
            if is_reduction(op)
            and reduction(op, group.rows) is Reduction.CROSS
            and op.results[0].tensor.size > 1
        ]
        group.accumulates = bool(columns) and not group.flat
        touched_once = any(
            op.results[0].tensor.size * group.rows == op.operands[0].tensor.size == group.largest
            for op in columns
        )
        if group.accumulates and touched_once:
            if all(op.results[0].tensor.size > SEVERAL for op in columns):
                _choose_rows_of_columns(group)


def _choose_rows_of_columns(group: Group) -> None:
    """As many as the profile says; rows that fill no step are a program's own, which adds them up."""
    group.step = group.profile.row_step
    if group.rows % group.step and group.programs == 1:
        group.step = 1 if group.rows % 2 else 2


def choose_short_rows(groups: Iterable[Group], outputs: Collection[Value]) -> None:
    """Several rows at a time where rows are short: a row's sums and divisions do not wait for the last one's.

    And where each waits for a dear number of its own, which vectors make of several rows.

    Not of so few elements that vectors are made of many rows, nor long ones that come from memory. On CPUs; a
    GPU has teams for that. Rows that fill no step have a lane of their own, which is as much text again:
    steps are whole where they can be.

    outputs: what goes to memory.
    """
    for group in groups:
        if group.step > 1 or group.accumulates or not group.may_rest:
            continue
        stores = any(v in outputs and v.tensor.size > group.rows for op in group.ops for v in op.results)
        shortest = SHORT if stores else GATHERED
        waits = group.reduces_rows or _has_dear_numbers(group)
        if waits and shortest < group.largest // group.rows <= _longest(group, outputs):
            row = group.largest // group.rows * LANE_BYTES
            most = min(group.rows // (TURNS * group.programs), group.profile.arena_bytes // (TILES * row))
            whole = (s for s in AT_A_TIME if s <= most and group.rows % s == 0)
            group.step = next(whole, next((s for s in AT_A_TIME if s <= most), 1))


def _has_dear_numbers(group: Group) -> bool:
    """Whether rows have a number each that takes long to make, which vectors make of several rows."""
    made = (op for op in group.ops if op.results[0].tensor.size == group.rows)
    return any(lookup(op.name).is_polynomial for op in made)


def _longest(group: Group, outputs: Collection[Value]) -> int:
    """Elements of a row of which there are several at a time: of one after another memory never rests."""
    made = {v for op in group.ops for v in op.results}
    read = {v for op in group.ops for v in op.operands} - made
    moved = {v.tensor for v in (*read, *made.intersection(outputs)) if v.tensor.size == group.largest}
    return STREAMED if any(t.nbytes * t.dtype.itemsize > CACHED for t in moved) else LONGEST


def _choose_product_rows(group: Group) -> None:
    """Rows of a step that holds products, whose tiles are to stay on chip; steps are whole everywhere."""
    group.tiles = step_tiles(Products.of(group.products, group.rows), group.profile)
    group.step = group.tiles[0].rows


def choose_threads(groups: Iterable[Group], profile: Profile) -> None:
    """Where the profile bounds them; else the emitter chooses."""
    least, most = profile.least_threads, profile.most_threads
    if 1 < least or 1 < most < MOST_THREADS:
        for group in groups:
            if not group.flat and group.rows > 1:
                wanted = max(1, group.largest // group.rows // VECTOR)
                group.threads = max(least, min(1 << (wanted - 1).bit_length(), most))
