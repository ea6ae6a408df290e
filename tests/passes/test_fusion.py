"""A3 and A4: plans are disjoint, acyclic and explained; the patterns of the paper come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import jax
import jax.numpy as jnp
import pytest

from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.plan import FusionPlan, is_free, make_pattern
from jstitch.passes.fuse import fuse_subgraph
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.fuse_elementwise import MAX_ROOTS, fuse_elementwise
from jstitch.passes.fuse.fuse_subgraph import FusionOptions
from jstitch.passes.fuse.plan_layers import DEFAULT, plan_layers
from jstitch.passes.fuse.print_plan import print_plan
from jstitch.passes.pipeline import run
from tests.contexts import CPU
from tests.counting import calls, exponent
from tests.passes.random_dags import random_dag
from tests.passes.random_graphs import Limits, make_graph

F32 = DType.F32


def planned(
    f: Callable[..., object], *shapes: tuple[int, ...], options: FusionOptions = DEFAULT
) -> FusionPlan:
    args = [jnp.zeros(s) for s in shapes]
    graph = run(import_module(jax.jit(f).lower(*args).compiler_ir("stablehlo")), CPU)
    plan = plan_layers(graph, options)
    assert check_plan(plan) == ()
    return plan


@pytest.mark.parametrize("seed", range(60))
def test_plans_are_acyclic_disjoint_and_explained(seed: int) -> None:
    random = Random(seed)
    graph = random_dag(random, ops=random.randint(5, 120), reach=random.choice((2, 6, 30)))
    for options in (FusionOptions(), FusionOptions(whole_layer_roof=True, max_ops=5, footprint=0)):
        assert check_plan(plan_layers(graph, options)) == ()


@pytest.mark.parametrize("seed", range(40))
def test_plans_of_any_graph_are_sound(seed: int) -> None:
    """All dtypes, ranks and op classes, empty tensors."""
    assert check_plan(plan_layers(run(make_graph(Random(seed), Limits(ops=40)), CPU))) == ()


def test_the_check_catches_a_planner_without_the_give_up_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_subgraph.Growth, "_gave_up", lambda self, op: None)
    graphs = [random_dag(Random(seed), ops=60) for seed in range(20)]
    assert any(check_plan(plan_layers(g)) for g in graphs)


def test_two_roots_of_one_layer_do_not_wait_for_each_other() -> None:
    """The paper's rule alone lets %p join the first root and %q the second, each read by both."""
    x = Value(TensorType((8, 64, 64), F32))
    zero = build.splat(TensorType((), F32), 0.0)
    p, q = (build.elementwise(f"stablehlo.{n}", x) for n in ("exponential", "tanh"))
    both = build.add(p.result, q.result)
    roots = [build.add(p.result, q.result), build.reduce("stablehlo.add", both.result, zero.result, (0,))]
    graph = Graph((x,), (zero, p, q, both, *roots), tuple(r.result for r in roots))
    assert check_plan(plan_layers(graph)) == ()


def softmax_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.125
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)


def test_figure_3_is_one_pattern_when_batched_dots_may_fuse() -> None:
    shape = (2, 4, 64, 32)
    apart = planned(softmax_attention, shape, shape, shape)
    assert len(apart.patterns) == 1
    assert {r.rule for r in apart.refusals} == {"contraction"}
    plan = planned(softmax_attention, shape, shape, shape, options=FusionOptions(fuse_batch_dot=True))
    (pattern,) = plan.patterns
    assert [op.name for op in pattern.ops].count("stablehlo.dot_general") == 2
    assert plan.refusals == ()


def layer_norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain


def batch_norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    centred = x - x.mean(0)
    return centred * jax.lax.rsqrt((centred**2).mean(0) + 1e-5) * gain


@pytest.mark.parametrize("f", [layer_norm, batch_norm, lambda x, g: jax.nn.softmax(x) * g])
def test_a_normalisation_is_one_pattern(f: Callable[..., object]) -> None:
    """Rows under Row schedules, columns under Column schedules."""
    plan = planned(f, (4096, 768), (768,))
    assert len(plan.patterns) == 1
    assert plan.refusals == ()


def test_row_and_column_reductions_of_a_big_tensor_part_with_the_number() -> None:
    plan = planned(lambda x: (x - x.sum(1, keepdims=True)).sum(0), (4096, 768))
    assert len(plan.patterns) == 2
    (refusal,) = [r for r in plan.refusals if r.rule in ("blocks", "schedule")]
    assert "schedules of 8 blocks or more pass" in refusal.reason
    small = planned(lambda x: (x - x.sum(1, keepdims=True)).sum(0), (16, 16))
    assert len(small.patterns) == 1


