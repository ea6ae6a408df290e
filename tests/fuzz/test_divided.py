"""Programs of the grammar on arrays divided at random: results, shardings and collectives are jax.jit's.

Each is stitched as a whole, and as a part of somebody's program.

The quick share runs everywhere; `pytest -m slow tests/fuzz/test_divided.py` draws 500.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jstitch
from benchmarks.check import WrongResultError
from benchmarks.grammar import draw
from benchmarks.grammar.compare import require_right
from benchmarks.grammar.program import Program, split
from tests.shares import one_in
from tests.transform.collectives import collectives

MESHES = (((8,), ("data",)), ((4, 2), ("data", "model")), ((2, 2, 2), ("data", "model", "rest")))
ELEMENTS = 100_000
DIVIDED = "divided in another way"
Stitched = Callable[[Callable[..., Any]], Any]
JUMPS = ("int8",)  # where rounding differs, so does the result, by a whole step


def drawn(seed: int, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Most sizes are multiples of 8, so that they can be divided."""

    def even(random: Random, elements: int, rank: int) -> tuple[int, ...]:
        sizes = split(random, elements, rank)
        return tuple(-(-n // 8) * 8 if random.random() < 0.75 else n for n in sizes)

    monkeypatch.setattr(draw, "LARGEST", ELEMENTS)
    monkeypatch.setattr(draw, "split", even)
    tries = (draw.draw(Random(f"divided {seed}.{n}"), seed) for n in itertools.count())
    return next(p for p in tries if p is not None and not any(jump in str(p) for jump in JUMPS))


def placed(random: Random, mesh: jax.sharding.Mesh, x: Any) -> Any:
    """On the mesh: some dimensions over some of its axes, or whole; now and then nowhere in particular."""
    if random.random() < 0.1:
        return x
    free, spec = random.sample(mesh.axis_names, len(mesh.axis_names)), [()] * x.ndim
    for d in random.sample(range(x.ndim), x.ndim):
        while free and random.random() < 0.6:
            axes = (*spec[d], free[-1])
            if x.shape[d] % int(np.prod([mesh.shape[axis] for axis in axes])):
                break
            spec[d] = axes
            free.pop()
    is_key = jnp.issubdtype(x.dtype, jnp.unsignedinteger)
    return jax.device_put(x, NamedSharding(mesh, P() if is_key else P(*(axes or None for axes in spec))))


def whole(f: Callable[..., Any]) -> Any:
    return jstitch.jit(f)


def part(f: Callable[..., Any]) -> Any:
    stitched = jstitch.stitch(f, jstitch.CompileOptions(tune="off", strict=True))
    return jax.jit(around(stitched))


def around(f: Callable[..., Any]) -> Callable[..., Any]:
    """What somebody's program does with numbers before and behind."""

    def twice(x: Any) -> Any:
        return x * 2 if jnp.issubdtype(x.dtype, jnp.floating) else x

    return lambda *args: jax.tree.map(twice, f(*map(twice, args)))


def plain(stitched: Stitched, f: Callable[..., Any]) -> Any:
    return jax.jit(f if stitched is whole else around(f))


def differences(seed: int, stitched: Stitched, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from compared(seed, stitched, drawn(seed, monkeypatch))


def compared(seed: int, stitched: Stitched, program: Program) -> Iterator[str]:
    """What cancels in a narrow type is noise: there the same program has to be right in float32."""
    random = Random(seed)
    sizes, names = random.choice(MESHES)
    devices = jax.devices("cpu")[:8]
    mesh = jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(sizes), devices=devices)
    args = [placed(random, mesh, a) for a in program.args()]
    args[0] = args[0] if isinstance(args[0].sharding, NamedSharding) else placed(Random(0), mesh, args[0])
    try:
        theirs = plain(stitched, lambda *a: program(*a)).lower(*args).compile()
    except jax.errors.JaxRuntimeError:
        return  # XLA cannot divide it
    ours = stitched(lambda *a: program(*a)).lower(*args).compile()
    more, fewer = collectives(ours), collectives(theirs)
    for n in range(2):
        counts = [sum(found[n] for found in kinds.values()) for kinds in (more, fewer)]
        if counts[0] > counts[1]:
            yield f"{seed}: {program}: {DIVIDED}: more collectives, {more}, not {fewer}"
    found, expected = ours(*args), theirs(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if not a.sharding.is_equivalent_to(b.sharding, a.ndim):
            yield f"{seed}: {program}: {DIVIDED}: {a.sharding}, not {b.sharding}"
    try:
        require_right(program, jax.device_get(found), jax.device_get(expected))
    except WrongResultError as error:
        if program.dtype == "float32":
            yield f"{seed}: {program}: {error}"
        else:
            yield from compared(seed, stitched, replace(program, dtype="float32"))


@pytest.mark.parametrize("seed", one_in(3, range(14)))
def test_a_drawn_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(differences(seed, whole, monkeypatch)) == []


def test_a_few_drawn_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As below, of four programs."""
    assert divided_otherwise(range(1, 14, 4), monkeypatch) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 600, 10))
def test_drawn_programs(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(start, start + 10)
    assert [text for seed in seeds for text in differences(seed, whole, monkeypatch)] == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 600, 10))
def test_drawn_parts(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right in any case. Of ten programs at most three are divided in another way: some have results inside
    that devices do not divide evenly, which JAX's shardings cannot say.
    """
    assert divided_otherwise(range(start, start + 10), monkeypatch) <= 3


def divided_otherwise(seeds: range, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many parts, all of which are right, XLA divides in another way than the program without kernels."""
    found = {seed: list(differences(seed, part, monkeypatch)) for seed in seeds}
    assert [text for texts in found.values() for text in texts if DIVIDED not in text] == []
    return sum(map(bool, found.values()))
