"""How a CPU's loops run where their index is wanted divided: loads at `i // 2` are of single elements.

    y[i] = x[i // 2] * s[i // 128]        ->    for i in range(0, n // 128):
                                                    for j in range(0, 64):
                                                        v = x[i * 64 + j];  w = s[i]
                                                        y[i * 128 + j * 2] = v * w
                                                        y[i * 128 + j * 2 + 1] = v * w

Runs of a large divisor are a loop of their own. The few elements of a small one are written out in one turn;
LLVM makes vectors of such turns, whose loads and stores lie together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from jstitch.codegen.kernel_ir import Nest
from jstitch.ir.index import Condition, Index, Var

RUN = 8  # elements: runs of more are worth an innermost loop of their own
FEW_POINTS, MOST_POINTS = 7, 1 << 7
"""At which a loop is cut, where conditions on it change: few whatever is written for each piece."""
MOST_CODE = 1 << 10
"""Instructions of the pieces of a loop with more than few: LLVM takes seconds to compile more."""
UNROLLED, SHORT, MOST_UNROLLED = 300, 16, 3 << 10
"""Instructions up to which LLVM writes out all turns of a loop of few, and of all pieces together then."""
MOST_TOGETHER = 8  # elements of a turn: the largest group that LLVM loads or stores as a whole

Division = tuple[Index, int]
"""What is divided, and the divisor."""


def loop_name(d: int) -> str:
    """The variable of the loop over dimension d; -1: over the whole row."""
    return f"i{d}" if d >= 0 else "i"


def run_name(d: int) -> str:
    """The variable of the loop over the elements of one of the dimension's runs."""
    return loop_name(d).replace("i", "j")


def runs_of(divided: Iterable[Division], name: str, size: int) -> int:
    """The elements of a run of the loop, where its variable is divided by what is worth one; else 0."""
    by = (by for of, by in divided if str(of) == name)
    return min((run for run in by if RUN <= run < size and size % run == 0), default=0)


def together_of(divided: Iterable[Division], name: str, size: int) -> int:
    """Elements that a turn of the loop takes, so that no small division of its variable is left; else 1."""
    found = 1
    for of, by in divided:
        own = [k for atom, k in of.terms if isinstance(atom, Var) and atom.name == name]
        others = [k for atom, k in of.terms if not (isinstance(atom, Var) and atom.name == name)]
        if not own or any(k % by for k in others):
            continue
        wanted = math.lcm(found, by // math.gcd(by, own[0]))
        if wanted <= MOST_TOGETHER:
            found = wanted
    return found if found < size else 1


def seams_of(conditions: Iterable[Condition], names: Sequence[str]) -> tuple[str, list[int]] | None:
    """A loop variable, the innermost that has any, and the points at which conditions on it change."""
    points: dict[str, set[int]] = {}
    for c in conditions:
        match c.of:
            case Index(base, ((Var(name, extent), 1),)) if name in names and c.step == 1:
                for edge in (c.lo - base, c.hi - base):
                    if 0 < edge < extent:
                        points.setdefault(name, {0, extent}).add(edge)
    for name in reversed(names):
        found = fewer_points(sorted(points.get(name, ())))
        if len(found) > 2:
            return name, found
    return None


def fewer_points(points: list[int], most: int = MOST_POINTS) -> list[int]:
    """So many of the points that are left when pieces are joined, those first whose elements ask least then.

    An element asks for each of the pieces that its own is made of.
    """
    found, pieces = [*points], [(hi - lo, 1) for lo, hi in itertools.pairwise(points)]
    while len(found) > max(2, most):
        costs = [n * b + m * a for (n, a), (m, b) in itertools.pairwise(pieces)]
        least = costs.index(min(costs))
        (n, a), (m, b) = pieces[least : least + 2]
        pieces[least : least + 2] = [(n + m, a + b)]
        del found[least + 1]
    return found


def unrolled(nest: Nest) -> int:
    """Instructions of a nest, with the turns of its innermost loops that LLVM writes out."""
    size = len(nest.body)
    for loop in reversed(nest.loops):
        turns = max(1, loop.hi - loop.lo)
        if turns > SHORT or size * turns > UNROLLED:
            break
        size *= turns
    return size


def without_edges(points: list[int]) -> list[int]:
    """The points; of many, the ends of the longest piece, if that is most of all; none if it is not."""
    if len(points) <= FEW_POINTS:
        return points
    lo, hi = max(itertools.pairwise(points), key=lambda piece: piece[1] - piece[0])
    most = 2 * (hi - lo) > points[-1] - points[0]
    return sorted({points[0], lo, hi, points[-1]}) if most else []
