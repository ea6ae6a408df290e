"""Tiles of one lane share bytes when they are never live at once, and nothing else changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.cpu.build import call
from jstitch.codegen.cpu.launch_lane import LaneWriter, instructions_of, shared_scopes
from jstitch.codegen.kernel_ir import Buffer, Kernel, Let, Space, Stage
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.inspection.numerics import difference
from jstitch.inspection.reference import reference
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.types import DType
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower import place_tiles
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from tests.codegen.cpu_source import emitted
from tests.contexts import CPU, CPU_PROFILE, on
from tests.fuzz.programs import make_program
from tests.passes.random_graphs import Limits, arguments

Array = jax.Array


def layer_norm(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def rms_norm(x: Array) -> Array:
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


STEPS: tuple[Callable[[Array], Array], ...] = (
    lambda x: jax.nn.softmax(x * 1.5, -1),
    lambda x: layer_norm(jnp.tanh(x)),
    lambda x: rms_norm(jnp.exp(x * 0.25)),
    lambda x: jnp.log1p(jnp.abs(x)) - jnp.max(jnp.sin(x), -1, keepdims=True),
    lambda x: jax.nn.log_softmax(x, -1) * jax.nn.sigmoid(x),
)


def softmaxes(x: Array) -> Array:
    for _ in range(3):
        x = STEPS[0](x)
    return x


def norm_softmax(x: Array) -> Array:
    return jax.nn.softmax(STEPS[1](x), -1)


def chain(seed: int) -> tuple[Callable[[Array], object], tuple[int, int]]:
    """A program of two to four row steps, some with a second output."""
    random = Random(seed)
    steps = random.choices(STEPS, k=random.randint(2, 4))
    extra = random.random() < 0.3

    def f(x: Array) -> object:
        values = [x]
        for step in steps:
            values.append(step(values[-1]))
        return (values[-1], values[-2].sum(-1)) if extra else values[-1]

    return f, (random.choice((4, 6, 16)), random.choice((3, 24, 33, 70)))


def patterns(f: Callable[..., object], *shapes: tuple[int, ...]) -> Sequence[FusionPattern]:
    args = [jnp.ones(shape, jnp.float32) for shape in shapes]
    graph = run(import_module(parse_module(jax.jit(f).lower(*args).as_text())), CPU)
    return plan_frame(graph, on(CPU_PROFILE, tune="off")).patterns


def lower(
    p: FusionPattern, arena_bytes: int | None = None, share: bool = True, target: Profile = CPU_PROFILE
) -> Kernel:
    kernel = lower_kernel("k", p.ops, p.inputs, p.outputs, target, arena_bytes, share=share)
    assert check_kernel(kernel) == ()
    return kernel


def lower_only(f: Callable[..., object], shape: tuple[int, ...], arena_bytes: int | None = None) -> Kernel:
    (pattern,) = patterns(f, shape)
    return lower(pattern, arena_bytes)


def execute(kernel: Kernel, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Results of the compiled kernel."""
    source = emitted(kernel)
    made = [np.zeros(b.type.shape, b.type.dtype.numpy) for b in kernel.results]
    call(source.source, [args[n] for n in source.operands], [made[n] for n in source.results])
    return made


def graph_of(p: FusionPattern) -> Graph:
    return Graph(tuple(p.inputs), tuple(p.ops), tuple(p.outputs))


def overlapping(kernel: Kernel) -> Iterator[tuple[Buffer, Buffer]]:
    for phase in kernel.phases:
        for lane in phase.lanes:
            for a, b in itertools.combinations(tiles(lane.stages), 2):
                if a.offset < b.offset + b.type.nbytes and b.offset < a.offset + a.type.nbytes:
                    yield a, b


def tiles(stages: Sequence[Stage]) -> list[Buffer]:
    instrs = instructions_of(stages)
    found = (i.buffer for i in instrs if not isinstance(i, Let))
    return list(dict.fromkeys(b for b in found if b.space is Space.ARENA))


def assert_right(p: FusionPattern, kernel: Kernel, seed: int) -> None:
    """No further from float64 than twice what the kernel without sharing or a limit is, or op by op.

    Element by element, or at its worst element: a difference near 0 may happen to be exact in one of them.
    """
    graph = graph_of(p)
    args = arguments(graph, seed, specials=False)
    results = execute(kernel, args), execute(lower(p, share=False), args)
    for n, arrays in enumerate(zip(*results, reference(graph, args), interpret(graph, args), strict=True)):
        found, free, exact, other = arrays
        worst = 2 * max(farthest(free, exact), farthest(other, exact))
        assert difference(*arrays) is None or farthest(found, exact) <= worst, n


def farthest(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(found.astype(np.float64) - exact).max())


@pytest.mark.parametrize("f", [softmaxes, norm_softmax], ids=["softmaxes", "norm_softmax"])
def test_a_chain_shares_bytes(f: Callable[[Array], Array]) -> None:
    (p,) = patterns(f, (64, 768))
    shared, apart = lower(p), lower(p, share=False)
    assert apart.arena_bytes >= sum(b.type.nbytes for b in apart.arena)
    assert shared.arena_bytes < apart.arena_bytes
    assert [b.type for b in shared.arena] == [b.type for b in apart.arena]
    assert all(b.offset % place_tiles.ALIGN == 0 for b in shared.arena)
    assert list(overlapping(shared))
    assert not list(overlapping(apart))


