"""The kernel checker finds nothing in good kernels, and each seeded defect in a bad one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.kernel_ir import (
    Accumulator,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    Nest,
    Space,
    Stage,
    Store,
)
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.expr import Const, Expr, Number, Ref, call
from jstitch.ir.graph import Graph
from jstitch.ir.index import Var, add, const, var
from jstitch.ir.types import DType
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.check_flow import LIMIT
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU_PROFILE, on
from tests.passes.random_graphs import Limits, make_graph

Change = Callable[[Instr], Instr | None]
MANY = replace(CPU_PROFILE, program_work=16, combine_whole=64, partial_rows=2)
"""Small tensors are cut into programs and phases like large ones."""


def kernels(graph: Graph, target: Profile = CPU_PROFILE) -> Iterator[Kernel]:
    context = on(target, tune="off")
    plan = plan_frame(run(graph, context), context)
    for n, p in enumerate(plan.patterns):
        yield lower_kernel(f"k{n}", p.ops, p.inputs, p.outputs, target)


def kernel_of(f: Callable[..., object], *shapes: tuple[int, ...], target: Profile = CPU_PROFILE) -> Kernel:
    args = [jnp.ones(shape, jnp.float32) for shape in shapes]
    (kernel,) = kernels(import_module(parse_module(jax.jit(f).lower(*args).as_text())), target)
    assert check_kernel(kernel) == ()
    return kernel


def softmax(rows: int = 6, columns: int = 5) -> Kernel:
    return kernel_of(lambda x: jax.nn.softmax(x * x, -1), (rows, columns))


def both_sums(target: Profile = CPU_PROFILE) -> Kernel:
    """Sums over rows and over columns, and what they are needed for: several phases and scratch."""

    def f(x: jax.Array) -> object:
        y = jnp.exp(x)
        return y - y.sum(1, keepdims=True) - jnp.sqrt(y.sum(0))

    return kernel_of(f, (64, 12), target=target)


@pytest.mark.parametrize("seeds", [range(0, 60), range(60, 120)], ids=str)
def test_nothing_is_wrong_with_random_kernels(seeds: range) -> None:
    for seed in seeds:
        for kernel in kernels(make_graph(Random(seed), Limits())):
            assert check_kernel(kernel) == ()


def test_nothing_is_wrong_with_kernels_of_many_programs_and_phases() -> None:
    found = [k for seed in range(100) for k in kernels(make_graph(Random(seed), Limits()), MANY)]
    assert any(lane.programs > 1 for k in found for phase in k.phases for lane in phase.lanes)
    assert any(len(k.phases) > 1 and k.scratch for k in found)
    for kernel in found:
        assert check_kernel(kernel) == ()


def test_large_kernels_are_checked_by_their_bounds() -> None:
    kernel = kernel_of(lambda x: jax.nn.softmax(x, -1), (4096, 1024))
    assert 4096 * 1024 > LIMIT
    broken = shifted(kernel, Load)
    assert any("of 4194304 elements" in text for text in check_kernel(broken))


# -- seeded defects --------------------------------------------------------------------------------------


def mapped(kernel: Kernel, change: Callable[[Nest], Nest | None]) -> Kernel:
    """The kernel with every nest changed; None drops it."""

    def stage(s: Stage) -> Stage:
        return replace(s, nests=tuple(n for n in map(change, s.nests) if n is not None))

    def lane(x: Lane) -> Lane:
        return replace(x, stages=tuple(map(stage, x.stages)))

    return replace(kernel, phases=tuple(replace(p, lanes=tuple(map(lane, p.lanes))) for p in kernel.phases))


def instructions(kernel: Kernel, change: Change) -> Kernel:
    def nest(n: Nest) -> Nest:
        body, after = (tuple(i for i in map(change, part) if i is not None) for part in (n.body, n.after))
        return replace(n, body=body, after=after)

    return mapped(kernel, nest)


def once(kind: type, change: Change, space: Space | None = None) -> Change:
    """Change the first instruction of a kind (and memory) only."""
    done: list[bool] = []

    def one(instr: Instr) -> Instr | None:
        fits = isinstance(instr, kind) and (space is None or getattr(instr, "buffer").space is space)  # noqa: B009
        if done or not fits:
            return instr
        done.append(True)
        return change(instr)

    return one


def shifted(kernel: Kernel, kind: type, space: Space | None = None) -> Kernel:
    def shift(instr: Instr) -> Instr:
        assert isinstance(instr, Load | Store)
        return replace(instr, offset=add(instr.offset, const(1)))

    return instructions(kernel, once(kind, shift, space))


def complaint(kernel: Kernel, text: str) -> bool:
    return any(text in found for found in check_kernel(kernel))


@pytest.mark.parametrize("kind", [Load, Store])
def test_an_offset_that_is_off_by_one(kind: type) -> None:
    assert complaint(shifted(softmax(), kind), "elements")


def test_a_loop_with_one_trip_too_many() -> None:
    def longer(nest: Nest) -> Nest:
        return replace(
            nest, loops=tuple(replace(x, hi=x.hi + 1) if x.var.name != "r" else x for x in nest.loops)
        )

    assert complaint(mapped(softmax(), longer), "its extent is 5")


def test_a_loop_with_one_trip_too_few() -> None:
    def shorter(nest: Nest) -> Nest:
        return replace(
            nest, loops=tuple(replace(x, hi=x.hi - 1) if x.var.name != "r" else x for x in nest.loops)
        )

    assert complaint(mapped(softmax(), shorter), "never written")


def test_tiles_that_share_bytes() -> None:
    kernel = softmax()
    assert len(kernel.arena) > 1
    moved: dict[Buffer, Buffer] = {b: replace(b, offset=0) for b in kernel.arena}

    def move(instr: Instr) -> Instr:
        if isinstance(instr, Let):
            return instr
        return replace(instr, buffer=moved.get(instr.buffer, instr.buffer))

    broken = replace(instructions(kernel, move), arena=tuple(moved.values()))
    assert complaint(broken, "share bytes")


def test_memory_that_is_too_small() -> None:
    assert complaint(replace(softmax(), arena_bytes=4), "the arena has 4")
    kernel = both_sums()
    assert kernel.scratch_bytes
    assert complaint(replace(kernel, scratch_bytes=0), "the scratch has 0")


@pytest.mark.parametrize("space", [Space.ARENA, Space.RESULT])
def test_a_store_that_is_not_there(space: Space) -> None:
    kernel = instructions(softmax(), once(Store, lambda instr: None, space))
    text = "read before it is written" if space is Space.ARENA else "never written"
    assert complaint(kernel, text)


def test_scratch_that_is_read_before_its_phase_ends() -> None:
    kernel = both_sums(MANY)
    assert len(kernel.phases) > 1
    lanes = tuple(lane for phase in kernel.phases for lane in phase.lanes)
    broken = replace(kernel, phases=(replace(kernel.phases[0], lanes=lanes),))
    assert complaint(broken, "has not written")


def test_partial_sums_that_are_not_started() -> None:
    def lane(x: Lane) -> Lane:
        return replace(x, stages=tuple(s for s in x.stages if not s.once))

    kernel = both_sums(MANY)
    phases = tuple(replace(p, lanes=tuple(map(lane, p.lanes))) for p in kernel.phases)
    assert phases != kernel.phases
    assert complaint(replace(kernel, phases=phases), "has not written")


def test_stages_in_the_wrong_order() -> None:
    kernel = softmax()
    (phase,) = kernel.phases
    (lane,) = phase.lanes
    broken = replace(phase, lanes=(replace(lane, stages=lane.stages[::-1]),))
    assert complaint(replace(kernel, phases=(broken,)), "read before it is written")


def test_programs_that_write_the_same_elements() -> None:
    kernel = kernel_of(lambda x: -jnp.tanh(x), (512,), target=MANY)

    def same(instr: Instr) -> Instr:
        assert isinstance(instr, Store)
        return replace(instr, offset=const(0))

    assert complaint(instructions(kernel, once(Store, same)), "in several programs")


def test_a_lane_that_stands_there_twice() -> None:
    """Also of a kernel that is too large to be walked through."""
    kernel = kernel_of(lambda x: jax.nn.softmax(x, -1), (4096, 1024))
    (phase,) = kernel.phases
    twice = replace(kernel, phases=(replace(phase, lanes=phase.lanes * 2),))
    assert any("lanes 0 and 1 store the same" in text for text in check_kernel(twice))


def test_a_nest_that_stands_there_twice() -> None:
    kernel = kernel_of(lambda x: -jnp.tanh(x), (512,))
    (phase,) = kernel.phases
    (lane,) = phase.lanes
    (stage,) = lane.stages
    twice = replace(lane, stages=(replace(stage, nests=stage.nests * 2),))
    assert complaint(replace(kernel, phases=(replace(phase, lanes=(twice,)),)), "a second time")


def test_names_that_are_not_defined_here() -> None:
    def value(new: Expr) -> Change:
        def change(instr: Instr) -> Instr:
            assert isinstance(instr, Let)
            return replace(instr, value=new)

        return once(Let, change)

    one, foreign_number = Const(1.0, DType.F32), Number(var(Var("i9", 3)))
    assert complaint(
        instructions(softmax(), value(call("add", Ref("nowhere"), one))), "'nowhere' is used before"
    )
    assert complaint(instructions(softmax(), value(foreign_number)), "'i9' of extent 3 is no variable here")
    assert complaint(instructions(softmax(), value(call("cosh", one, one))), "'cosh' of 2 arguments")
    assert complaint(instructions(softmax(), value(call("no_such", one))), "'no_such' of 1 arguments")
    deep = instructions(softmax(), once(Let, lambda i: replace(i, depth=0)))
    assert complaint(deep, "is used before it is defined")
    foreign = var(Var("i9", 3))
    lost = instructions(
        softmax(), once(Load, lambda i: replace(i, offset=foreign) if isinstance(i, Load) else i)
    )
    assert complaint(lost, "'i9' of extent 3 is no variable here")


def test_accumulators_that_do_not_start() -> None:
    broken = mapped(softmax(), lambda nest: replace(nest, accumulators=()))
    assert complaint(broken, "'acc")
    started: list[Accumulator] = []
    mapped(softmax(), lambda nest: started.extend(nest.accumulators))
    assert started


def test_results_in_place_of_arguments() -> None:
    kernel = kernel_of(lambda x: jnp.tanh(x) + x, (64,))
    assert check_kernel(replace(kernel, aliases={0: 0})) == ()
    backwards = kernel_of(lambda x: jnp.tanh(x[::-1]), (64,))
    assert complaint(replace(backwards, aliases={0: 0}), "what is loaded is not what is stored")
    assert complaint(replace(softmax(), aliases={0: 0}), "another nest of phase 0 loads them")
    scaled = kernel_of(lambda x: x * jnp.sum(x), (64, 64))
    assert len(scaled.phases) > 1
    assert check_kernel(replace(scaled, aliases={0: 0})) == ()
    late = replace(scaled, phases=(*scaled.phases, scaled.phases[0]), aliases={0: 0})
    assert complaint(late, f"another nest of phase {len(scaled.phases)} loads them")


def test_every_defect_above_starts_from_a_kernel_of_its_kind() -> None:
    spaces = {i.buffer.space for *_, i in softmax().instructions() if not isinstance(i, Let)}
    assert {Space.ARG, Space.RESULT, Space.ARENA} <= spaces
    assert np.prod([lane.rows for p in both_sums().phases for lane in p.lanes]) > 1
