"""Strips wherever they can be, however bad: random programs whose tensors have dimensions of one element,
equal dimensions, columns left over, and ops that strips cannot hold.

What programs would choose columns for is in test_own_columns.py; here only the rewriting is in question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower import choose_columns
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.lower.own_columns import Columns
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU_PROFILE, H200_PROFILE, on
from tests.passes.test_own_columns import close, graph_of, interpret_kernel, widths

Array = Any
DIMS = "BNMC"  # outside, reduced, reduced, columns
REDUCTIONS = (jnp.sum, jnp.max, jnp.min, jnp.mean)


def shape_of(random: Random) -> tuple[list[int], dict[str, int]]:
    """A shape, and where its dimensions of more than one element are."""
    sizes = {
        "B": random.choice((1, 2, 3)),
        "N": random.choice((2, 3, 4)),
        "M": random.choice((1, 1, 2)),
        "C": random.choice((4, 5, 6, 7)),
    }
    if random.random() < 0.3:
        sizes[random.choice("BC")] = sizes["N"]
    shape: list[int] = []
    place: dict[str, int] = {}
    for name in DIMS:
        if sizes[name] > 1:
            place[name] = len(shape)
        if sizes[name] > 1 or random.random() < 0.3:
            shape.append(sizes[name])
        if random.random() < 0.15:
            shape.append(1)
    return shape, place


def program(seed: int) -> tuple[Callable[..., tuple[Array, ...]], list[np.ndarray]]:
    """Sums over all between the outer dimensions and the columns, what is made of them; and arguments."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    shape, place = shape_of(random)
    axes = tuple(place[n] for n in "NM" if n in place)
    draws = [random.random() for _ in range(60)]

    def spread(v: Array, names: str) -> Array:
        """A value that has some of the dimensions, in all of them."""
        sizes = [n if any(place.get(x) == d for x in names) else 1 for d, n in enumerate(shape)]
        return jnp.broadcast_to(v.reshape(sizes), shape)

    def f(x: Array, of_c: Array, of_n: Array, of_b: Array, of_bc: Array, one: Array) -> tuple[Array, ...]:
        rest = iter(draws)
        y, made = x, []
        for _ in range(2 + int(next(rest) * 3)):
            changes: Sequence[Callable[[], Array]] = (
                lambda y=y: y + spread(of_c, "C"),
                lambda y=y: y * spread(of_n, "N"),
                lambda y=y: y - spread(of_b, "B"),
                lambda y=y: y + spread(of_bc, "BC"),
                lambda y=y: jnp.where(y > spread(of_c, "C"), y, one),
                lambda y=y: jnp.tanh(y),
                lambda y=y: y + jnp.arange(y.size, dtype=y.dtype).reshape(shape) * 0.01,
                lambda y=y: y + jnp.flip(x, 0),
                lambda y=y: jnp.clip(y, -2.0, one),
            )
            y = changes[int(next(rest) * len(changes))]()
            if next(rest) < 0.75:
                s = REDUCTIONS[int(next(rest) * len(REDUCTIONS))](y, axis=axes, keepdims=True)
                if next(rest) < 0.3:
                    made.append(jnp.squeeze(s) if next(rest) < 0.5 else s)
                y = y - s if next(rest) < 0.5 else y * (1 + jnp.exp(-jnp.abs(s)))
        others = y, y.sum(axes), y.sum(-1), y.reshape(-1), jnp.argmax(y, axis=axes[0])
        made += [v for v, share in zip(others, (0.7, 0.3, 0.1, 0.2, 0.2), strict=True) if next(rest) < share]
        return tuple(made) or (y,)

    sizes = {n: shape[place[n]] if n in place else 1 for n in DIMS}
    shapes = shape, (sizes["C"],), (sizes["N"],), (sizes["B"],), (sizes["B"], sizes["C"]), ()
    return f, [numbers.normal(size=s).astype(np.float32) for s in shapes]


def wherever_possible(ops: Sequence[Op], outputs: Sequence[Value], profile: Profile) -> Columns | None:
    found = choose_columns._largest(ops)
    return None if found is None or found.width < 2 else replace(found, width=max(1, found.width * 2 // 5))


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 200), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("profile", [CPU_PROFILE, H200_PROFILE], ids=["cpu", "h200"])
def test_strips_of_anything_compute_the_same(
    profile: Profile, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose_columns, "choose_columns", wherever_possible)
    context = on(profile, tune="off", verify=True)
    owned = 0
    for seed in seeds:
        f, args = program(seed)
        for pattern in plan_frame(graph_of(f, args, context), context).patterns:
            kernel = best_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, context)
            if widths(kernel) == {0}:
                continue
            owned += 1
            assert check_kernel(kernel) == (), seed
            graph = Graph(pattern.inputs, pattern.ops, pattern.outputs)
            numbers = np.random.default_rng(seed)
            given = [numbers.normal(size=v.shape).astype(v.tensor.dtype.numpy) for v in pattern.inputs]
            close(interpret_kernel(kernel, given), graph, given)
    assert owned > len(seeds) // 2
