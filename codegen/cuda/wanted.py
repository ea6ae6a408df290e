"""What the nests of a row lane touch: tiles, partial results of columns, and loads that several nests make.

x[r * n + e] in two nests    a load that is better kept    loads == {(x, r * n + e): 2}
t3[e] made and used at e     a thread's own                own == {t3: n}
t5[n - 1 - e]                other threads' as well        shared == {t5}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from jstitch.codegen.cuda.deal import ELEMENT, Dealt, Mode, is_dynamic, mentions
from jstitch.codegen.kernel_ir import PROGRAM, ROW, ROW_IN_STEP, Buffer, Lane, Let, Load, Space, Store
from jstitch.ir.expr import Expr
from jstitch.ir.index import Index, Var, add, mul, var

Kept = tuple[Buffer, Index]  # a load that several nests make: of a buffer, at an offset in e


@dataclass(frozen=True)
class Carry:
    """A partial result of the lane: `size` elements for each program, from `identity` on."""

    buffer: Buffer
    size: int
    identity: Expr

    def local(self, offset: Index) -> Index:
        """The offset inside the program's part."""
        return add(offset, mul(var(Var(PROGRAM, self.buffer.type.shape[0])), -self.size))


def find_carries(lane: Lane) -> dict[Buffer, Carry]:
    """Partial results, by the stages that start them."""
    found = {}
    for stage in lane.stages:
        for nest in stage.nests if stage.once else ():
            (store,) = (i for i in nest.body if isinstance(i, Store))
            size = store.buffer.type.size // store.buffer.type.shape[0]
            found[store.buffer] = Carry(store.buffer, size, store.value)
    return found


class Wanted:
    """Tiles, carries and repeated loads, and how each is touched.

    loads: of a row's own elements, by how many nests. common: of elements that all rows share, which stay in
    the nearest cache anyway. sizes, common: of the loops around the load.
    """

    def __init__(
        self,
        nests: Sequence[Dealt],
        carries: Mapping[Buffer, Carry],
        widths: Mapping[int, int],
        common: Collection[Buffer],
    ) -> None:
        self.own: dict[Buffer, int] = {}  # tile or carry -> the size of the loops that touch it
        self.loads: Counter[Kept] = Counter()
        self.sizes: dict[Kept, int] = {}
        self.common: dict[Kept, int] = {}
        written = {i.buffer for d in nests for i in d.instructions if isinstance(i, Store)}
        for d in nests:
            for i in d.instructions:
                if isinstance(i, Let):
                    continue
                tile = i.buffer.space is Space.ARENA or i.buffer in carries
                if tile and i.buffer not in common:
                    self._tile(d, i, carries.get(i.buffer))
                elif isinstance(i, Load) and i.buffer not in written:
                    self._load(d, i)
        self.shared = tuple(b for b, n in self.own.items() if n == 0)

    def _tile(self, d: Dealt, i: Load | Store, carry: Carry | None) -> None:
        offset = d.offset(carry.local(i.offset) if carry else i.offset)
        per_row = carry.size if carry else i.buffer.type.size
        if per_row == 1:
            return
        at_element = offset == var(Var(ELEMENT, d.size)) and not d.serial and d.size == per_row
        size = d.size if at_element else 0
        if self.own.setdefault(i.buffer, size) != size:
            self.own[i.buffer] = 0

    def _load(self, d: Dealt, i: Load) -> None:
        offset = d.offset(i.offset)
        if d.mode not in (Mode.SPREAD, Mode.REDUCE) or d.serial or is_dynamic(offset):
            return
        if mentions(offset, ELEMENT) and (mentions(offset, ROW) or mentions(offset, ROW_IN_STEP)):
            self.loads[i.buffer, offset] += 1
            self.sizes[i.buffer, offset] = d.size
        elif mentions(offset, ELEMENT) and i.buffer.space is not Space.ARENA:
            self.common[i.buffer, offset] = d.size

    @property
    def repeated(self) -> list[Kept]:
        return [key for key, count in self.loads.items() if count > 1]
