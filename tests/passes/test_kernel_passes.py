"""Passes on kernels: the checker accepts what each leaves, and the interpreter sees no difference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.interpret_kernel import KernelError, interpret_kernel
from jstitch.codegen.kernel_ir import (
    Buffer,
    Instr,
    Kernel,
    LoadPair,
    StorePair,
    Streamed,
    StripLane,
)
from jstitch.codegen.map_kernel import map_lanes, map_nests
from jstitch.codegen.print_kernel import print_kernel
from jstitch.frontend.importer import import_module
from jstitch.ir.index import add, const
from jstitch.passes.base.context import Context
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.run_passes import Step
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.schedule import stream_results as stream
from jstitch.passes.schedule.kernel_passes import kernel_passes, schedule_kernel
from tests.contexts import CPU_PROFILE, H200_PROFILE, on

Array = np.ndarray[Any, np.dtype[Any]]
Made = tuple[Kernel, list[Array]]

FEW_PROGRAMS = {"program_work": 64, "partial_rows": 4, "max_programs": 5}
FEW = 12
"""Seeds that are always followed."""
TARGETS = {"cpu": replace(CPU_PROFILE, **FEW_PROGRAMS), "h200": replace(H200_PROFILE, **FEW_PROGRAMS)}


@pytest.fixture(autouse=True)
def beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is beyond the last-level cache, and none too small."""
    monkeypatch.setattr(stream, "last_level_cache", lambda: 0)
    monkeypatch.setattr(stream, "SMALL", 0)


# -- programs ---------------------------------------------------------------------------------------------


def norm(x: Any, axis: int) -> Any:
    centred = x - x.mean(axis, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(axis, keepdims=True) + 1e-5)


def gradient(x: Any, axis: int) -> Any:
    return jax.grad(lambda x: jnp.sum(jnp.sin(norm(x.astype(jnp.float32), axis))))(x)


def turned(x: Any, axis: int) -> Any:
    """Rows in another order than that of the exponentials that they wait for: of interest on CPUs."""
    dear = jnp.exp(x[:, :16].reshape(-1, 2, 8))[..., None]
    return jnp.moveaxis(dear * x[:, :32].reshape(-1, 2, 8, 2), 1, 0)


KINDS: dict[str, Callable[[Any, int], Any]] = {
    "softmax": lambda x, axis: jax.nn.softmax(x, axis),
    "norm": norm,
    "gradient": gradient,
    "scaled": lambda x, axis: jnp.tanh(x * 2.0) / x.max(axis, keepdims=True),
    "products": lambda x, axis: jnp.tanh(x @ x.T) @ x,
    "elements": lambda x, axis: jnp.exp(x) * x - 1.0,
    "two results": lambda x, axis: (x - x.max(axis, keepdims=True), jnp.square(x).sum(axis)),
}


def drawn(seed: int, target: Profile) -> Made | None:
    """A kernel and arguments for it; None where no one kernel holds the program."""
    random = Random(seed)
    kinds = [*KINDS.values(), *([turned] if target.machine.device is None else [])]
    f, axis = kinds[seed % len(kinds)], seed // len(kinds) % 2
    shape = random.choice((1, 5, 33, 66)), random.choice((32, 40, 64, 129, 160))
    dtype = random.choice((jnp.float32, jnp.bfloat16))
    x = np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)
    module = jax.jit(lambda x: f(x, axis)).lower(x).compiler_ir("stablehlo")
    graph = run(import_module(module), on(target))
    try:
        return lower_kernel("k", graph.ops, graph.inputs, graph.outputs, target), [x]
    except CannotLowerError:
        return None


def steps(kernel: Kernel, context: Context) -> Iterator[tuple[str, Kernel]]:
    """The passes that change the kernel, each with what it left."""
    found: list[Step[Kernel]] = []
    schedule_kernel(kernel, context, after=found.append)
    yield from ((step.name, step.value) for step in found if step.changed)


def same(name: str, found: Array, expected: Array) -> None:
    """Bit for bit; sums that are cut in other strips are no further apart than sums are."""
    if name != "in_strips":
        np.testing.assert_array_equal(found, expected)
        return
    a, b = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=1e-2 if found.dtype != np.float32 else 1e-4, atol=1e-4)


