"""Check that the integers of a kernel's text fit the 64 bits that the CPU backend computes them in."""

from __future__ import annotations

from functools import lru_cache

from jstitch.codegen.bound_integers import ADDRESS, TABLE, Datum, bound_integers
from jstitch.codegen.interval import Interval
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.codegen.parse_text import functions_of

BITS = 64


def check_integers(source: KernelSource) -> tuple[str, ...]:
    """What may not fit, one line each; empty when everything does."""
    return _unproven(source.text, source.phases)


@lru_cache(maxsize=1 << 4)
def _unproven(text: str, phases: tuple[PhaseSource, ...]) -> tuple[str, ...]:
    functions = functions_of(text)
    found: dict[str, None] = {}
    for phase in phases:
        function = functions[phase.function]
        table, arena, program = (a.arg for a in function.args.args)
        known: dict[str, Datum | Interval] = {table: TABLE, arena: ADDRESS}
        known[program] = Interval(0, phase.programs - 1)
        found |= dict.fromkeys(bound_integers(function, known, BITS))
    return tuple(found)
