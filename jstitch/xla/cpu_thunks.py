"""What XLA:CPU starts when it runs a computation: its thunks, in order.

body: {copy, fusion, while, custom-call}      four thunks: of a copy, a kernel, a loop, a call
call xla_cpu_small_call: while {...}          one kernel, with the loop in it
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from jstitch.xla.hlo import Computation, Instruction, Module

ONE_KERNEL = 'xla_cpu_small_call="true"'  # XLA's mark of a call that it emits as one function, loops and all
FEW_THUNKS = 8
SMALL_BUFFER = 512  # bytes
"""XLA's executor starts so few thunks, or thunks of buffers that small, one after the other."""
NUMBER = "jstitch_number"  # the attribute of a call of ours that tells which it is

_SPLIT = re.compile(r'outer_dimension_partitions":\["?(\d+)')
_NUMBERED = re.compile(rf"\b{NUMBER} = (\d+)")
_NOTHING = frozenset("parameter constant tuple get-tuple-element bitcast after-all".split())


def thunks_of(scope: Computation) -> tuple[Instruction, ...]:
    """What a computation starts."""
    return tuple(i for i in scope.instructions.values() if i.opcode not in _NOTHING)


def is_one_kernel(thunk: Instruction) -> bool:
    """Whether a call's whole computation is one function."""
    return ONE_KERNEL in thunk.rest


def parts_of(thunk: Instruction) -> int:
    """Among how many tasks XLA divides a kernel."""
    found = _SPLIT.search(thunk.rest)
    return int(found[1]) if found else 1


def busy_cores(thunk: Instruction, cores: float) -> float:
    """How many of the cores it keeps busy by itself: a kernel in parts, a library's work, or one core."""
    if (parts := parts_of(thunk)) > 1:
        return min(cores, parts)
    is_library = thunk.opcode in ("dot", "convolution") or "kind=kCustom" in thunk.rest
    return cores if is_library else 1.0


def number_of(thunk: Instruction) -> int | None:
    """Which call of ours it is; None: somebody else's."""
    found = _NUMBERED.search(thunk.rest)
    return int(found[1]) if found else None


def in_order(scope: Computation, thunks: Sequence[Instruction]) -> bool:
    """Whether thunks start one after the other; else by a queue, each when what it waits for is there."""
    if len(thunks) <= FEW_THUNKS:
        return True
    buffers = (a for t in thunks for i in (t, *_sources(scope, t)) for a in i.arrays)
    if all(a.nbytes <= SMALL_BUFFER for a in buffers):
        return True
    return all(before in _sources(scope, after) for before, after in itertools.pairwise(thunks))


def _sources(scope: Computation, thunk: Instruction) -> list[Instruction]:
    """What a thunk reads, behind views."""
    found = [scope.instructions[o.name] for o in thunk.operands]
    while any(i.opcode == "bitcast" for i in found):
        found = [scope.instructions[i.operands[0].name] if i.opcode == "bitcast" else i for i in found]
    return found


def thunks_a_turn(module: Module) -> int | None:
    """Of all loops of a program together; None where every loop is one kernel, or in one."""
    found = list(_bodies(module, module.entry))
    return sum(found) if found else None


def _bodies(module: Module, name: str) -> Iterator[int]:
    for thunk in thunks_of(module.computations[name]):
        inner = list(thunk.branches)
        if thunk.opcode == "while":
            inner = [thunk.attribute("body")]
            yield len(thunks_of(module.computations[inner[0]]))
        elif thunk.opcode == "call" and not is_one_kernel(thunk):
            inner = [thunk.attribute("to_apply")]
        for computation in inner:
            yield from _bodies(module, computation)
