"""Templates: the grammar, what they say of a kernel, and the search among them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.print_kernel import print_kernel
from jstitch.device_spec import find_spec
from jstitch.errors import ParseError
from jstitch.frontend.target import cuda_profile
from jstitch.inspection.numerics import difference
from jstitch.inspection.reference import reference
from jstitch.ir.graph import Graph, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base import profile
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.lower.apply_template import TemplateError
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.choose_template import choose_template
from jstitch.passes.lower.enumerate_templates import enumerate_templates
from jstitch.passes.lower.form_pattern import form_pattern
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from jstitch.template import OpSchedule, Scope, Template, Tile, parse_template
from tests.contexts import CPU_PROFILE, on
from tests.passes.random_graphs import Limits, arguments, make_graph

SMALL = {"program_work": 16, "combine_whole": 8, "partial_rows": 2}
PROFILES = {
    "cpu": replace(profile.CPU, **SMALL),
    "h200": replace(cuda_profile(find_spec("h200")), **SMALL),
}


@pytest.fixture(params=PROFILES.values(), ids=PROFILES)
def target(request: pytest.FixtureRequest) -> profile.Profile:
    chosen: profile.Profile = request.param
    return chosen


# -- the grammar ----------------------------------------------------------------------------------------

TILES = st.builds(Tile, st.sampled_from(Scope), st.none() | st.integers(1, 10**18 - 1))
ATTRS = st.lists(TILES, min_size=1, max_size=3).map(tuple)
OPS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True)
SCHEDULES = st.builds(OpSchedule, OPS, st.lists(ATTRS, min_size=1, max_size=6).map(tuple), st.booleans())
TEMPLATES = st.lists(SCHEDULES, min_size=1, max_size=5).map(lambda s: Template(tuple(s)))


@given(TEMPLATES)
def test_what_is_printed_is_read_back(template: Template) -> None:
    assert parse_template(str(template)) == template


@given(st.text(max_size=60) | st.text(alphabet="GRIDWARPCTHES_-,;[]0123 \nab#", max_size=60))
def test_other_text_is_an_error_with_a_place(text: str) -> None:
    message = ""
    try:
        parse_template(text)
    except ParseError as error:
        message = str(error)
    assert not message or "line" in message


@pytest.mark.parametrize(
    ("text", "expected", "where"),
    [
        ("", "an op", "line 1, column 1"),
        ("reduce_0[GRID, WARP]S", "';'", "line 1"),
        ("reduce_0[GRID,\n BLOCK];", "GRID, CTA, WARP or THREAD", "line 2, column 2"),
        ("reduce_0[GRID_0];", "GRID, CTA, WARP or THREAD", "column 10"),
        ("reduce_0[];", "GRID, CTA, WARP or THREAD", "column 10"),
    ],
)
def test_messages(text: str, expected: str, where: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse_template(text)
    assert expected in raised.value.expected
    assert where in raised.value.where


def test_the_papers_example() -> None:
    (schedule,) = parse_template("reduce_1[GRID_128-WARP_2, WARP, WARP, CTA]S;").schedules
    assert schedule.attrs[0] == (Tile(Scope.GRID, 128), Tile(Scope.WARP, 2))
    assert schedule.shared


# -- what they say of a kernel ----------------------------------------------------------------------------


def softmax(rows: int = 24, columns: int = 40) -> Graph:
    x = Value(TensorType((rows, columns), DType.F32))
    low = build.splat(TensorType((), DType.F32), -np.inf)
    zero = build.splat(TensorType((), DType.F32), 0.0)
    top = build.reduce("stablehlo.maximum", x, low.result, (1,))
    spread = build.broadcast(top.result, x.shape, (0,))
    moved = build.elementwise("stablehlo.subtract", x, spread.result)
    powers = build.elementwise("stablehlo.exponential", moved.result)
    total = build.reduce("stablehlo.add", powers.result, zero.result, (1,))
    below = build.broadcast(total.result, x.shape, (0,))
    out = build.elementwise("stablehlo.divide", powers.result, below.result)
    return Graph((x,), (low, zero, top, spread, moved, powers, total, below, out), out.results)


def lower(graph: Graph, text: str | None = None, target: profile.Profile = CPU_PROFILE) -> Kernel:
    template = None if text is None else parse_template(text)
    return lower_kernel("k", graph.ops, graph.inputs, graph.outputs, target, template=template)


def test_a_kernel_says_its_template(target: profile.Profile) -> None:
    gpu = target.most_threads > 1  # where an exponential is cheaper than registers
    inner = "CTA" if gpu else "THREAD"
    grid = "GRID" if gpu else "GRID_24"  # as many CTAs as there are rows for their teams
    assert str(lower(softmax(), target=target).template).splitlines() == [
        f"reduce_0[{grid}, {inner}]S;",
        *([] if gpu else [f"exponential_0[{grid}, {inner}]S;"]),
        f"reduce_1[{grid}, {inner}]S;",
        f"divide_0[{grid}, {inner}];",
    ]


def test_programs_and_steps() -> None:
    kernel = lower(softmax(), "reduce_0[GRID_3-THREAD_4, THREAD]S;")
    (lane,) = kernel.phases[0].lanes
    assert (lane.programs, lane.step) == (3, 4)
    assert check_kernel(kernel) == ()


def test_rows_that_fill_no_step_have_a_lane_of_their_own() -> None:
    kernel = lower(softmax(), "reduce_0[GRID_2-THREAD_5, THREAD]S;")
    assert [(lane.rows, lane.programs, lane.step) for lane in kernel.phases[0].lanes] == [
        (20, 1, 5),
        (4, 1, 1),
    ]
    assert check_kernel(kernel) == ()
    (first, *_), again = lower(softmax(509)).phases, lower(softmax(509), str(lower(softmax(509)).template))
    assert [lane.rows for lane in first.lanes] == [504, 5]
    assert print_kernel(again) == print_kernel(lower(softmax(509)))


def test_what_is_not_shared_is_computed_again() -> None:
    kept, again = lower(softmax()), lower(softmax(), "divide_0[GRID_24, THREAD];")
    assert len(kept.arena) == len(again.arena) + 1
    assert print_kernel(kept).count("= exp(") == 1
    assert print_kernel(again).count("= exp(") == 2


def test_threads_reach_the_emitter() -> None:
    texts = {n: f"divide_0[GRID_24, {n}];" for n in ("WARP", "CTA_64")}
    lanes = {n: lower(softmax(), text, PROFILES["h200"]).phases[0].lanes for n, text in texts.items()}
    assert {n: lane.threads for n, (lane,) in lanes.items()} == {"WARP": 32, "CTA_64": 64}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tanh_0[GRID_2, THREAD];", "the name of an op of the pattern, found 'tanh_0'"),
        ("reduce_0[GRID_2, THREAD]S; divide_0[GRID_3, THREAD];", "one way to share the rows"),
        ("reduce_0[GRID_48, THREAD]S;", "at most 24 rows"),
        ("reduce_0[GRID_2-THREAD_16, THREAD]S;", "at most 24 rows, in whole steps"),
    ],
)
def test_templates_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        lower(softmax(), text)


def patterns(seed: int, target: profile.Profile) -> tuple[Graph, list[FusionPattern]]:
    context = on(target, tune="off")
    graph = run(make_graph(Random(seed), Limits(ops=10, elements=256)), context)
    return graph, list(plan_frame(graph, context).patterns)


@pytest.mark.parametrize("seed", range(30))
def test_the_template_of_a_kernel_gives_the_kernel(seed: int, target: profile.Profile) -> None:
    for p in patterns(seed, target)[1]:
        kernel = lower_kernel("k", p.ops, p.inputs, p.outputs, target)
        again = lower_kernel("k", p.ops, p.inputs, p.outputs, target, template=kernel.template)
        assert print_kernel(again) == print_kernel(kernel)


@pytest.mark.parametrize("seed", range(20))
def test_every_template_gives_the_same_results(seed: int, target: profile.Profile) -> None:
    graph, found = patterns(seed, target)
    args = arguments(graph, seed)
    values = dict(zip(graph.inputs, args, strict=True))
    for op in graph.ops:
        values.update(
            zip(
                op.results,
                interpret(Graph(op.uses, (op,), op.results), [values[v] for v in op.uses]),
                strict=True,
            )
        )
    for p in found:
        part = Graph(p.inputs, p.ops, p.outputs)
        given = [values[v] for v in p.inputs]
        exact, other = reference(part, given), interpret(part, given)
        first = lower_kernel("k", p.ops, p.inputs, p.outputs, target)
        templates = enumerate_templates(form_pattern(p.ops, p.outputs, target), first.template, target)
        for template in itertools.islice(templates, 6):
            kernel = lower_kernel("k", p.ops, p.inputs, p.outputs, target, template=template)
            assert check_kernel(kernel) == ()
            results = interpret_kernel(kernel, given)
            for a, b, c in zip(results, other, exact, strict=True):
                assert difference(a, b, c, b) is None, str(template)


# -- the search -------------------------------------------------------------------------------------------


def test_sub_roots_are_enumerated(target: profile.Profile) -> None:
    graph = softmax()
    first = lower(graph, target=target)
    templates = list(
        enumerate_templates(form_pattern(graph.ops, graph.outputs, target), first.template, target)
    )
    assert templates[0] == first.template
    assert len(set(templates)) == len(templates)
    shared = {frozenset(s.op for s in t.schedules if s.shared) for t in templates}
    both = frozenset({"reduce_0", "reduce_1", "exponential_0"})
    assert shared == {both, both - {"exponential_0"}}
    teams = {t.schedules[0].attrs[-1][-1] for t in templates}
    assert teams == (
        {Tile(Scope.THREAD)} if target.most_threads == 1 else {Tile(Scope.CTA), Tile(Scope.WARP)}
    )


def test_the_best_kernel_is_kept(target: profile.Profile) -> None:
    graph = softmax()
    first = lower(graph, target=target)
    templates = list(
        enumerate_templates(form_pattern(graph.ops, graph.outputs, target), first.template, target)
    )
    wanted = templates[-1]

    def again(template: Template) -> Kernel:
        return lower_kernel("k", graph.ops, graph.inputs, graph.outputs, target, template=template)

    def evaluate(kernel: Kernel) -> float:
        return 1.0 if kernel.template == again(wanted).template else 2.0

    everything = choose_template(first, templates, again, evaluate, len(templates))
    assert (everything.seconds, everything.first_seconds) == (1.0, 2.0)
    assert everything.tried == len(templates)
    few = choose_template(first, templates, again, evaluate, 2)
    assert (few.kernel, few.seconds, few.tried) == (first, 2.0, 2)


def test_templates_that_lead_nowhere_are_passed_over() -> None:
    graph = softmax()
    first = lower(graph)
    bad = parse_template("reduce_0[GRID_1000, THREAD]S;")

    def again(template: Template) -> Kernel:
        return lower_kernel("k", graph.ops, graph.inputs, graph.outputs, CPU_PROFILE, template=template)

    assert choose_template(first, [bad], again, lambda kernel: 1.0, 8).kernel is first


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_enumeration_is_finite_and_begins_with_the_first(seed: int) -> None:
    for p in patterns(seed, CPU_PROFILE)[1]:
        first = lower_kernel("k", p.ops, p.inputs, p.outputs, CPU_PROFILE)
        templates = list(
            enumerate_templates(form_pattern(p.ops, p.outputs, CPU_PROFILE), first.template, CPU_PROFILE)
        )
        assert templates[0] == first.template
        assert len(templates) <= 3 * 12 * (2**3 + 64)
