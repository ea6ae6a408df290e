"""The state of a batch of CTAs in lockstep: variables, active lanes, the line that runs.

Assigning under a mask leaves the other lanes' values as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from jstitch.codegen.cuda.simulate_cells import (
    Cell,
    Mask,
    Registers,
    choose,
    contents,
    kind,
    put,
    same_kind,
    take,
)
from jstitch.codegen.cuda.simulate_error import Place, SimulationError
from jstitch.codegen.cuda.simulate_lanes import Array, Lanes


@dataclass(frozen=True, eq=False)
class Active:
    """Who runs: a mask over the batch's lanes, the positions where it is set, and those lanes."""

    lanes: Lanes
    mask: Mask = None
    positions: Array | None = None

    @staticmethod
    def of(lanes: Lanes, mask: Array) -> Active:
        positions = np.flatnonzero(mask)
        if len(positions) == len(lanes):
            return Active(lanes)
        return Active(lanes.take(positions), mask, positions)


@dataclass
class State:
    """lanes: all lanes that this part of the text runs on. names: the function's variables.

    escaping: the names that are read outside of the block that makes them (simulate_scopes.py).
    """

    function: str
    source: list[str]
    lanes: Lanes
    parameters: Mapping[str, Cell]
    names: dict[str, Cell] = field(default_factory=dict)
    escaping: frozenset[str] = frozenset()
    line: int = 0
    active: Active = field(init=False)

    def __post_init__(self) -> None:
        self.active = Active(self.lanes)

    # -- lanes ----------------------------------------------------------------------------------------

    def compress(self, values: Any) -> Any:
        """The values of the active lanes; a value of rank 0 stays one."""
        positions = self.active.positions
        return values if positions is None or np.ndim(values) == 0 else values.take(positions)

    def expand(self, values: Any) -> Any:
        """Active lanes' values over all lanes, zeros elsewhere."""
        positions = self.active.positions
        if positions is None or np.ndim(values) == 0:
            return values
        out = np.zeros(len(self.lanes), values.dtype)
        out[positions] = values
        return out

    def per_lane(self, values: Any) -> Array:
        """One value for each active lane."""
        return np.asarray(np.broadcast_to(self.compress(values), len(self.active.lanes)))

    @contextmanager
    def only(self, active: Active) -> Iterator[None]:
        """Run the block with these lanes active."""
        before, self.active = self.active, active
        yield
        self.active = before

    @contextmanager
    def alone(self, active: Active) -> Iterator[None]:
        """Like `only`, on arrays that hold nothing but the CTAs with an active lane: for rare branches.

        Of the names that the block makes, those in `escaping` stay.
        """
        positions = np.flatnonzero(np.repeat(active_ctas(self.lanes, active), self.lanes.block))
        whole = np.ones(len(self.lanes), bool) if active.mask is None else active.mask
        outer = self.lanes, self.names, self.active
        self.lanes = self.lanes.take(positions)
        self.names = {name: take(cell, positions) for name, cell in self.names.items()}
        self.active = Active.of(self.lanes, whole.take(positions))
        given = {name: (cell, contents(cell)) for name, cell in self.names.items()}
        yield
        found, (self.lanes, self.names, self.active) = self.names, outer
        for name, cell in found.items():
            if given.get(name) != (cell, contents(cell)) and (name in given or name in self.escaping):
                self.names[name] = put(self.names.get(name), cell, positions, len(self.lanes))

    # -- errors ---------------------------------------------------------------------------------------

    def fail(
        self, expected: str, found: str, lane: int | None = None, buffer: str = "", index: int | None = None
    ) -> NoReturn:
        """lane: a position among the active lanes."""
        text = self.source[self.line - 1].strip() if self.line else ""
        cta, thread = None, None
        if lane is not None:
            cta, thread = int(self.active.lanes.cta[lane]), int(self.active.lanes.thread[lane])
        raise SimulationError(
            expected, found, Place(self.function, self.line, text, cta, thread, buffer, index)
        )

    def fail_where(self, expected: str, found: str, bad: Array | None) -> NoReturn:
        """bad: over all lanes (or of rank 0): the first active one is named."""
        if bad is None:
            self.fail(expected, found)
        self.fail(expected, found, int(np.argmax(self.per_lane(bad))))

    # -- variables ------------------------------------------------------------------------------------

    def read(self, name: str) -> Any:
        cell = self.names.get(name) or self.parameters.get(name)
        return self.checked(cell, name)

    def checked(self, cell: Cell | None, name: str) -> Any:
        """The cell's value, when every active lane has assigned it."""
        if cell is None:
            self.fail(f"a value in {name}", "none: it was never assigned", 0)
        assigned = cell.assigned
        if assigned is not None and assigned is not self.active.mask:
            missing = ~self.compress(assigned)
            if missing.any():
                lane = int(np.argmax(missing))
                self.fail(f"a value in {name}", "none: this thread never assigned it", lane)
        return cell.value

    def assign(self, name: str, value: Any) -> None:
        self.names[name] = self.merged(self.names.get(name), value, name)

    def merged(self, old: Cell | None, value: Any, name: str) -> Cell:
        """`value` on the active lanes, what was there on the others."""
        mask = self.active.mask
        if old is not None and not same_kind(old.value, value):
            self.fail(f"{name} to keep its type {kind(old.value)}", kind(value))
        if mask is None or old is None or old.assigned is mask or isinstance(value, Registers):
            return Cell(value, mask)
        assigned = None if old.assigned is None else old.assigned | mask
        return Cell(choose(mask, value, old.value), assigned)


def active_ctas(lanes: Lanes, active: Active) -> Array:
    """For each CTA of the lanes: has it an active thread?"""
    count = len(lanes) // lanes.block
    if active.mask is None:
        return np.ones(count, bool)
    return np.asarray(active.mask.reshape(count, lanes.block).any(1))
