"""What keeps XLA:CPU from making vectors of a loop: changes of sides, and indices that are divided.

concatenate, pad                      each element asks which operand it is of    ours is cut at the seams
broadcast to [n, 2], as [2 n] then    each asks for the half of its place          ours takes two at a time
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Case, FloorDiv, Mod, Var, atoms, var
from jstitch.ir.ops import lookup
from jstitch.ir.ops.build import is_concatenate, is_reshape
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.remember import per_object

MANY_SIDES = 3  # of a concatenate


@per_object
def seam_work(op: Op, machine: Machine) -> float:
    """Cycles above those of a loop of vectors, for an op's changes of sides."""
    return machine.seam_cycles * op.results[0].tensor.size if len(_cases(op)) > 1 else 0.0


def circular_times(
    machine: Machine, producers: Mapping[Value, Op], turns: Mapping[Op, float]
) -> dict[Op, float]:
    """How many times as long the loop's sines take where its elements are of one of several parts.

    Of two parts of one size LLVM makes vectors. turns: of what the loop computes.
    """
    found: dict[Op, float] = {}
    todo = [made for made in turns if is_concatenate(made) and len(made.operands) >= MANY_SIDES]
    while todo and machine.seam_circular != 1.0:
        makers = (producers.get(v) for v in todo.pop().operands)
        new = [m for m in makers if m is not None and m in turns and m not in found]
        found |= {m: machine.seam_circular if lookup(m.name).reduced_cpi is not None else 1.0 for m in new}
        todo += new
    return found


def division_work(
    op: Op, machine: Machine, producers: Mapping[Value, Op], in_memory: Container[Value]
) -> float:
    """The same for its divided indices. producers: of what the loop may compute."""
    if machine.seam_cycles == 0.0 or not _divides(op) or not _reads_moved(op, producers, in_memory):
        return 0.0
    return machine.seam_cycles * op.results[0].tensor.size


@per_object
def _divides(op: Op) -> bool:
    """Whether what neighbours are of is found by a division, which our loops do without."""
    last = max((d for d, n in enumerate(op.results[0].shape) if n > 1), default=0)
    for atom in atoms(e for case in _cases(op) for e in case.index):
        match atom:
            case FloorDiv(of, _) | Mod(of, _):
                if any(isinstance(a, Var) and a.name == f"i{last}" for a, _ in of.terms):
                    return True
    return False


def _cases(op: Op) -> tuple[Case, ...]:
    """Where an element of an op's result comes from, if it is moved."""
    cases = lookup(op.name).cases
    if cases is None:
        return ()
    return tuple(cases(op, tuple(var(Var(f"i{d}", n)) for d, n in enumerate(op.results[0].shape))))


def _reads_moved(op: Op, producers: Mapping[Value, Op], in_memory: Container[Value]) -> bool:
    """Whether the loop reads what it moves once more: the divisions do not cancel out, as in memory."""
    todo, seen = [*op.operands], set[Value]()
    while todo:
        v = todo.pop()
        maker = producers.get(v)
        if v in seen or v in in_memory or maker is None or is_free(maker):
            continue
        seen.add(v)
        if lookup(maker.name).cases is not None and not is_reshape(maker):
            return True
        todo += maker.operands
    return False
