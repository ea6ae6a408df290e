"""Blocks of columns that a step's rows need not look at: everything in them is masked.

    s = select(row >= column, scores, -1e9);  e = exp(s - max of s)      blocks behind the step's last row

A masked column adds nothing to any reduction: its exponential is zero, once each row has met a score that is
far enough above the mask. Whether it has is known when the other blocks are done; if not, these follow. Only
what is nothing times infinity, or times what is not a number, is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jstitch.codegen.kernel_ir import Buffer, Unless
from jstitch.codegen.step_places import in_steps, is_of_step
from jstitch.ir.index import Index, Var, add, atoms, bounds, clamp, const, floordiv
from jstitch.passes.lower.column_values import ADDS, MAXIMA, OVER_COLUMNS, TIMES
from jstitch.passes.lower.find_columns import Columns

UNDERFLOW = 128.0  # below a row's maximum, of what has no exponential in f32
LOW = -1e4  # of a mask
TESTS = {"ge": (0, 1, 0), "gt": (0, 1, 1), "le": (1, 0, 0), "lt": (1, 0, 1)}
"""Comparison -> its operands (row, column) if it says row >= column + n, and n."""


@dataclass(frozen=True)
class Masked:
    """first: of a step, the first block of which all columns are masked."""

    first: Index
    unless: Unless


def find_masked(found: Columns, number: int) -> Masked | None:
    """What a pass can leave out; None where it needs all blocks."""
    if any(site.memory == number for site in found.sites):
        return None
    for test, first in _tests(found):
        tile = _Folding(found, test).maximum(number)
        if tile is not None:
            return Masked(first, tile)
    return None


def _tests(found: Columns) -> Iterator[tuple[int, Index]]:
    """Comparisons of rows with columns, and the first block in which each is false."""
    places = _places(found)
    for n, key in enumerate(found.values.keys):
        if key[0] in TESTS:
            row, column, apart = TESTS[key[0]]
            r, c = places.get(key[1 + row]), places.get(key[1 + column])
            first = None if r is None or c is None else _first(found, r, c, apart)
            if first is not None:
                yield n, first


def _places(found: Columns) -> dict[int, Index]:
    """Values that are indices, and sums of these that 32 bits hold."""
    places: dict[int, Index] = {}
    for n, (function, *x) in enumerate(found.values.keys):
        if function == "number" and len(x) == 1:
            places[n] = x[0]
        elif function == "const" and type(x[0].value) is int:
            places[n] = const(x[0].value)
        elif function in ("convert_s32", "convert_s64") and x[0] in places:
            places[n] = places[x[0]]
        elif function in ("iadd", "isub") and x[0] in places and x[1] in places:
            places[n] = places[x[0]] + places[x[1]] if function == "iadd" else places[x[0]] - places[x[1]]
        if n in places and not all(abs(end) < 1 << 31 for end in bounds(places[n])):
            del places[n]
    return places


def _first(found: Columns, row: Index, column: Index, apart: int) -> Index | None:
    """The first block with row < column + apart for all rows of the step, and all of its columns."""
    own = Var("column", found.count)
    inner = Var("row in step", found.lane.step)
    if [atom for atom, _ in column.terms] != [own] or own in atoms([row]):
        return None
    ((_, stride),) = column.terms
    steps = in_steps(row, found.lane, inner)
    last = dict(steps.terms).get(inner, 0)
    rest = Index(steps.const, tuple((a, k) for a, k in steps.terms if a != inner))
    if stride < 1 or last < 0 or not all(is_of_step(a, found.lane) for a in atoms([rest])):
        return None
    highest = add(rest, const(last * (found.lane.step - 1) - column.const - apart))
    if bounds(highest)[0] < 0:
        return None
    turns = found.count // found.block
    return clamp(add(floordiv(highest, stride * found.block), const(1)), 0, turns)


class _Folding:
    """What values are in a masked column, where that is known."""

    def __init__(self, found: Columns, test: int) -> None:
        self.found, self.test = found, test
        self.known: list[Any] = []
        self.masks: dict[Buffer, float] = {}
        for n in range(len(found.values.keys)):
            self.known.append(False if n == test else self._fold(n))

    def maximum(self, number: int) -> Unless | None:
        """The running maximum that has to be above the mask, where nothing else matters to the pass."""
        tiles: set[Buffer] = set()
        for site in self.found.sites:
            if not site.is_reduced or site.level != number:
                continue
            for name, update in site.updates.items():
                masked = self.known[update.summand]
                if update.function in ADDS and masked == 0:
                    tiles |= {self.found.values.base(b) for b in self.found.changing(site)[name]}
                elif update.function in MAXIMA and masked is not None:
                    own = {b for b, n in self.found.values.running.items() if n == update.summand}
                    tiles |= own
                    if not own:
                        return None
                else:
                    return None
        if len(tiles) != 1 or not tiles <= self.masks.keys():
            return None
        (tile,) = tiles
        if self.found.levels[tile] != number:
            return None
        above = np.float32(self.masks[tile]) + np.float32(UNDERFLOW)
        return Unless(tile, float(max(above, np.finfo(np.float32).min)))

    def _fold(self, n: int) -> Any:
        values = self.found.values
        function, *operands = values.keys[n]
        if function == "const":
            return operands[0].value
        if function in ("running", "load", "number", "total"):
            return None
        if function == OVER_COLUMNS:
            return self.known[operands[1]] if operands[0] in (*ADDS, *MAXIMA) else None
        return self._call(n, function, operands)

    def _call(self, n: int, function: str, operands: list[int]) -> Any:
        x = [self.known[k] for k in operands]
        if function == "select":
            return None if x[0] is None else x[1] if x[0] else x[2]
        if function == "and_":
            return False if False in [v for v in x if isinstance(v, bool)] else None
        if function in TIMES and 0 in x:
            (other,) = operands[: x.index(0)] + operands[x.index(0) + 1 :]
            return 0.0 if self._is_given(other) else None
        if function in ("exp", "exp_nonpositive"):
            return self._exponential(n, operands[0])
        if function == "div" and x[0] == 0:
            return 0.0
        if function.startswith("convert_") or function == "neg":
            return x[0] if function != "neg" or x[0] is None else -x[0]
        if function in (*ADDS, *TIMES) and None not in x:
            return x[0] + x[1] if function in ADDS else x[0] * x[1]
        return None

    def _is_given(self, n: int) -> bool:
        """Whether it is a number from memory, or a constant: times zero, nothing."""
        todo = [n]
        while todo:
            function, *operands = self.found.values.keys[todo.pop()]
            if function == "select":
                todo += operands[1:]
            elif function.startswith("convert_"):
                todo += operands
            elif function not in ("load", "const", "running"):
                return False
        return True

    def _exponential(self, n: int, x: int) -> float | None:
        """0 for that of a mask less a maximum."""
        values = self.found.values
        while str(values.keys[x][0]).startswith("convert_"):
            x = values.keys[x][1]
        factors = values.factors[n]
        if values.keys[x][0] != "sub" or not factors or len(factors) != 1:
            return None
        mask = self.known[values.keys[x][1]]
        if not isinstance(mask, float) or mask > LOW:
            return None
        self.masks[values.base(factors[0])] = mask
        return 0.0
