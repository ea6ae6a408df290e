"""Rows of a few elements: the loops over one are written out, and vectors are made of many rows.

    for r in range(lo, hi):
        for i in range(0, 3):                                  for r in range(lo, hi):
            store_f32(t, i, exp(load_f32(x, r * 3 + i, 1)), 2)     x0, x1, x2 = loads, of 16 rows at once
        for i in range(0, 3):                            ->        t0, t1, t2 = exp(x0), exp(x1), exp(x2)
            acc = add_reassoc(acc, load_f32(t, i, 2))              acc = t0 + t1 + t2

LLVM does so by itself to loops of few turns, with loads and stores in groups that it shuffles, if no memory
lies between the stages: the arena's tiles are variables of the function then. What is looked up in a tile, as
a label's logit, is selected among all of its row.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

SHORT = 8  # elements of a row: the largest group that LLVM loads or stores as a whole
GATHERED = 32  # of one that is only read: gathering those of 16 rows takes less than a masked vector of each
MOST_TILES = 2048  # bytes
MOST_STATEMENTS = 1000  # written out
GROUP = 4  # elements of a group that costs LLVM few shuffles
LONG = 16  # turns of a loop that fill a vector
DIVISIONS = frozenset(("quotient", "remainder_pos"))


def rows_are_short(function: ast.FunctionDef, arena_bytes: int, gathers: bool = True) -> bool:
    """Whether all rows of a phase's function are, and tiles lie between loops over their elements.

    gathers: the processor can.
    """
    if not 0 < arena_bytes <= MOST_TILES:
        return False
    rows = _row_loops(function)
    if not rows or any(map(_divides, rows)) or not _has_places(function):
        return False
    written = [_written_out(row) for row in rows]
    most = max(elements for elements, _ in written)
    longest = GATHERED if gathers and not _stores_rows(function) else SHORT
    return 1 < most <= longest and sum(statements for _, statements in written) <= MOST_STATEMENTS


def _row_loops(function: ast.FunctionDef) -> list[ast.For]:
    """Loops over rows; the inner ones, of rows that are counted by two."""
    loops = [n for n in ast.walk(function) if isinstance(n, ast.For) and turns(n) is None]
    around = {loop for loop in loops for inner in loop.body if inner in loops}
    return [loop for loop in loops if loop not in around]


def written_out(function: ast.FunctionDef) -> frozenset[ast.For]:
    """Loops of so few turns that vectors are made of the loop around each, in other functions.

        for r in range(lo, hi):
            for i in range(0, 3):                                  x0, x1, x2 = loads, of 16 rows at once
                store_f32(y, r * 3 + i, tanh(...), 1)        ->    y0, y1, y2 = stores

    Groups that LLVM shuffles well in any loop that fills a vector; larger ones over rows that have their own.
    """
    loops = [n for n in ast.walk(function) if isinstance(n, ast.For)]
    return frozenset(
        n for outer in loops for n in outer.body if isinstance(n, ast.For) and _is_group(n, outer)
    )


def _is_group(loop: ast.For, around: ast.For) -> bool:
    most, times = turns(loop) or 0, turns(around)
    inside = [n for one in loop.body for n in ast.walk(one)]
    if not 1 < most <= SHORT or most * len(loop.body) > MOST_STATEMENTS or _divides(loop):
        return False
    if any(isinstance(n, ast.For | ast.If) for n in inside):
        return False
    if most <= GROUP:
        return times is None or times >= LONG
    calls = [n for n in inside if isinstance(n, ast.Call) and len(n.args) > 1]
    stores = [n for n in calls if _name(n.func).startswith("store")]
    row = _name(around.target)
    if any(_stride(n.args[1], row) > SHORT for n in calls):
        return False
    return times is None and all(row in _names(n.args[1]) for n in stores)


def _stride(place: ast.expr, loop: str) -> int:
    """Elements from one turn of a loop to the next."""
    for n in ast.walk(place):
        match n:
            case ast.BinOp(ast.Name(name), ast.Mult(), ast.Constant(int() as by)) if name == loop:
                return by
    return 0


def _names(place: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(place) if isinstance(n, ast.Name)}


def _stores_rows(function: ast.FunctionDef) -> bool:
    """Whether a loop over a row's elements stores them in memory."""
    tiles = tiles_of(function)
    loops = (n for n in ast.walk(function) if isinstance(n, ast.For) and (turns(n) or 0) > 1)
    calls = (n for loop in loops for n in ast.walk(loop) if isinstance(n, ast.Call) and len(n.args) > 1)
    return any(_name(n.func).startswith("store") and _name(n.args[0]) not in tiles for n in calls)


def _has_places(function: ast.FunctionDef) -> bool:
    """Whether there are tiles, whose elements all have places that are known when loops are written out.

    And no sums of columns, of which every row adds to the same ones in memory.
    """
    nodes, tiles = list(ast.walk(function)), tiles_of(function)
    counted = {_name(n.target) for n in nodes if isinstance(n, ast.For) and turns(n) is not None}
    rows = {_name(n.target) for n in nodes if isinstance(n, ast.For) and turns(n) is None}
    reached = False
    for call in (n for n in nodes if isinstance(n, ast.Call) and len(n.args) > 1):
        place = _names(call.args[1])
        if _name(call.args[0]) in tiles:
            reached = True
            is_found = looked_up(call.args[1]) is not None and _name(call.func).startswith("load")
            if not (is_found or place <= counted):
                return False
        elif _name(call.func).startswith("store") and place & counted and not place & rows:
            return False
    return reached


def tiles_of(function: ast.FunctionDef) -> frozenset[str]:
    """The names of tiles of the arena."""
    found = (n for n in ast.walk(function) if isinstance(n, ast.Assign))
    return frozenset(target for n in found for target in _tiles(n))


def looked_up(place: ast.expr) -> int | None:
    """Among how many elements of a tile a place is computed; None where it is not, or among too many."""
    match place:
        case ast.Call(ast.Name("clamp_index"), [_, ast.Constant(0), ast.Constant(int() as last)], []):
            return last + 1 if last < GATHERED else None
    return None


def _tiles(assignment: ast.Assign) -> Iterator[str]:
    """What is assigned, where that is the arena or a place in it."""
    match assignment:
        case ast.Assign([ast.Name(name)], ast.Name("arena") | ast.BinOp(ast.Name("arena"))):
            yield name


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _divides(row: ast.For) -> bool:
    """Whether an index is a row's quotient, or what is left of it: elements of 16 rows are gathered then."""
    names = (n.id for n in ast.walk(row) if isinstance(n, ast.Name))
    return not DIVISIONS.isdisjoint(names)


def turns(loop: ast.For) -> int | None:
    """How many, where it is a number."""
    match loop.iter:
        case ast.Call(ast.Name("range"), [ast.Constant(int() as lo), ast.Constant(int() as hi)], []):
            return hi - lo
    return None


def _written_out(row: ast.For) -> tuple[int, int]:
    """Most elements of a row that a loop goes over, and statements of a row with all loops written out."""
    elements, statements = 1, 0
    todo: list[tuple[ast.stmt, int]] = [(one, 1) for one in row.body]
    while todo:
        statement, times = todo.pop()
        match statement:
            case ast.For() as loop:
                inside = times * (turns(loop) or GATHERED + 1)
                elements = max(elements, inside)
                todo += ((one, inside) for one in loop.body)
            case ast.If(_, inner, orelse):
                todo += ((one, times) for one in (*inner, *orelse))
            case _:
                statements += times
    return elements, statements
