"""Keep the small values behind a large dear one in memory, not the large one itself.

r [N, 1] = power(sum of rows, -0.5);  u [N, C] = g * r;  norm of u;  p - u

spilled: r, N numbers; u is computed again from g      rather than: u, written and read, N * C numbers
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from jstitch.ir.graph import Op, Value
from jstitch.ir.unwind import Deep, each, unwind
from jstitch.passes.base.plan import is_free

CONE = 200  # values that are looked at behind one
SMALL = 16  # a value this many times smaller costs nothing to spill
OpCost = Callable[[Op, Mapping[Value, float]], float]
"""(op, cost of its operands) -> cycles per element to compute its result again; inf behind a reduction."""


def small_parts(
    value: Value,
    bound: float,
    maker: Mapping[Value, Op],
    cost: Mapping[Value, float],
    spilled: Collection[Value],
    op_cost: OpCost,
) -> list[Value]:
    """Much smaller values behind a dear one, such as a power of each row's sum, that alone make it dear.

    Empty unless, with them in memory, it is cheap to compute again, from at most twice its own bytes.
    """
    parts: dict[Value, None] = {}
    large: dict[Value, None] = {}
    own: dict[Value, float] = {}

    def look(v: Value) -> Deep[float]:
        if v not in own:
            own[v] = 1.0
            op = maker.get(v)
            if op is None or v in spilled or len(own) >= CONE:
                large[v] = None
            elif v.tensor.size * SMALL <= value.tensor.size and 1.0 < cost[v]:
                parts[v] = None
            elif op_cost(op, {}) == math.inf:
                own[v] = math.inf
            elif not is_free(op):
                behind = yield from each(look(u) for u in op.operands)
                own[v] = op_cost(op, dict(zip(op.operands, behind, strict=True)))
        return own[v]

    cheap = unwind(look(value)) < bound and len(own) < CONE
    whole = sum(v.tensor.nbytes for v in large)
    return list(parts) if cheap and parts and whole <= 2 * value.tensor.nbytes else []


def update_costs(
    value: Value,
    maker: Mapping[Value, Op],
    spilled: Collection[Value],
    cost: dict[Value, float],
    ready: dict[Value, int],
    op_cost: OpCost,
) -> None:
    """Costs and levels behind a value after something there was spilled."""
    done: set[Value] = set()

    def visit(v: Value) -> Deep[None]:
        op = maker.get(v)
        if v in done or op is None or v in spilled or is_free(op) or op_cost(op, {}) == math.inf:
            return
        done.add(v)
        yield from each(visit(u) for u in op.operands)
        cost[v] = op_cost(op, cost)
        ready[v] = max((ready.get(u, 0) for u in op.operands), default=0)

    unwind(visit(value))
