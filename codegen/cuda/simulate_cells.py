"""Variables of the simulated text: a value over all lanes, and the lanes that ever assigned it.

put(cell, new, positions=[4 5 6 7], count=8)   ->   a cell with the upper half of its lanes replaced
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jstitch.codegen.cuda.simulate_index import Index
from jstitch.codegen.cuda.simulate_lanes import Array

Mask = Array | None  # None: every lane


@dataclass(frozen=True, eq=False)
class Registers:
    """`registers_f32(n)`: cells of one dtype; None where no lane assigned."""

    dtype: np.dtype[Any]
    cells: list[Cell | None]


@dataclass(frozen=True, eq=False)
class Addresses:
    """Which parameter's memory each lane (or, at rank 0, every lane) points to."""

    targets: tuple[Any, ...]
    which: Array

    def among(self, targets: tuple[Any, ...]) -> Array:
        """`which` as numbers into a longer list of targets."""
        return np.asarray([targets.index(t) for t in self.targets])[self.which]


@dataclass(frozen=True, eq=False, slots=True)
class Cell:
    """value: a scalar (an array over lanes or of rank 0), an Index, Registers, or Addresses."""

    value: Any
    assigned: Mask = None


def kind(value: Any) -> str:
    """The type of a value, as messages name it."""
    match value:
        case int() | Index():
            return "index"
        case Registers(dtype, cells):
            return f"{len(cells)} registers of {dtype}"
        case np.ndarray() | np.generic():
            return str(value.dtype)
    return type(value).__name__


def contents(cell: Cell) -> tuple[Cell | None, ...]:
    """The cells of a register array as they are now."""
    return tuple(cell.value.cells) if isinstance(cell.value, Registers) else ()


def same_kind(old: Any, new: Any) -> bool:
    """Have two values one type?"""
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return bool(old.dtype == new.dtype)
    return kind(old) == kind(new)


def choose(mask: Mask, yes: Any, no: Any) -> Any:
    """`yes` on the lanes of the mask, `no` on the others; two values of one type."""
    if mask is None:
        return yes
    if isinstance(yes, Addresses):
        targets = _all_targets(yes, no)
        return Addresses(targets, np.where(mask, yes.among(targets), no.among(targets)))
    if isinstance(yes, Index):
        low, high = min(yes.low, no.low), max(yes.high, no.high)
        return Index(np.where(mask, yes.raw, no.raw), low, high, int(np.gcd(yes.multiple, no.multiple)))
    return np.where(mask, yes, no)


def take(cell: Cell, positions: Array) -> Cell:
    """The cell on some of its lanes."""
    value = cell.value
    if isinstance(value, Registers):
        cells = [None if c is None else take(c, positions) for c in value.cells]
        return Cell(Registers(value.dtype, cells), _some(cell.assigned, positions))
    if isinstance(value, Index):
        return Cell(
            Index(_some(value.raw, positions), value.low, value.high, value.multiple),
            _some(cell.assigned, positions),
        )
    if isinstance(value, Addresses):
        which = _some(value.which, positions)
        return Cell(Addresses(value.targets, which), _some(cell.assigned, positions))
    if isinstance(value, np.ndarray | np.generic):
        return Cell(_some(value, positions), _some(cell.assigned, positions))
    return cell


def _some(values: Any, positions: Array) -> Any:
    return values if values is None or np.ndim(values) == 0 else values.take(positions)


def put(old: Cell | None, new: Cell, positions: Array, count: int) -> Cell:
    """`old` over `count` lanes with the lanes at `positions` replaced by `new`."""
    assigned = _scatter(None if old is None else old.assigned, new.assigned, positions, count, old is None)
    value = new.value
    if isinstance(value, Registers):
        before = old.value.cells if old is not None and isinstance(old.value, Registers) else ()
        cells = [
            _put_element(before[k] if k < len(before) else None, cell, positions, count)
            for k, cell in enumerate(value.cells)
        ]
        return Cell(Registers(value.dtype, cells), assigned)
    if isinstance(value, Addresses):
        pointed = value if old is None else old.value
        targets = _all_targets(value, pointed)
        start = None if old is None else pointed.among(targets)
        return Cell(Addresses(targets, _over(start, value.among(targets), positions, count)), assigned)
    if isinstance(value, Index):
        low, high, multiple = value.low, value.high, value.multiple
        if old is not None:
            low, high = min(low, old.value.low), max(high, old.value.high)
            multiple = int(np.gcd(multiple, old.value.multiple))
        raw = _over(None if old is None else old.value.raw, value.raw, positions, count)
        return Cell(Index(raw, low, high, multiple), assigned)
    return Cell(_over(None if old is None else old.value, value, positions, count), assigned)


def _all_targets(a: Addresses, b: Addresses) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*a.targets, *b.targets)))


def _put_element(old: Cell | None, new: Cell | None, positions: Array, count: int) -> Cell | None:
    return old if new is None else put(old, new, positions, count)


def _over(old: Any, new: Any, positions: Array, count: int) -> Array:
    out = np.zeros(count, new.dtype) if old is None else np.array(np.broadcast_to(old, count))
    out[positions] = new
    return out


def _scatter(old: Mask, new: Mask, positions: Array, count: int, fresh: bool) -> Mask:
    if old is None and not fresh and new is None:
        return None
    out = np.zeros(count, bool) if fresh else np.ones(count, bool) if old is None else old.copy()
    out[positions] = True if new is None else new
    return out
