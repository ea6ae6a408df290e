"""Tiling expressions: every order of a chain's loops, nested or, at the end, in turn (MCFuser, III-A).

m, n, k, h      deep: mnkh, mnhk, ... 4! of them;   flat: mn(k,h), nm(k,h): k is C's alone, h is E's alone

and what is left of them in each block: loops that blocks share are no loops any more (rule 1), and no block
keeps several unfinished tiles of what lies between two products (rule 2).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jstitch.passes.tile.chain import Chain

ALL = "m"
"""The rows, which every product of a chain goes by."""


@dataclass(frozen=True)
class Expression:
    """nested: loops, the outer ones first. apart: loops inside all of these, one after another."""

    nested: tuple[str, ...]
    apart: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "".join(self.nested) + (f"({','.join(self.apart)})" if self.apart else "")

    def path(self, loop: str) -> tuple[str, ...]:
        """The loops around what is inside this one, it included."""
        if loop in self.apart:
            return (*self.nested, loop)
        return self.nested[: self.nested.index(loop) + 1]

    def without(self, loops: Iterable[str]) -> Expression:
        """The same with fewer loops; one alone is not apart from others."""
        gone = set(loops)
        nested, apart = ([x for x in part if x not in gone] for part in (self.nested, self.apart))
        if len(apart) == 1:
            nested, apart = [*nested, *apart], []
        return Expression(tuple(nested), tuple(apart))


def write_expressions(chain: Chain) -> list[Expression]:
    """All of them, before pruning."""
    deep = map(Expression, itertools.permutations(chain.loops))
    return [*deep, *_flat(chain)]


def _flat(chain: Chain) -> Iterator[Expression]:
    """Loops of one product each in one scope, inside those that products share."""
    alone = tuple(x for x in chain.loops if chain.users(x) == 1)
    owners = {p.name for p in chain.products for x in alone if x in p.loops}
    if len(alone) < 2 or len(owners) < len(alone):
        return
    shared = [x for x in chain.loops if x not in alone]
    for order in itertools.permutations(shared):
        yield Expression(order, alone)


def in_block(expression: Expression, chain: Chain) -> Expression:
    """What each block does (rule 1): loops over results are bound to blocks.

    The paper's 26 expressions become 5 with this reading: rows are bound wherever they stand; another loop
    over results stays a block's own where it is innermost, since it then repeats no other product.
    """
    inner = {*expression.apart, *([] if expression.apart else expression.nested[-1:])}
    return expression.without(x for x in chain.spatial if x == ALL or x not in inner)


def keeps_one_tile(expression: Expression, chain: Chain) -> bool:
    """Whether a block has one unfinished tile of each value between two products at once (rule 2)."""
    for p in chain.products:
        if not p.kept:
            continue
        for summed in p.summed:
            around = _around(expression, summed)
            if any(x in expression.nested and x not in around for x in p.result):
                return False
    return True


def _around(expression: Expression, loop: str) -> tuple[str, ...]:
    known = (*expression.nested, *expression.apart)
    return expression.path(loop) if loop in known else known


def block_expressions(chain: Chain) -> list[Expression]:
    """Different ones (rules 1 and 2)."""
    return _different(write_expressions(chain), chain)


def live_expressions(chain: Chain, loops: Sequence[str]) -> list[Expression]:
    """The same where no other loops have more than one turn: those are dropped (section III-B)."""
    return _different(map(Expression, itertools.permutations(loops)), chain)


def _different(expressions: Iterable[Expression], chain: Chain) -> list[Expression]:
    every = dict.fromkeys(in_block(e, chain) for e in expressions)
    return [e for e in every if keeps_one_tile(e, chain)]
