"""The shared arena in the simulator: every CTA of a batch has its own, and every access is checked.

Shadow arrays hold, for each granule (as many bytes as the text's smallest element), who wrote it last, when
and through which tile, and when each warp read it last. Reading what this CTA never wrote, through a tile
that it was not written through, or without a barrier since another thread's access, is an error.
"""

from __future__ import annotations

import numpy as np

from jstitch.codegen.cuda.simulate_functions import load_widened, store_rounded
from jstitch.codegen.cuda.simulate_global import rows_of
from jstitch.codegen.cuda.simulate_index import Index
from jstitch.codegen.cuda.simulate_lanes import Array
from jstitch.codegen.cuda.simulate_order import Order
from jstitch.codegen.cuda.simulate_state import State
from jstitch.ir.types import DType

NAME = "shared"
MANY = -1


def stride(nbytes: int) -> int:
    """Bytes from one CTA's arena to the next one's."""
    return -(-nbytes // 16) * 16


class Arena:
    """`used`: the bytes of the arena up to the last one that a thread touched."""

    def __init__(self, nbytes: int, slots: int, warps: int, granule: int, order: Order) -> None:
        self.nbytes, self.order, self.granule, self.used = nbytes, order, granule, 0
        self.stride = stride(nbytes)
        size = self.stride * slots // granule
        self._bytes = np.zeros(self.stride * slots, np.uint8)
        self._writer, self._written, self._tile = (np.zeros(size, np.int32) for _ in range(3))
        self._read, self._reader = (np.zeros(size, np.int32) for _ in range(2))
        self._warp_read = np.zeros((size, warps), np.int32)

    def load(self, state: State, tile: Index, index: Index, dtype: DType, width: int) -> list[Array]:
        """`width` values for every lane."""
        access = _Access(self, state, tile, index, dtype, width)
        written = access.get(self._written)
        access.refuse(written <= self.order.start, "bytes that this CTA wrote", "some that it never wrote")
        other = access.get(self._tile) != access.column(access.tile)
        access.refuse(other, "bytes written through this tile", "some of another tile: they overlap")
        self._after_writes(access, written)
        self._note_read(access)
        found = load_widened(rows_of(self._bytes.view(dtype.numpy), width).take(access.row, axis=0), dtype)
        columns = [found] if width == 1 else list(np.ascontiguousarray(np.moveaxis(found, -1, 0)))
        return [state.expand(column) for column in columns]

    def store(self, state: State, tile: Index, index: Index, dtype: DType, values: list[Array]) -> None:
        """values: for each of the elements, over all lanes."""
        width = len(values)
        access = _Access(self, state, tile, index, dtype, width)
        self._after_writes(access, access.get(self._written))
        self._after_reads(access)
        rounded = [store_rounded(state.per_lane(v), dtype) for v in values]
        data = rounded[0] if width == 1 else np.stack(rounded, 1)
        memory = rows_of(self._bytes.view(dtype.numpy), width)
        memory[access.row] = data
        self._note_write(access)
        self._one_value(access, data, memory)

    # -- order ----------------------------------------------------------------------------------------

    def _after_writes(self, access: _Access, written: Array) -> None:
        """Other threads' writes need a barrier before any access."""
        lanes = access.lanes
        late = written > access.column(self.order.least(lanes.row))
        if late.any():
            other = access.get(self._writer)
            known = self.order.knows(access.column(lanes.row), other % lanes.block // 32, written)
            late &= (other != access.column(lanes.number)) & ~known
            access.refuse(late, "a barrier after another thread's write", "none")

    def _after_reads(self, access: _Access) -> None:
        """Other threads' reads need a barrier before a write."""
        lanes, order = access.lanes, self.order
        late = access.get(self._read) > access.column(order.least(lanes.row))
        if not late.any():
            return
        mine = access.get(self._reader) == access.column(lanes.number)
        seen = np.ones_like(late)
        for warp in range(lanes.warps):
            time = access.get(self._warp_read[:, warp])
            own = access.column(lanes.warp) == warp
            seen &= order.knows(access.column(lanes.row), np.asarray(warp), time) | (own & mine)
        access.refuse(late & ~seen, "a barrier after another thread's read", "none before this write")

    def _note_read(self, access: _Access) -> None:
        lanes, time = access.lanes, self.order.tick()
        warp = access.column(lanes.warp)
        granules = access.granules
        fresh = self._warp_read[granules, warp] <= access.column(self.order.own(lanes.row))
        number, old = access.column(lanes.number), access.get(self._reader)
        self._warp_read[granules, warp] = time
        access.set(self._read, time)
        access.set(self._reader, number)
        many = (~fresh & (old != number)) | (access.get(self._reader) != number)
        if many.any():
            self._reader[granules[many]] = MANY

    def _note_write(self, access: _Access) -> None:
        access.set(self._written, self.order.tick())
        access.set(self._writer, access.column(access.lanes.number))
        access.set(self._tile, access.column(access.tile))

    def _one_value(self, access: _Access, data: Array, memory: Array) -> None:
        """Several writers in one statement: only lanes of one warp, only of one value."""
        winner, lanes = access.get(self._writer), access.lanes
        clash = winner != access.column(lanes.number)
        if clash.any():
            far = clash & (winner % lanes.block // 32 != access.column(lanes.warp))
            access.refuse(far, "one warp to write a byte", "two in one statement")
            size = data.dtype.itemsize * (data.size // len(data))
            differ = _bits(data, size) != _bits(memory[access.row], size)
            access.refuse(
                clash & differ.any(1, keepdims=clash.ndim == 2),
                "one value for a byte",
                "two in one statement",
            )


class _Access:
    """Where the active lanes touch the arena: `row` in units of the access, `granules` of the shadows."""

    def __init__(
        self, arena: Arena, state: State, tile: Index, index: Index, dtype: DType, width: int
    ) -> None:
        self.arena, self.state, self.lanes = arena, state, state.active.lanes
        self.itemsize, self.width = dtype.itemsize, width
        self.unit = dtype.itemsize * width // arena.granule
        self.tile, self.index = state.per_lane(tile.raw), state.per_lane(index.raw)
        self._check(tile, index)
        offset = self.lanes.slot * arena.stride + self.tile + self.index * dtype.itemsize
        self.row = offset // (dtype.itemsize * width)

    def _check(self, tile: Index, index: Index) -> None:
        arena, size = self.arena, self.itemsize
        end = tile.high + (index.high + self.width) * size
        if tile.low < 0 or index.low < 0 or end > arena.nbytes:
            last = self.tile + (self.index + self.width) * size
            outside = (self.tile < 0) | (self.index < 0) | (last > arena.nbytes)
            self._refuse(outside, f"bytes in the arena's {arena.nbytes}", "some outside")
            end = int(last.max())
        arena.used = max(arena.used, end)
        if tile.multiple % 16 or index.multiple % self.width:
            off = (self.tile % 16 != 0) | (self.index % self.width != 0)
            self._refuse(off, f"a tile at a multiple of 16 and an index at one of {self.width}", "another")

    @property
    def granules(self) -> Array:
        if self.unit == 1:
            return np.asarray(self.row)
        return np.asarray(self.row[:, None] * self.unit + np.arange(self.unit))

    def column(self, values: Array) -> Array:
        return values if self.unit == 1 else values[:, None]

    def get(self, shadow: Array) -> Array:
        if shadow.strides[0] != shadow.itemsize:  # one warp's column
            return np.asarray(shadow[self.granules])
        return np.asarray(rows_of(shadow, self.unit)[self.row])

    def set(self, shadow: Array, values: Array | int) -> None:
        rows_of(shadow, self.unit)[self.row] = values

    def refuse(self, bad: Array, expected: str, found: str) -> None:
        """bad: for each lane and granule."""
        self._refuse(np.asarray(bad if bad.ndim == 1 else bad.any(1)), expected, found)

    def _refuse(self, bad: Array, expected: str, found: str) -> None:
        if bad.any():
            lane = int(np.argmax(bad))
            name = f"{NAME} tile {int(self.tile[lane])}"
            self.state.fail(expected, found, lane, name, int(self.index[lane]))


def _bits(values: Array, size: int) -> Array:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, size)