def test_constants_are_copied_and_make_no_edges() -> None:
    plan = planned(lambda x: (jnp.exp(x) * 2.0, jax.lax.sort(x) * 2.0 + jnp.arange(8.0)), (32, 8))
    assert all(not is_free(r.producer) for r in plan.refusals)
    free = [op for p in plan.patterns for op in p.ops if is_free(op)]
    assert len(free) > len(set(free)) or len(plan.patterns) == 1
    assert not any(is_free(op) for p in plan.patterns for op in p.ops if op.results[0] in p.outputs)


def test_print_plan_says_why() -> None:
    text = print_plan(planned(softmax_attention, *[(2, 4, 64, 32)] * 3))
    assert "pattern 0 (plan_layers): " in text
    assert "stablehlo.dot_general -> " in text
    assert "contraction: stablehlo.dot_general is contraction: left to XLA" in text


def test_siblings_share_a_kernel_and_small_ones_are_packed() -> None:
    big, small = TensorType((512, 512), F32), TensorType((16,), F32)
    x, y = Value(big), Value(big)
    us = [Value(small) for _ in range(40)]
    siblings = [build.elementwise("stablehlo.negate", x), build.elementwise("stablehlo.abs", x)]
    stranger = build.elementwise("stablehlo.abs", y)
    tiny = [build.elementwise("stablehlo.negate", u) for u in us]
    groups = fuse_elementwise([*siblings, stranger, *tiny], threshold=1 << 20)
    assert [len(g) for g in groups] == [2, 1, MAX_ROOTS, MAX_ROOTS, 40 - 2 * MAX_ROOTS]
    assert [len(g) for g in fuse_elementwise(tiny, threshold=0)] == [1] * 40


def at_most(count: int) -> Callable[[Graph, Sequence[Op]], str | None]:
    def emitable(frame: Graph, ops: Sequence[Op]) -> str | None:
        inner = [op for op in ops if not is_free(op)]
        return f"{len(inner)} ops, at most {count}" if len(inner) > count else None

    return emitable


@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_the_emitter_refuses_is_cut_and_explained(count: int) -> None:
    graph = random_dag(Random(3), ops=40, opaque=0.0)
    plan = plan_layers(graph, FusionOptions(footprint=0), at_most(count))
    assert check_plan(plan) == ()
    assert max(sum(not is_free(op) for op in p.ops) for p in plan.patterns) <= count
    assert any(r.rule == "not emitable" and f"at most {count}" in r.reason for r in plan.refusals)


def test_nothing_emitable_means_no_pattern() -> None:
    graph = random_dag(Random(4), ops=20)
    plan = plan_layers(graph, emitable=lambda frame, ops: "no backend")
    assert plan.patterns == ()
    assert check_plan(plan) == ()


def test_what_is_made_apart_is_not_cut_layer_by_layer() -> None:
    """Six parts of 120 ops: more than one kernel holds, and each is handed over as one value."""

    def part(x: jax.Array, number: int) -> jax.Array:
        y = z = x * number
        for _ in range(40):
            y, z = jnp.sin(z), y * z + x
        return y + z

    plan = planned(lambda x: jnp.concatenate([part(x, n) for n in range(1, 7)]), (4096,))
    assert sum(len(pattern.outputs) for pattern in plan.patterns) == 6 + 1
    assert len(plan.patterns) > 1


def test_check_plan_sees_wrong_plans() -> None:
    x = Value(TensorType((4,), F32))
    a = build.elementwise("stablehlo.exponential", x)
    b = build.elementwise("stablehlo.negate", a.result)
    c = build.add(a.result, b.result)
    graph = Graph((x,), (a, b, c), c.results)
    ends, middle = make_pattern(graph, [a, c], "test"), make_pattern(graph, [b], "test")
    assert "wait for each other" in check_plan(FusionPlan(graph, (ends, middle)))[0]
    assert "both hold" in check_plan(FusionPlan(graph, (ends, ends)))[0]
    assert any("no reason" in p for p in check_plan(FusionPlan(graph, (middle,))))
    alien = make_pattern(Graph((x,), (a,), a.results), [a], "test")
    assert check_plan(FusionPlan(Graph((x,), (), (x,)), (alien,))) != ()


def test_the_work_of_planning_is_near_linear() -> None:
    sizes = (1_000, 10_000)
    few, many = (calls(plan_layers, random_dag(Random(0), ops)) for ops in sizes)
    assert exponent(sizes, (few, many)) <= 1.1
