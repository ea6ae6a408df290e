"""Matrices in the simulator: what warps multiply, and copies that threads do not wait for.

Bytes that are being copied hold NaN until the thread that copies them waits; then they are written anew, so
that a read without a barrier after the wait is refused as any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jstitch.codegen.cuda.simulate_cells import Registers
from jstitch.codegen.cuda.simulate_functions import DTYPES
from jstitch.codegen.cuda.simulate_index import Index
from jstitch.codegen.cuda.simulate_lanes import WARP, Array
from jstitch.codegen.cuda.simulate_shared import Arena
from jstitch.codegen.cuda.simulate_state import Active, State
from jstitch.codegen.cuda.simulate_threads import Threads
from jstitch.codegen.launch_ir import PIECE_BYTES
from jstitch.ir.types import DType

FLOATS = ("f16", "bf16", "f32")
ROW = 8  # of a matrix, of which each has so many; of columns, 16-bit elements of a row
TF32 = np.uint32(0xFFFFE000)  # the bits of an f32 that tensor cores look at


@dataclass(frozen=True)
class _Copy:
    """What threads copy, by their numbers in the batch, and the group of each that the copy is in."""

    threads: Array
    groups: Array
    tile: Array
    index: Array
    dtype: DType
    values: list[Array]


class Matrices:
    """Those of one batch of `count` threads."""

    def __init__(self, arena: Arena, threads: Threads, count: int) -> None:
        self.arena, self.threads = arena, threads
        self.closed = np.zeros(count, np.int64)
        self.under_way: list[_Copy] = []

    # -- copies ---------------------------------------------------------------------------------------

    def copy(self, state: State, tile: Index, index: Index, dtype: str, values: list[Array]) -> None:
        """values: of each element, over all lanes."""
        kind, here = DTYPES[dtype], _numbers(state)
        own = [state.per_lane(value) for value in values]
        at, place = (np.array(state.per_lane(x.raw)) for x in (tile, index))
        self.under_way.append(_Copy(here, self.closed[here], at, place, kind, own))
        unknown = np.full(len(state.lanes), np.nan, kind.compute.numpy)
        self.arena.store(state, tile, index, kind, [unknown] * len(values))

    def commit(self, state: State) -> None:
        self.closed[_numbers(state)] += 1

    def wait(self, state: State, pending: Any) -> None:
        if not isinstance(pending, int) or pending < 0:
            state.fail("a constant number of groups in await_copies", str(pending), 0)
        here, rest = _numbers(state), list[_Copy]()
        for c in self.under_way:
            done = np.isin(c.threads, here) & (c.groups < self.closed[c.threads] - pending)
            if done.any():
                self._arrive(state, _part(c, done))
            if not done.all():
                rest.append(_part(c, ~done))
        self.under_way = rest

    def _arrive(self, state: State, c: _Copy) -> None:
        """All threads of the copy are among those that run."""
        at = np.searchsorted(_all_numbers(state), c.threads)
        mask = np.zeros(len(state.lanes), bool)
        mask[at] = True

        def spread(values: Array) -> Array:
            out = np.zeros(len(state.lanes), values.dtype)
            out[at] = values
            return out

        tile, index = (Index(spread(x), int(x.min()), int(x.max()), 1) for x in (c.tile, c.index))
        with state.only(Active.of(state.lanes, mask)):
            self.arena.store(state, tile, index, c.dtype, [spread(value) for value in c.values])

    # -- products -------------------------------------------------------------------------------------

    def read(
        self, state: State, place: tuple[Index, Index], dtype: str, array: Any, first: Any, turned: bool
    ) -> None:
        """Four matrices, whose rows begin at the places of a warp's threads."""
        self.threads.whole_warps(state, "matrices of a warp")
        width = PIECE_BYTES // DTYPES[dtype].itemsize
        found = self.arena.load(state, *place, DTYPES[dtype], width)
        bits = np.stack([_bits(column, dtype) for column in found], 1).reshape(-1, 4, ROW, width)
        rows = np.ascontiguousarray(bits.swapaxes(2, 3) if turned else bits)
        words = rows.view(_held(dtype)).reshape(-1, 4, WARP)
        for n in range(4):
            _put(state, array, first, n, np.ascontiguousarray(words[:, n]).reshape(-1))

    def multiply_add(
        self, state: State, dtype: str, sums: Any, i: Any, left: Any, j: Any, right: Any, k: Any
    ) -> None:
        """sums += left * right, in f32."""
        self.threads.whole_warps(state, "a product of a warp")
        if dtype == "f32":
            for array, first, count in ((left, j, 4), (right, k, 2)):
                self._rounded(state, [_get(state, array, first, n) for n in range(count)])
        a0, a1, a2, a3 = (_quarter(_get(state, left, j, n), dtype) for n in range(4))
        rows = np.concatenate([np.concatenate([a0, a2], 2), np.concatenate([a1, a3], 2)], 1)
        columns = np.concatenate([_quarter(_get(state, right, k, n), dtype) for n in range(2)], 2)
        found = rows @ columns.swapaxes(1, 2)
        for n in range(4):
            half = found[:, ROW * (n // 2) : ROW * (n // 2) + ROW, n % 2 :: 2]
            _put(state, sums, i, n, half.reshape(-1) + _get(state, sums, i, n))

    @staticmethod
    def _rounded(state: State, values: list[Array]) -> None:
        """Tensor cores do not say what they make of other elements."""
        for x in values:
            if (np.isfinite(x) & ((np.ascontiguousarray(x).view(np.uint32) & ~TF32) != 0)).any():
                state.fail("operands of a product that are rounded to tf32", "f32 as it was", 0)


def _all_numbers(state: State) -> Array:
    """Of all lanes, in the batch; ascending."""
    return np.asarray(state.lanes.slot * state.lanes.block + state.lanes.thread)


def _numbers(state: State) -> Array:
    """Of the lanes that run."""
    return np.asarray(state.compress(_all_numbers(state)))


def _part(c: _Copy, mask: Array) -> _Copy:
    values = [value[mask] for value in c.values]
    return _Copy(c.threads[mask], c.groups[mask], c.tile[mask], c.index[mask], c.dtype, values)


def _bits(values: Array, dtype: str) -> Array:
    """Of elements that are f32 in registers."""
    narrow = np.ascontiguousarray(values.astype(DTYPES[dtype].numpy))
    return narrow.view(f"u{narrow.dtype.itemsize}")


def _held(dtype: str) -> type[np.generic]:
    """What a register holds of an operand: a pair, or an f32."""
    return np.float32 if dtype == "f32" else np.uint32


def _quarter(words: Array, dtype: str) -> Array:
    """8 rows of 16 bytes for each warp."""
    floats = np.ascontiguousarray(words).view(DTYPES[dtype].numpy)
    return np.asarray(floats.reshape(len(words) // WARP, ROW, -1).astype(np.float32))


def _cell(state: State, array: Any, first: Any, n: int) -> int:
    if not isinstance(array, Registers) or not isinstance(first, int):
        state.fail("a register array and a constant position", "something else")
    if not 0 <= first + n < len(array.cells):
        state.fail(f"a register in [0, {len(array.cells)})", str(first + n), 0)
    return first + n


def _get(state: State, array: Any, first: Any, n: int) -> Array:
    k = _cell(state, array, first, n)
    value = state.checked(array.cells[k], f"register {k}")
    return np.broadcast_to(value, len(state.lanes))


def _put(state: State, array: Any, first: Any, n: int, value: Array) -> None:
    k = _cell(state, array, first, n)
    if array.dtype != value.dtype:
        state.fail(f"registers of {value.dtype}", f"of {array.dtype}", 0)
    array.cells[k] = state.merged(array.cells[k], value, f"register {k}")
