"""Ops that share a row space: their rows, how many a step takes, who shares one, how many programs there are.

reduce, exponential of 1024 x 768    ->    1024 rows, 1 a step, 24 programs of the CPU
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from jstitch.device_spec import DeviceSpec
from jstitch.ir.graph import Op
from jstitch.ir.types import DType
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import ROWS, Reduction, is_reduction, reduction
from jstitch.passes.base.tensor_cores import tensor_seconds

MOST_THREADS = 1024
VECTOR = 4  # elements of a row for each thread, at least
PRODUCT_ROWS = 64  # of a step, at most: what a right operand is packed for
TENSOR_ROWS = 16  # that a warp multiplies at least
FEW_ROWS = 12  # that a right operand is packed for
TILES = 3  # of a product's rows, for which there is to be room at once


@dataclass(eq=False)
class Group:
    """Ops that share a row space. `largest`: elements of its largest tensor. profile: of their target.

    fixed: programs that a template asks for, and threads that share a row; 0: not said. exact: whether it
    says the threads. columns: of the strip that a row is; 0: it is none. steps: rows of a step to try in
    turn, where that is not certain yet.
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
    steps: tuple[int, ...] = ()

    @property
    def flat(self) -> bool:
        return self.rows == self.largest and self.rows > 1 and not self.reduces_rows

    @property
    def reduces_rows(self) -> bool:
        """Whether a row has a result of its own reduction, which needs a tile."""
        found = (reduction(op, self.rows) for op in self.ops if is_reduction(op))
        return Reduction.INNER in found

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
        if self.fixed:
            return self.fixed
        most = self.profile.max_programs
        if self.accumulates:
            most = max(8, min(most, self.rows // self.profile.partial_rows))
        return max(1, min(self.rows // self.step, self.largest // self.profile.program_work, most))


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
            group.step = next(s for s in (group.profile.row_step, 2, 1) if group.rows % s == 0)


def _choose_product_rows(group: Group) -> None:
    """Rows of a step that holds products, whose tiles are to stay in cache: steps are to be whole everywhere.

    PRODUCT_ROWS or a little less; where that many would be few, for a prime number of rows, more.
    """
    if group.profile.machine.device is not None:
        group.steps = _tensor_rows(group, group.profile.machine.device)
        group.step = group.steps[0]
        return
    whole = [s for s in _even_steps(group) if has_room(group, s)]
    below = max((s for s in whole if s <= PRODUCT_ROWS), default=1)
    group.step = below if below >= FEW_ROWS else min((s for s in whole if s >= FEW_ROWS), default=below)


def _even_steps(group: Group) -> list[int]:
    """Rows of which there are so many that share right operands."""
    alike = math.gcd(*(op.attrs[ROWS] for op in group.products))
    return [s for s in range(1, alike + 1) if alike % s == 0]


def has_room(group: Group, step: int) -> bool:
    """Whether there is room for tiles of so many whole rows."""
    row = max(op.results[0].tensor.size // group.rows * DType.F32.itemsize for op in group.products)
    return step == 1 or step * TILES * row <= group.arena_bytes


def _tensor_rows(group: Group, device: DeviceSpec) -> tuple[int, ...]:
    """Rows of a CTA, in whole tiles where that is possible: quickest by MCFuser's model (equations 2 to 5).

    (t_mem + t_comp) * alpha: every CTA reads the right operands, and few CTAs leave multiprocessors idle.
    Behind them the quickest of those whose whole rows have room.
    """
    even = [s for s in _even_steps(group) if s <= PRODUCT_ROWS]
    whole = [s for s in even if has_room(group, s)]
    small = [s for s in whole if s % TENSOR_ROWS == 0] or whole[-1:]
    large = [s for s in even if s % TENSOR_ROWS == 0] or [s for s in even if s >= FEW_ROWS]
    tiles = large if group.profile.column_blocks else []
    shapes = [op.operands[0].shape[-2:] for op in group.products]
    right = sum(math.prod(shape) for shape in shapes) * DType.BF16.itemsize
    own = group.rows * sum(n + k for n, k in shapes) * DType.BF16.itemsize
    arithmetic = tensor_seconds(sum(op.operands[0].tensor.size for op in group.products), device)

    def seconds(step: int) -> float:
        ctas = group.rows // step
        return ((right * ctas + own) / device.bandwidth + arithmetic) * (ctas + device.sms) / ctas

    return tuple(dict.fromkeys((*sorted(tiles, key=seconds), min(small, key=seconds))))


def choose_threads(groups: Iterable[Group], profile: Profile) -> None:
    """Where the profile bounds them; else the emitter chooses."""
    least, most = profile.least_threads, profile.most_threads
    if 1 < least or 1 < most < MOST_THREADS:
        for group in groups:
            if not group.flat and group.rows > 1:
                wanted = max(1, group.largest // group.rows // VECTOR)
                group.threads = max(least, min(1 << (wanted - 1).bit_length(), most))
