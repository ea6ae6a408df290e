"""How often a kernel of XLA:CPU's computes each op that it holds, and what it reads from memory.

%1 = exp %0 : [64]      %2 = broadcast %1 : [64, 512]  rows differ      {%2: 1, %1: 512}, reads %0
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Mapping

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.remember import per_object
from jstitch.passes.cost.parts_read import share_taken


def xla_turns(
    root: Op,
    producers: Mapping[Value, Op],
    materialised: Container[Value],
    machine: Machine,
    most: float = math.inf,
) -> tuple[dict[Op, float], set[Value]]:
    """Of the kernel that ends in `root`: ops -> how often each element is computed; and values it reads.

    materialised: what is in memory. most: values looked at; what lies behind them is left out.
    """
    ops, reads = _held(root, producers, materialised, most)
    turns = dict.fromkeys(ops, 0.0)
    turns[root] = 1.0
    for user, so_far in turns.items():
        again = so_far * xla_repeats(user, machine)
        for v in user.operands:
            maker = producers.get(v)
            if maker in turns and v not in materialised:
                turns[maker] = max(again, turns[maker])
    return turns, reads


def _held(
    root: Op, producers: Mapping[Value, Op], materialised: Container[Value], most: float
) -> tuple[list[Op], set[Value]]:
    """The ops of the kernel, each after all that read it, and what it reads from memory."""
    done: list[Op] = []
    met, seen, reads = {root}, set[Value](), set[Value]()
    path = [(root, iter(root.operands))]
    while path:
        op, operands = path[-1]
        for v in operands:
            seen.add(v)
            maker = producers.get(v)
            if maker is None or v in materialised:
                reads.add(v)
            elif not is_free(maker) and maker not in met and len(seen) < most:
                met.add(maker)
                path.append((maker, iter(maker.operands)))
                break
        else:
            done.append(op)
            path.pop()
    return done[::-1], reads


def is_dear(op: Op) -> bool:
    """Whether it matters how often it is done: the others are lost among reads and writes."""
    return lookup(op.name).op_class is OpClass.EXPENSIVE


@per_object
def xla_repeats(op: Op, machine: Machine) -> float:
    """How often XLA:CPU computes each element that the op reads and that is in no memory.

    Once for every element of a row, where those differ: LLVM takes out of the innermost loop what is the
    same in all of it, and nothing out of the others. Less often, where it reads a part.
    """
    if not build.is_broadcast(op) or machine.device is not None:
        return share_taken(op)
    operand, shape = op.operands[0].tensor, op.result.shape
    given = {d for n, d in zip(operand.shape, op.attrs["broadcast_dimensions"], strict=True) if n > 1}
    same = itertools.takewhile(lambda d: d not in given, reversed(range(len(shape))))
    return op.result.tensor.size / max(1, operand.size * math.prod(shape[d] for d in same))