def test_the_arena_does_not_grow_with_the_chain() -> None:
    def softmax_times(count: int) -> Callable[[Array], Array]:
        def f(x: Array) -> Array:
            for _ in range(count):
                x = STEPS[0](x)
            return x

        return f

    assert lower_only(softmax_times(6), (64, 768)).arena_bytes == lower_only(softmaxes, (64, 768)).arena_bytes


def test_random_row_programs_are_the_same_bit_for_bit() -> None:
    shared = 0
    for seed in range(24):
        f, shape = chain(seed)
        shared += sum(compare(p, seed) for p in patterns(f, shape))
    assert shared >= 16


def test_random_graphs_are_the_same_bit_for_bit() -> None:
    context = on(replace(CPU_PROFILE, keep_cost=1.0), tune="off")
    limits = Limits(ops=60, rank=3, elements=256, dtypes=(DType.F32,), empty=False)
    shared = 0
    for seed in range(160):
        graph = run(make_program(seed, limits), context)
        shared += sum(compare(p, seed, context.profile) for p in plan_frame(graph, context).patterns)
    assert shared >= 3


def compare(p: FusionPattern, seed: int, target: Profile = CPU_PROFILE) -> bool:
    """Whether the pattern's tiles share bytes; its results are then those of tiles apart."""
    shared, apart = lower(p, target=target), lower(p, share=False, target=target)
    assert shared.arena_bytes <= apart.arena_bytes
    if not list(overlapping(shared)):
        return False
    args = arguments(graph_of(p), seed)
    for a, b in zip(execute(shared, args), execute(apart, args), strict=True):
        assert bits(a) == bits(b), seed
    return True


def bits(array: np.ndarray) -> bytes:
    """The array's bytes; the sign of a NaN is nobody's choice."""
    return np.where(array != array, np.abs(array), array).tobytes()


def test_what_does_not_fit_is_computed_again() -> None:
    (p,) = patterns(softmaxes, (8, 3000))
    free = lower(p)
    assert free.arena_bytes > 2048
    tight = lower(p, arena_bytes=2048)
    assert 0 < tight.arena_bytes <= 2048
    assert len(tight.arena) < len(free.arena)
    assert_right(p, tight, 0)


@pytest.mark.parametrize("budget", [512, 2048, 3300, 6400])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_budgets_are_kept(seed: int, budget: int) -> None:
    f, _ = chain(seed)
    for p in patterns(f, (4, 700)):
        kernel = lower(p, arena_bytes=budget)
        assert kernel.arena_bytes <= budget
        assert_right(p, kernel, seed)


def test_tiles_that_must_be_kept_are_a_reason_to_refuse() -> None:
    (p,) = patterns(softmaxes, (8, 300))
    with pytest.raises(CannotLowerError, match=r"needs \d+ bytes per program for results of .* is 64"):
        lower(p, arena_bytes=64)


def test_without_a_limit_reductions_may_exceed_the_default_budget() -> None:
    (p,) = patterns(softmaxes, (8, 300))
    kernel = lower(p, target=replace(CPU_PROFILE, arena_bytes=64))
    assert 64 < kernel.arena_bytes < 1024
    assert_right(p, kernel, 0)


# -- alias scopes ------------------------------------------------------------------------------------------


def test_tiles_that_share_bytes_have_one_alias_scope() -> None:
    kernel = lower_only(softmaxes, (64, 768))
    ((lane,),) = [phase.lanes for phase in kernel.phases]
    code = LaneWriter(lane, {}, "")
    for a, b in itertools.combinations(tiles(lane.stages), 2):
        assert (code.scope[a] == code.scope[b]) == ((a, b) in set(overlapping(kernel)))
        assert code.number[a] != code.number[b]


def test_scopes_are_merged_through_a_tile_that_overlaps_two() -> None:
    a, b, c, d = lower_only(softmaxes, (8, 768)).arena[:4]  # a row at a time
    found = [replace(a, offset=0), replace(d, offset=0), replace(c, offset=3000), replace(b, offset=4096)]
    assert list(shared_scopes(found).values()) == [0, 0, 0, 3]


# -- seeded defects ----------------------------------------------------------------------------------------


def test_a_life_that_ends_a_stage_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    touched = place_tiles._touched

    def early(lane: object) -> dict[int, set[int]]:
        found = touched(lane)  # type: ignore[arg-type]
        return {n: s - {max(s)} if len(s) > 1 else s for n, s in found.items()}

    monkeypatch.setattr(place_tiles, "_touched", early)
    (p,) = patterns(softmaxes, (64, 768))
    complaints = check_kernel(lower_kernel("k", p.ops, p.inputs, p.outputs, CPU_PROFILE))
    assert any("share bytes in the same stages" in c for c in complaints)
