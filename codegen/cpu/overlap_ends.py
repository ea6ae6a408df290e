"""Loops that do not fill their last vector: that one begins earlier, and makes some elements twice.

    for i in range(0, 20):                            for i in range(0, 16):            two vectors
        store_f32(y, i, exp(load_f32(x, i, 1)), 2)        store_f32(y, i, ...)
        acc = add_reassoc(acc, ...)           ->          acc = add_reassoc(acc, ...)
                                                      for i in range(12, 20):           one more
                                                          store_f32(y, i, ...)
                                                          acc = add_reassoc(acc, select(i >= 16, ..., -0.0))

One by one, LLVM's way, 4 turns of exponentials take longer than 16 in vectors. Where masks are registers of
their own, a masked vector is better still (hint_loop.py).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from jstitch.codegen.cpu.assignments import assignments
from jstitch.codegen.cpu.processor import host_has
from jstitch.codegen.cpu.short_rows import DIVISIONS

MOST = 256  # turns of such loops: of longer ones the last vector is little
NEUTRAL: Mapping[str, float | None] = {
    "add_reassoc": -0.0,
    "mul_reassoc": 1.0,
    "iadd": 0,
    "max_reassoc": None,
    "min_reassoc": None,
}
"""What changes no total, of functions that make one; None where nothing changes it twice."""


def vector_of(
    trips: int | None, name: str, body: Sequence[ast.stmt], is_carried: Callable[[str], bool]
) -> int:
    """Turns of the vector that a loop ends with; 0 for a loop that ends otherwise.

    name: the loop's variable. is_carried: whether a name goes on from one turn to the next.
    """
    vector = 8 if host_has("avx2") else 4
    if trips is None or not vector < trips <= MOST or host_has("avx512f"):
        return 0
    left = trips % vector
    if left == 0 or (left == 1 and trips > 2 * vector):
        return 0
    return vector if _may_repeat(body, is_carried) and _lies_in_vectors(name, body) else 0


def _may_repeat(body: Sequence[ast.stmt], is_carried: Callable[[str], bool]) -> bool:
    """Whether a turn that is run again stores the same, totals apart, which nothing else reads."""
    totals = set()
    if max(assignments(body).values(), default=0) > 1:  # such a name is told from no total
        return False
    for statement in body:
        match statement:
            case ast.Assign([ast.Name(name)], value) if is_carried(name):
                if not _adds(name, value):
                    return False
                totals.add(name)
            case ast.Assign([ast.Name()], _):
                pass
            case ast.Expr(ast.Call(ast.Name(name))) if name.startswith("store_"):
                pass
            case _:
                return False
    read = Counter(n.id for n in _inside(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    apart = _scopes(body, "load_").isdisjoint(_scopes(body, "store_"))
    return apart and all(read[total] == 1 for total in totals)


def _adds(total: str, value: ast.expr) -> bool:
    match value:
        case ast.Call(ast.Name(function), [ast.Name(name), _], []):
            return function in NEUTRAL and name == total
    return False


def _scopes(body: Sequence[ast.stmt], verb: str) -> set[object]:
    """The numbers of buffers that are loaded or stored: others never overlap them."""
    found = set[object]()
    for n in _inside(body):
        match n:
            case ast.Call(ast.Name(function), [*_, ast.Constant(number)]) if function.startswith(verb):
                found.add(number)
    return found


def _lies_in_vectors(name: str, body: Sequence[ast.stmt]) -> bool:
    """Whether the loop's variable is neither multiplied nor divided: neighbours are neighbours in memory."""
    for n in _inside(body):
        match n:
            case ast.BinOp(left, ast.Mult(), right) if name in (_id(left), _id(right)):
                return False
            case ast.Call(ast.Name(function)) if function in DIVISIONS:
                return False
    return True


def _id(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _inside(body: Sequence[ast.stmt]) -> list[ast.AST]:
    return [n for statement in body for n in ast.walk(statement)]
