"""Global memory in the simulator: one parameter of a launch, with bounds, alignment, modes and races checked.

Accesses name rows: row r of width 4 is the elements 4 r to 4 r + 3, which is all that an aligned vector
access can touch. Shadow arrays say for each element who wrote it and who read it last, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from jstitch.codegen.cuda.simulate_functions import DTYPES, load_widened, store_rounded
from jstitch.codegen.cuda.simulate_index import Index
from jstitch.codegen.cuda.simulate_lanes import Array, Lanes
from jstitch.codegen.cuda.simulate_order import Order
from jstitch.codegen.cuda.simulate_state import State
from jstitch.codegen.launch_ir import PIECE_BYTES, Parameter

NOBODY, SEVERAL = -1, -2


def rows_of(array: Array, width: int) -> Array:
    """The array as rows of `width` elements; a partial last row is left out."""
    return array if width == 1 else array[: len(array) // width * width].reshape(-1, width)


class GlobalMemory:
    """One parameter. `bytes_read`, `bytes_written`, `vectors` count accesses of threads."""

    def __init__(self, parameter: Parameter, data: Array, order: Order) -> None:
        self.parameter, self.data, self.order = parameter, data, order
        self.dtype = DTYPES[parameter.dtype]
        self.bytes_read = self.bytes_written = self.vectors = 0
        self._touched: dict[int, Array] = {}
        self._writer = self._read_only(NOBODY)
        self._written = self._read_only(0)
        self._read = False  # did any thread read what the launch may write?

    def _read_only(self, value: int) -> Array:
        size = 0 if self.parameter.mode == "read" else self.parameter.elements
        return np.full(size, value, np.int32)

    @cached_property
    def _readers(self) -> dict[str, Array]:
        """For each element: the reading thread, its CTA, its warps as bits, the last time."""
        size = self.parameter.elements
        self._read = True
        fields = {"thread": NOBODY, "cta": NOBODY, "warps": 0, "time": 0}
        return {k: np.full(size, v, np.uint32 if k == "warps" else np.int32) for k, v in fields.items()}

    @property
    def distinct_read(self) -> int:
        touched = np.zeros(self.parameter.elements, bool)
        for width, marks in self._touched.items():
            rows_of(touched, width)[marks] = True
        return int(np.count_nonzero(touched))

    @property
    def distinct_written(self) -> int:
        return int(np.count_nonzero(self._writer != NOBODY))

    # -- accesses -------------------------------------------------------------------------------------

    def load(self, state: State, index: Index, width: int, cached: bool) -> list[Array]:
        """`width` values for every lane. cached: by the path for data that the launch never writes."""
        if cached and self.parameter.mode != "read":
            state.fail(
                f"read_* of a parameter that is only read ({self.parameter.mode})", "one", 0, self.name
            )
        row = self._rows(state, index, width)
        if width not in self._touched:
            self._touched[width] = np.zeros(len(self.data) // width, bool)
        self._touched[width][row] = True
        self.bytes_read += len(state.active.lanes) * width * self.dtype.itemsize
        self.vectors += len(state.active.lanes) * (width > 1)
        if self.parameter.mode != "read":
            self._order_read(state, np.asarray(np.broadcast_to(row, len(state.active.lanes))), width)
        found = load_widened(rows_of(self.data, width).take(row, axis=0), self.dtype)
        columns = [found] if width == 1 else list(np.ascontiguousarray(np.moveaxis(found, -1, 0)))
        return [state.expand(column) for column in columns]

    def store(self, state: State, index: Index, values: list[Array]) -> None:
        """values: for each of the elements, over all lanes."""
        if self.parameter.mode == "read":
            state.fail("no store to a parameter of mode 'read'", "one", 0, self.name)
        width, count = len(values), len(state.active.lanes)
        row = np.asarray(np.broadcast_to(self._rows(state, index, width), count))
        self._order_write(state, row, width)
        rounded = [store_rounded(state.per_lane(v), self.dtype) for v in values]
        rows_of(self.data, width)[row] = rounded[0] if width == 1 else np.stack(rounded, 1)
        self.bytes_written += count * width * self.dtype.itemsize
        self.vectors += count * (width > 1)

    def ask(self, state: State, index: Index, nbytes: int) -> None:
        """Bytes that the L2 cache is asked for, from piece `index` of each lane on."""
        first, size = state.compress(index.raw) * PIECE_BYTES, len(self.data) * self.dtype.itemsize
        self._refuse(state, (first < 0) | (first + nbytes > size), first, f"bytes in [0, {size})", "others")

    @property
    def name(self) -> str:
        return self.parameter.name

    def _rows(self, state: State, index: Index, width: int) -> Array:
        """The rows that the active lanes name."""
        first = state.compress(index.raw)
        if index.low < 0 or index.high + width > len(self.data):
            bad = (first < 0) | (first + width > len(self.data))
            self._refuse(state, bad, first, f"elements in [0, {len(self.data)})", _span(width))
        if index.multiple % width:
            bad = first % width != 0
            self._refuse(state, bad, first, f"a vector access at a multiple of {width}", "another index")
        return np.asarray(first if width == 1 else first // width)

    def _refuse(self, state: State, bad: Array, index: Array, expected: str, found: str) -> None:
        if np.any(bad):
            lane = int(np.argmax(bad))
            element = int(np.broadcast_to(index, len(state.active.lanes))[lane])
            state.fail(expected, found, lane, self.name, element)

    # -- order ----------------------------------------------------------------------------------------

    def _order_read(self, state: State, row: Array, width: int) -> None:
        lanes, time = state.active.lanes, self.order.tick()
        writer = rows_of(self._writer, width)[row]
        number, rows = _column(lanes.number, width), rows_of
        if self.parameter.mode == "write":
            self._refuse_elements(
                state, writer == NOBODY, row, width, "an element that the launch wrote", "none"
            )
        late = (writer != NOBODY) & (writer != number)
        if late.any():
            late &= ~self._known(lanes, writer, rows(self._written, width)[row])
            self._refuse_elements(state, late, row, width, "a barrier after another thread's write", "none")
        self._note_readers(lanes, row, width, time)

    def _note_readers(self, lanes: Lanes, row: Array, width: int, time: int) -> None:
        views = {field: rows_of(array, width) for field, array in self._readers.items()}
        alone = True
        for field, mine in (("thread", lanes.number), ("cta", lanes.cta.astype(np.int32))):
            column, old = _column(mine, width), views[field][row]
            views[field][row] = column
            several = (views[field][row] != column) | ((old != NOBODY) & (old != column))
            if several.any():
                elements = row[several] if width == 1 else _elements(row, width)[several]
                self._readers[field][elements], alone = SEVERAL, False
        if alone:
            views["warps"][row] = _column(lanes.bit, width)
        for k in range(0 if alone else width):
            np.bitwise_or.at(self._readers["warps"], row * width + k, lanes.bit)
        views["time"][row] = time

    def _order_write(self, state: State, row: Array, width: int) -> None:
        lanes, time = state.active.lanes, self.order.tick()
        number = _column(lanes.number, width)
        writers = rows_of(self._writer, width)
        old = writers[row]
        late = (old != NOBODY) & (old != number)
        if late.any():
            late &= ~self._known(lanes, old, rows_of(self._written, width)[row])
            self._refuse_elements(state, late, row, width, "one writer of an element", "a second one")
        if self._read:
            late = self._unseen_readers(lanes, row, width)
            expected = "a barrier after another thread's read"
            self._refuse_elements(state, late, row, width, expected, "none before this write")
            for field, empty in (("thread", NOBODY), ("cta", NOBODY), ("warps", 0)):
                rows_of(self._readers[field], width)[row] = empty
        writers[row] = number
        clash = writers[row] != number
        self._refuse_elements(state, clash, row, width, "one writer of an element", "two in one statement")
        rows_of(self._written, width)[row] = time

    def _unseen_readers(self, lanes: Lanes, row: Array, width: int) -> Array:
        """Elements that a thread read which the writing one did not wait for."""
        field = {name: rows_of(array, width)[row] for name, array in self._readers.items()}
        late = (field["thread"] != NOBODY) & (field["thread"] != _column(lanes.number, width))
        if late.any():
            seen = field["cta"] == _column(lanes.cta, width)
            for warp in range(lanes.warps):
                known = self.order.knows(_column(lanes.row, width), np.asarray(warp), field["time"])
                seen &= known | ((field["warps"] >> np.uint32(warp)) & 1 == 0)
            late &= ~seen
        return np.asarray(late)

    def _known(self, lanes: Lanes, other: Array, time: Array) -> Array:
        """Is `other`, a thread's number, of the same CTA, with a barrier after `time`?"""
        width = 1 if other.ndim == 1 else other.shape[1]
        here = other // lanes.block == _column(lanes.cta, width)
        warp = other % lanes.block // 32
        known = self.order.knows(_column(lanes.row, width), warp, time)
        return np.asarray(here & known)

    def _refuse_elements(
        self, state: State, bad: Array, row: Array, width: int, expected: str, found: str
    ) -> None:
        if bad.any():
            lane, column = divmod(int(np.argmax(bad)), width)
            state.fail(expected, found, lane, self.name, int(row[lane]) * width + column)


def _column(values: Array, width: int) -> Array:
    return values if width == 1 else values[:, None]


def _elements(row: Array, width: int) -> Array:
    return np.asarray(row[:, None] * width + np.arange(width))


def _span(width: int) -> str:
    return "one outside" if width == 1 else f"{width} that are not all inside"


def total(memories: Sequence[GlobalMemory]) -> dict[str, int]:
    """Sums of what the parameters counted."""
    fields = ("bytes_read", "bytes_written", "vectors")
    return {field: sum(getattr(memory, field) for memory in memories) for field in fields}
