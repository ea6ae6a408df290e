"""No kernel of a drawn program writes beside its arrays."""

from __future__ import annotations

from itertools import islice

import pytest

from benchmarks.grammar.draw import programs
from jstitch.passes.lower.build_nest import CannotLowerError
from tests.codegen.guarded import overruns
from tests.codegen.test_check_phases import kernels

MOST_BYTES = 1 << 21
FEW, MANY = 6, 400


@pytest.mark.parametrize(
    "number", [*range(FEW), *(pytest.param(n, marks=pytest.mark.slow) for n in range(FEW, MANY))]
)
def test_a_drawn_program_stays_in_its_memory(number: int) -> None:
    program = next(islice((p for p in programs(20) if p.nbytes < MOST_BYTES), number, None))
    try:
        found = kernels(program, *program.shapes)
    except CannotLowerError as error:
        pytest.skip(str(error))
    assert [line for kernel in found for line in overruns(kernel)] == []
