"""Alias information: accesses with different buffer numbers never alias.

LLVM learns it from scope metadata. One domain per bit of the number: an access is in the scope of its own bit
and disjoint from the scope of the other one. Two numbers differ in some domain, which proves them apart; a
kernel of any number of buffers needs only 2 x BITS scopes and lists of BITS entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

BITS = 12
SCOPES = (1 << BITS) - 1  # numbers a kernel may use
CONSTANTS = SCOPES  # the scope of the functions' own tables


def _scopes(module: Any, number: int) -> Any:
    """The metadata list of one scope per domain: (bit, value of that bit in `number`)."""
    # kept on the module: its nodes refer to it, so a table elsewhere would keep every module alive
    known = vars(module).setdefault("_jstitch_scopes", {})
    if not known:
        known.update((("bit", bit, value), node) for bit, value, node in _write_bits(module))
    if number not in known:
        known[number] = module.add_metadata([known["bit", bit, number >> bit & 1] for bit in range(BITS)])
    return known[number]


def _write_bits(module: Any) -> Iterator[tuple[int, int, Any]]:
    for bit in range(BITS):
        domain = module.add_metadata([f"jstitch.bit{bit}"])
        for value in (0, 1):
            yield bit, value, module.add_metadata([f"jstitch.bit{bit}.{value}", domain])


def tag(instruction: Any, module: Any, scope: int) -> None:
    """Mark a load or store as an access to one buffer."""
    instruction.set_metadata("alias.scope", _scopes(module, scope))
    instruction.set_metadata("noalias", _scopes(module, ~scope))
