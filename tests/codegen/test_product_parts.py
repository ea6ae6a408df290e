"""Parts of a micro-kernel: those, and only those, that the loops over a product's sizes come to."""

from __future__ import annotations

import pytest

from jstitch.codegen.cpu.product_parts import parts_of
from jstitch.codegen.cpu.vector_writer import VECTORS, VectorMachine

MACHINES = [VectorMachine(16, 12), VectorMachine(8, 6), VectorMachine(4, 6)]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rows", range(30))
def test_heights_are_those_of_the_blocks(machine: VectorMachine, rows: int) -> None:
    done, used = 0, []
    for height in machine.heights:
        while done + height <= rows:
            done += height
            used.append(height)
    assert done == rows
    assert parts_of(rows, 1, machine).heights == tuple(dict.fromkeys(used))


@pytest.mark.parametrize("machine", MACHINES)
def test_panels_are_those_of_the_columns(machine: VectorMachine) -> None:
    for columns in range(3 * machine.panel + 1):
        panels = set()
        for first in range(0, columns, machine.panel):
            width = min(machine.panel, columns - first)
            vectors = VECTORS if width > machine.lanes else 1
            panels.add((vectors, width == vectors * machine.lanes))
        assert parts_of(1, columns, machine).panels == panels, columns


def test_of_unknown_sizes_there_are_all() -> None:
    parts = parts_of(None, None, MACHINES[0])
    assert parts.heights == (12, 8, 4, 2, 1)
    assert len(parts.panels) == 2 * VECTORS
    assert str(parts) == "12_8_4_2_1_1part_1whole_2part_2whole"
