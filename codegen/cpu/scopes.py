"""Alias information: accesses with different buffer numbers never alias.

LLVM learns it from scope metadata. One domain per bit of the number: an access is in the scope of its own bit
and disjoint from the scope of the other one. Two numbers differ in some domain, which proves them apart; a
kernel of any number of buffers needs only 2 x BITS scopes and lists of BITS entries.
"""

from __future__ import annotations

from typing import Any

BITS = 12
SCOPES = (1 << BITS) - 1  # numbers a kernel may use
CONSTANTS = SCOPES  # the scope of the functions' own tables


def _scopes(module: Any, number: int) -> Any:
    """The metadata list of one scope per domain: (bit, value of that bit in `number`)."""
    # kept on the module: its nodes refer to it, so a table elsewhere would keep every module alive
    lists = vars(module).setdefault("_jstitch_scopes", {})
    if number not in lists:
        lists[number] = _write_scopes(module, number)
    return lists[number]


def _write_scopes(module: Any, number: int) -> Any:
    nodes = []
    for bit in range(BITS):
        domain = module.add_metadata([f"jstitch.bit{bit}"])
        nodes.append(module.add_metadata([f"jstitch.bit{bit}.{number >> bit & 1}", domain]))
    return module.add_metadata(nodes)


def tag(instruction: Any, module: Any, scope: int) -> None:
    """Mark a load or store as an access to one buffer."""
    instruction.set_metadata("alias.scope", _scopes(module, scope))
    instruction.set_metadata("noalias", _scopes(module, ~scope))
