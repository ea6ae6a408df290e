"""Calls of kernel text that touch memory or other threads, each with its arguments evaluated.

read_f32x4(b0, i)   ->   Registers of 4 float32 arrays
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from jstitch.codegen.cuda.simulate_cells import Addresses, Cell, Registers, choose
from jstitch.codegen.cuda.simulate_functions import DTYPES
from jstitch.codegen.cuda.simulate_global import GlobalMemory
from jstitch.codegen.cuda.simulate_index import Index, wrap
from jstitch.codegen.cuda.simulate_lanes import Array
from jstitch.codegen.cuda.simulate_matrices import FLOATS, Matrices
from jstitch.codegen.cuda.simulate_shared import Arena
from jstitch.codegen.cuda.simulate_state import Active, State
from jstitch.codegen.cuda.simulate_threads import Threads
from jstitch.codegen.memory_names import MEMORY
from jstitch.codegen.parse_text import parse_text

VECTOR_BYTES = 16
Handler = Callable[..., Any]


def smallest_shared_element(text: str) -> int:
    """Bytes of the narrowest element that the text keeps in the arena."""
    names = {n.id for n in ast.walk(parse_text(text)) if isinstance(n, ast.Name)}
    shared = (MEMORY[name] for name in names if name in MEMORY and MEMORY[name].shared)
    return min((found.dtype.itemsize for found in shared), default=VECTOR_BYTES)


class Calls:
    """The handlers of one batch, found by name; they take evaluated arguments."""

    def __init__(self, state: State, arena: Arena, threads: Threads) -> None:
        self.state, self.arena, self.threads = state, arena, threads
        self.matrices = Matrices(arena, threads, len(state.lanes))
        self._named: Mapping[str, Handler] = {
            "barrier": self._barrier,
            "barrier_warp": lambda: threads.warp(state),
            "barrier_team": self._barrier_team,
            "shuffle_xor": self._shuffle_xor,
            "shuffle": self._shuffle,
            "prefetch_bulk": self._prefetch_bulk,
            "commit_copies": lambda: self.matrices.commit(state),
            "await_copies": lambda pending: self.matrices.wait(state, pending),
            **{f"multiply_add_{t}": partial(self.matrices.multiply_add, state, t) for t in FLOATS},
        }
        self._memory: dict[str, Handler] = {}

    def find(self, name: str) -> Handler | None:
        return self._named.get(name) or self._memory.get(name) or self._memory_call(name)

    def _memory_call(self, name: str) -> Handler | None:
        found = MEMORY.get(name)
        if found is None or (found.width > 1 and found.width * found.dtype.itemsize > VECTOR_BYTES):
            return None
        table: Mapping[tuple[str, bool], Handler] = {
            ("read", False): partial(self._load, cached=True),
            ("load", False): partial(self._load, cached=False),
            ("store", False): self._store,
            ("load", True): self._shared_load,
            ("store", True): self._shared_store,
            ("copy", True): self._copy,
            ("matrices", True): partial(self._matrices, turned=False),
            ("turned", True): partial(self._matrices, turned=True),
        }
        handler = table[found.verb, found.shared]
        self._memory[name] = partial(handler, found.dtype.name.lower(), found.width)
        return self._memory[name]

    # -- memory ---------------------------------------------------------------------------------------

    def _load(self, dtype: str, width: int, address: Any, index: Any, *, cached: bool) -> Any:
        place, columns = self.s64(index), None
        for memory, active in self._targets(address):
            with self.state.only(active):
                found = self._same(memory, dtype).load(self.state, place, width, cached)
            columns = (
                found
                if columns is None
                else [choose(active.mask, new, old) for new, old in zip(found, columns, strict=True)]
            )
        assert columns is not None
        return self._result(dtype, columns)

    def _prefetch_bulk(self, address: Any, place: Any, nbytes: Any) -> None:
        if not isinstance(nbytes, int) or nbytes <= 0 or nbytes % VECTOR_BYTES:
            self.state.fail(f"a constant multiple of {VECTOR_BYTES} bytes", str(nbytes))
        for memory, active in self._targets(address):
            with self.state.only(active):
                memory.ask(self.state, self.s64(place), nbytes)

    def _store(self, dtype: str, width: int, address: Any, index: Any, value: Any, first: Any = 0) -> None:
        values, place = self._values(value, first, width), self.s64(index)
        for memory, active in self._targets(address):
            with self.state.only(active):
                self._same(memory, dtype).store(self.state, place, values)

    def _shared_load(self, dtype: str, width: int, tile: Any, index: Any) -> Any:
        found = self.arena.load(self.state, self.s64(tile), self.s64(index), DTYPES[dtype], width)
        return self._result(dtype, found)

    def _shared_store(
        self, dtype: str, width: int, tile: Any, index: Any, value: Any, first: Any = 0
    ) -> None:
        values = self._values(value, first, width)
        self.arena.store(self.state, self.s64(tile), self.s64(index), DTYPES[dtype], values)

    def _copy(self, dtype: str, width: int, tile: Any, index: Any, address: Any, place: Any) -> None:
        found = self._load(dtype, width, address, place, cached=False)
        values = [cell.value for cell in found.cells]
        self.matrices.copy(self.state, self.s64(tile), self.s64(index), dtype, values)

    def _matrices(
        self, dtype: str, width: int, tile: Any, index: Any, array: Any, first: Any, turned: bool
    ) -> None:
        self.matrices.read(self.state, (self.s64(tile), self.s64(index)), dtype, array, first, turned)

    def _targets(self, address: Any) -> Iterator[tuple[GlobalMemory, Active]]:
        """Each memory that an active lane points to, and who does."""
        if not isinstance(address, Addresses):
            self.state.fail("a parameter of the launch", type(address).__name__)
        which, active = address.which, self.state.active
        used = np.unique(self.state.compress(which))
        if len(used) == 1:
            yield address.targets[used[0]], active
            return
        for k in used:
            mask = which == k if active.mask is None else (which == k) & active.mask
            yield address.targets[k], Active.of(self.state.lanes, mask)

    def _same(self, memory: GlobalMemory, dtype: str) -> GlobalMemory:
        if memory.parameter.dtype != dtype:
            self.state.fail(f"accesses of {memory.parameter.dtype}", f"one of {dtype}", 0, memory.name)
        return memory

    def s64(self, value: Any) -> Index:
        """Of index type, or s64."""
        if isinstance(value, int | Index):
            return wrap(value)
        if getattr(value, "dtype", None) != np.int64:
            self.state.fail("an index", str(getattr(value, "dtype", value)))
        active = self.state.compress(value)
        return Index(np.asarray(value), int(active.min()), int(active.max()), 1)

    def _values(self, value: Any, first: Any, width: int) -> list[Array]:
        if width == 1:
            return [value]
        if not isinstance(value, Registers) or not isinstance(first, int):
            self.state.fail("a register array and a constant position", "something else")
        if not 0 <= first <= len(value.cells) - width:
            self.state.fail(f"{width} registers from {first}", f"an array of {len(value.cells)}", 0)
        return [self.state.checked(value.cells[k], f"register {k}") for k in range(first, first + width)]

    def _result(self, dtype: str, columns: list[Array]) -> Any:
        if len(columns) == 1:
            return columns[0]
        mask = self.state.active.mask
        return Registers(DTYPES[dtype].compute.numpy, [Cell(column, mask) for column in columns])

    # -- threads --------------------------------------------------------------------------------------

    def _barrier(self) -> None:
        self.threads.barrier(self.state)

    def _barrier_team(self, number: Any, threads: Any) -> None:
        if not isinstance(threads, int):
            self.state.fail("a constant number of threads", "another")
        self.threads.team(self.state, self.s64(number), threads)

    def _shuffle_xor(self, value: Any, mask: Any) -> Any:
        if mask not in (1, 2, 4, 8, 16):
            self.state.fail("a constant 1, 2, 4, 8 or 16 in shuffle_xor", str(mask))
        return self._exchange(value, self.state.lanes.thread % 32 ^ mask, "shuffle_xor()")

    def _shuffle(self, value: Any, lane: Any) -> Any:
        source = np.broadcast_to(self.s64(lane).raw, len(self.state.lanes))
        return self._exchange(value, np.asarray(source), "shuffle()")

    def _exchange(self, value: Any, source: Array, what: str) -> Any:
        if isinstance(value, int | Index):
            x = wrap(value)
            return Index(self.threads.shuffle(self.state, x.raw, source, what), x.low, x.high, x.multiple)
        return self.threads.shuffle(self.state, value, source, what)
