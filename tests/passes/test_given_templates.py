"""Templates that somebody wrote: lowered exactly, down to the threads of the launch, or refused by name."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.launch_kernel import launch_kernel
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.passes.base.context import Context
from jstitch.passes.lower.apply_template import row_choice
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.passes.schedule.latency_gpu import lane_homes
from jstitch.template import Attr, OpSchedule, Scope, Template, Tile, parse_template
from tests.codegen.cuda.stitched import SPEC, simulated, stitch
from tests.contexts import CPU_PROFILE, H200_PROFILE, on
from tests.shares import one_tuple_in

Array = jax.Array
TARGETS = {"cpu": CPU_PROFILE, "h200": H200_PROFILE}


def layer_norm(x: Array) -> Array:
    y = x - x.mean(-1, keepdims=True)
    return jnp.tanh(y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5))


def gradient(x: Array) -> Array:
    return jax.grad(lambda x: jnp.sin(layer_norm(x)).sum())(x)


def statistics(x: Array) -> tuple[Array, Array]:
    return jnp.exp(x).sum(0), jax.nn.softmax(x, -1)


def turned(x: Array) -> Array:
    return jnp.exp(x).T + 1.0


PROGRAMS = {f.__name__: f for f in (jax.nn.softmax, layer_norm, gradient, statistics, turned, jnp.tanh)}
SHAPES = ((24, 40), (96, 130), (7, 1000), (640, 64))
QUICK = ((24, 40), (33, 130), (7, 300), (80, 64))  # the interpreter takes a turn for each element


def graph_of(f: Callable[..., Any], shape: tuple[int, int], context: Context) -> Graph:
    module = parse_module(jax.jit(f).lower(jnp.zeros(shape)).as_text())
    return run(import_module(module), context)


def lower(graph: Graph, context: Context) -> Kernel:
    return best_kernel("k", graph.ops, graph.inputs, graph.outputs, context)


def another(template: Template, random: Random, most_threads: int) -> Template:
    """Some of its schedules, with other programs, steps, threads, or another place of the result."""
    programs, step = random.choice((0, 1, 2, 3, 8, 24)), random.choice((0, 0, 2, 4))
    teams = Tile(Scope.THREAD), Tile(Scope.WARP), Tile(Scope.CTA, 64), Tile(Scope.CTA, 256)
    team = random.choice((None, None, *teams)) if most_threads > 1 else None

    def change(attr: Attr, first: bool) -> Attr:
        if first and attr[0].scope is Scope.GRID:
            grid = Tile(Scope.GRID, programs) if programs else attr[0]
            return (grid, Tile(Scope.THREAD, step)) if step else (grid, *attr[1:])
        return tuple(team if team and t.scope is not Scope.GRID else t for t in attr)

    def changed(s: OpSchedule) -> OpSchedule:
        attrs = tuple(change(attr, n == 0) for n, attr in enumerate(s.attrs))
        return replace(s, attrs=attrs, shared=s.shared != (random.random() < 0.15))

    kept = [s for s in template.schedules if random.random() < 0.8] or [template.schedules[0]]
    return Template(tuple(map(changed, kept)))


def check(kernel: Kernel, asked: Template, context: Context) -> None:
    """Programs, steps and threads of the lanes that the template speaks of, on a GPU those of the launch."""
    most = context.profile.most_threads
    lanes = [lane for phase in kernel.phases for lane in phase.lanes]
    for c in {row_choice(s, most) for s in asked.schedules}:
        alike = [x for x in lanes if x.step == (c.step or 1) and c.threads in (0, x.threads)]
        shares = {x.programs + rest for x in alike for rest in (0, 1 < x.step)}  # rows that fill none: one's
        assert c.programs == 0 or c.programs in shares, (lanes, asked)
    if context.machine.device is None:
        return
    made = launch_kernel(schedule_kernel(kernel, context), SPEC.shared_optin)
    for phase, code in zip(made.phases, made.codes, strict=True):
        for lane in (x for x in phase.lanes if x.exact):
            homes, _ = lane_homes(lane, SPEC.shared_optin, code.block)[-1]
            assert homes.team.threads == lane.threads


def attempt(graph: Graph, asked: Template, context: Context) -> tuple[str, Kernel | None]:
    """The kernel, if there is one, and what became of the template; a refusal names one of its lines."""
    try:
        kernel = lower(graph, context)
        check(kernel, asked, context)
    except CannotLowerError as error:
        named = any(s.op in str(error) for s in asked.schedules)
        return ("refused" if named and error.reason.rule == "template" else str(error)), None
    except NoRoom as error:
        return ("refused" if "threads" in str(error) else str(error)), None
    return "exact", kernel


@pytest.mark.parametrize("shapes", [QUICK, pytest.param(SHAPES, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("target", "name"), one_tuple_in(2, itertools.product(TARGETS, PROGRAMS)))
def test_random_templates_are_lowered_exactly_or_refused(
    target: str, name: str, shapes: tuple[tuple[int, int], ...]
) -> None:
    random, outcomes = Random(name), Counter[str]()
    for shape in shapes:
        context = on(TARGETS[target], tune="off")
        graph = graph_of(PROGRAMS[name], shape, context)
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        first = lower(graph, context)
        assert first.template is not None
        for _ in range(5):
            asked = another(first.template, random, context.profile.most_threads)
            given = Context(context.options.replace(template=str(asked)), context.profile)
            outcome, kernel = attempt(graph, asked, given)
            outcomes[outcome] += 1
            if kernel is None:
                continue
            assert check_kernel(kernel) == ()
            for a, b in zip(interpret_kernel(kernel, [x]), interpret(graph, [x]), strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert outcomes.keys() <= {"exact", "refused"}, outcomes
    assert outcomes["exact"] >= 2, outcomes


@pytest.mark.parametrize("threads", ["THREAD", "WARP", "CTA_64", "CTA_256", "CTA"])
@pytest.mark.parametrize("programs", ["GRID", "GRID_1", "GRID_3", "GRID_7"])
@pytest.mark.parametrize("name", ["softmax", "gradient", "layer_norm"])
def test_launches_as_asked_compute_the_same(name: str, programs: str, threads: str) -> None:
    """In the simulator, which finds races; programs whose teams take rows in turn among them."""
    context = on(H200_PROFILE, tune="off", strict=True)
    shape = (7, 130)
    graph = graph_of(PROGRAMS[name], shape, context)
    first = lower(graph, context).template
    assert first is not None
    row = next(s.op for s in first.schedules if s.op.startswith("reduce") and len(s.attrs) == 2)
    options = context.options.replace(template=f"{row}[{programs}, {threads}]S;", verify=True)
    made = stitch(graph, H200_PROFILE, options=options)
    assert made.kernels
    (kernel,) = (k for k in made.kernels if any(row in str(s) for s in (k.template or first).schedules))
    asked = parse_template(options.template or "")
    check(kernel, asked, Context(options, H200_PROFILE))
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    for a, b in zip(made.run([x], simulated), interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_a_template_of_other_ops_changes_nothing() -> None:
    context = on(CPU_PROFILE, tune="off")
    graph = graph_of(jax.nn.softmax, (24, 40), context)
    given = on(CPU_PROFILE, tune="off", template="cosine_0[GRID_3, THREAD];")
    assert str(lower(graph, given).template) == str(lower(graph, context).template)


def test_a_template_of_no_kernel_is_a_warning() -> None:
    options = jstitch.CompileOptions(tune="off", template="exponentail_0[GRID_3, THREAD];")
    with pytest.warns(jstitch.JstitchWarning, match=r"no kernel of .* \(exponentail_0\)"):
        jstitch.jit(lambda x: jax.nn.softmax(x), options=options)(jnp.ones((24, 40)))


def softmax(x: Array) -> Array:
    return jax.nn.softmax(x)


def test_users_give_templates() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((24, 40), np.float32))
    options = jstitch.CompileOptions(tune="off", strict=True, template="reduce_0[GRID_3-THREAD_4, THREAD]S;")
    since = jstitch.record_count()
    np.testing.assert_allclose(
        jstitch.jit(softmax, options=options)(x), jax.nn.softmax(x), rtol=1e-5, atol=1e-7
    )
    assert jstitch.last_report(since)[-1].kernels == 1
    plan = jstitch.plan(softmax, options)(x)
    (pattern,) = plan.patterns
    assert pattern.kernel is not None
    assert parse_template(pattern.kernel.schedule).schedules[0].attrs[0] == (
        Tile(Scope.GRID, 3),
        Tile(Scope.THREAD, 4),
    )


def test_a_template_that_does_not_fit_leaves_the_kernel_to_xla() -> None:
    x = jnp.ones((24, 40))
    options = jstitch.CompileOptions(tune="off", template="reduce_0[GRID_48, THREAD]S;")
    np.testing.assert_allclose(jstitch.jit(softmax, options=options)(x), jax.nn.softmax(x), rtol=1e-6)
    assert "at most 24 rows" in str(jstitch.explain(softmax, options)(x))


@pytest.mark.parametrize("text", ["reduce_0[GRID", "", "reduce_0[ROWS];"])
def test_other_text_is_an_error_at_once(text: str) -> None:
    with pytest.raises(jstitch.JstitchError, match="template"):
        jstitch.CompileOptions(template=text)