def follow(seeds: range, target: str, until: Set[str] = frozenset(), most: float = math.inf) -> Counter[str]:
    """How many kernels each pass changed. until: passes, of which all are met when seeds are enough.

    most: elements of work of a kernel that is looked at.
    """
    changed: Counter[str] = Counter()
    context = on(TARGETS[target])
    for seed in seeds:
        if until and seed >= FEW and until <= changed.keys():
            break
        made = drawn(seed, TARGETS[target])
        if made is None:
            continue
        kernel, args = made
        if sum(lane.work for phase in kernel.phases for lane in phase.lanes) > most:
            continue
        expected = interpret_kernel(kernel, args, Random(seed))
        for name, after in steps(kernel, context):
            assert check_kernel(after) == (), (seed, name, print_kernel(after))
            found = interpret_kernel(after, args, Random(seed + 1))
            for a, b in zip(found, expected, strict=True):
                same(name, a, b)
            changed[name] += 1
    return changed


ELSEWHERE = {"divide_phases", "prefetch_rows", "nest_rows", "repeat_columns"}
"""Large kernels have the first two; how rows are counted is nothing that a kernel's interpreter sees; kernels
with few columns are in `test_repeat_columns`."""


@pytest.mark.parametrize("target", TARGETS)
def test_each_pass_keeps_the_results(target: str) -> None:
    wanted = {p.name for p in kernel_passes(TARGETS[target].machine)} - ELSEWHERE
    changed = follow(range(60), target, until=wanted, most=20_000)
    assert wanted <= changed.keys(), changed


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_each_pass_keeps_the_results_of_many_kernels(target: str) -> None:
    assert sum(follow(range(FEW, 1000), target).values()) > 500


# -- what the checker finds -------------------------------------------------------------------------------


def one_with(kind: type[Instr], target: str = "cpu") -> Kernel:
    """A kernel in which a pass made an instruction of that kind."""
    for seed in range(100):
        made = drawn(seed, TARGETS[target])
        if made is not None:
            kernel = schedule_kernel(made[0], on(TARGETS[target]))
            if any(isinstance(i, kind) for *_, i in kernel.instructions()):
                return kernel
    raise AssertionError(f"no kernel has a {kind.__name__}")


def edited(kernel: Kernel, kind: type[Any], change: Callable[[Any], Instr]) -> Kernel:
    """The kernel with every instruction of that kind changed."""

    def instr(i: Instr) -> Instr:
        return change(i) if isinstance(i, kind) else i

    return map_lanes(
        kernel, lambda lane: map_nests(lane, lambda n: replace(n, body=tuple(map(instr, n.body))))
    )


def moved(i: Any) -> Any:
    return replace(i, offset=add(i.offset, const(1)))


def longer(b: Buffer) -> Buffer:
    return replace(b, offset=b.offset + (1 << 20))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (LoadPair, moved, "may be in the middle of a word"),
        (StorePair, moved, "may be in the middle of a word"),
        (Streamed, lambda i: replace(i, place=add(i.place, const(1))), "is not copied to"),
        (Streamed, lambda i: replace(i, target=add(i.target, const(1))), "is not copied to"),
        (Streamed, lambda i: replace(i, tile=longer(i.tile)), "streamed results end at byte"),
        (Streamed, lambda i: replace(i, tile=replace(i.tile, offset=-64)), "shares bytes"),
    ],
)
def test_defects_are_found(kind: type[Any], change: Callable[[Any], Instr], message: str) -> None:
    kernel = one_with(kind)
    assert check_kernel(kernel) == ()
    found = check_kernel(edited(kernel, kind, change))
    assert any(message in text for text in found), found


def test_a_tile_that_nobody_filled_is_no_result() -> None:
    """The copy of a tile reads it: an element that its loop never wrote is found."""
    kernel = one_with(Streamed)
    arg = kernel.args[0].type
    x = np.ones(arg.shape, arg.dtype.numpy)
    apart = edited(kernel, Streamed, lambda i: replace(i, place=const(0)))
    with pytest.raises(KernelError, match=r"is read before it is written|that nobody wrote"):
        interpret_kernel(apart, [x])


def strips() -> Kernel:
    target = TARGETS["h200"]
    x = jax.ShapeDtypeStruct((66, 256), jnp.float32)
    module = jax.jit(lambda x: jax.nn.softmax(x, 0)).lower(x).compiler_ir("stablehlo")
    graph = run(import_module(module), on(target))
    return schedule_kernel(lower_kernel("k", graph.ops, graph.inputs, graph.outputs, target), on(target))


def test_strips_that_overlap_are_found() -> None:
    kernel = strips()
    assert check_kernel(kernel) == ()
    narrower = map_lanes(
        kernel, lambda lane: replace(lane, strips=1) if isinstance(lane, StripLane) else lane
    )
    assert check_kernel(narrower) != ()
