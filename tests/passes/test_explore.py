"""The explorer: Figure 4's candidate sets, Figures 3 and 6's cycles, and what every candidate must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.plan import FusionPlan, is_free, make_pattern, make_patterns
from jstitch.passes.cost.cost_model import kernel_cost
from jstitch.passes.explore.explore_patterns import Candidate, ExploreOptions, explore_patterns
from jstitch.passes.explore.savings import modelled_seconds
from jstitch.passes.explore.score_pattern import Scorer, Sketch
from jstitch.passes.explore.tabulate_frame import tabulate_frame
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.plan_layers import partition_reason, plan_layers
from jstitch.passes.planners import LAYERS
from tests.contexts import CPU, CPU_PROFILE, H200
from tests.passes.random_dags import random_dag
from tests.passes.random_graphs import Limits, make_graph
from tests.passes.workload_frames import workload_frames

ROW = TensorType((256, 64), DType.F32)
EXP = "stablehlo.exponential"
SUITE = ("layer_norm_vjp", "rms_norm_grad", "batch_norm_grad", "masked_softmax", "vae_step", "group_norm")


def names(ops: dict[str, Op], candidates: Iterable[Candidate]) -> list[str]:
    """The candidates' ops by letter, sorted; best candidate first."""
    letters = list(ops)
    return ["".join(sorted(letters[m] for m in c.members)) for c in candidates]


class _Tally(Scorer):
    """A scorer with a score of its own for a set of ops, as the figure leaves f open."""

    def __init__(self, frame: Graph, rate: Callable[[frozenset[int]], float]) -> None:
        super().__init__(tabulate_frame(frame, CPU_PROFILE))
        self.rate = rate

    def _rated(self, s: Sketch) -> Sketch:
        s.seconds = self.rate(frozenset(s.phases_of))
        return s

    def potential(self, s: Sketch) -> float:
        return s.seconds


# Figure 4: 8 feeds 5, 6, 7; 5 -> 2, 6 -> 3, 7 -> 4; 2, 3 and 4 feed 1
FIGURE4 = {"9": "", "8": "9", "5": "8", "6": "8", "7": "8", "2": "5", "3": "6", "4": "7"}
BRANCHES = ({*"521"}, {*"631"}, {*"741"})
EXTRA = (0.1, 0.05, 0.5)


def figure4() -> tuple[dict[str, Op], _Tally]:
    """f counts the ops of branches that are there up to 1, the one of 7 for a bit more; other ops cost."""
    x = Value(ROW)
    ops: dict[str, Op] = {}
    for name, source in FIGURE4.items():
        ops[name] = build.elementwise(EXP, ops[source].result if source else x)
    ops["1"] = build.elementwise("stablehlo.clamp", *(ops[n].result for n in "234"))
    last = Op("test.opaque", ops["1"].results, (Value(ROW),))
    frame = Graph((x,), (*ops.values(), last), last.results)
    letters = list(ops)

    def rate(members: frozenset[int]) -> float:
        chosen = {letters[m] for m in members}
        whole = [n for n, branch in enumerate(BRANCHES) if branch <= chosen]
        useful = set[str]().union(*(BRANCHES[n] for n in whole))
        return len(useful) + sum(EXTRA[n] for n in whole) - 0.2 * len(chosen - useful - {"8"})

    return ops, _Tally(frame, rate)


def test_figure_4_gives_its_candidate_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chains of 5, 6 and 7; of 8 the best unions over groups {5, 6} and {7}. Cycles are left aside."""
    ops, scorer = figure4()
    monkeypatch.setattr("jstitch.passes.explore.explore_patterns.VERTEX", 1)
    monkeypatch.setattr("jstitch.passes.explore.explore_patterns.is_placed", lambda scorer, sketch: True)
    found = explore_patterns(scorer)
    at = {name: names(ops, found[n]) for n, name in enumerate(ops)}
    assert at["5"][0] == "125"
    assert at["6"][0] == "136"
    assert at["7"][0] == "147"
    assert at["8"] == ["12345678", "124578", "134678"]


def test_figure_4_without_the_patterns_that_wait_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two branches of three and where they meet wait for the third. All three together do not."""
    ops, scorer = figure4()
    monkeypatch.setattr("jstitch.passes.explore.explore_patterns.VERTEX", 1)
    found = explore_patterns(scorer)
    assert names(ops, found[list(ops).index("8")])[0] == "12345678"
    for members in (set(name) for at in found for name in names(ops, at)):
        assert not {"8", "1"} <= members or {*"234567"} <= members


def test_consumers_are_reduced_in_groups_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 9 unions for a group of two, and 9 for each pair of groups: linear in the consumers."""
    for users in (4, 8, 16, 32):
        x = Value(ROW)
        first = build.elementwise(EXP, x)
        rest = [build.elementwise(EXP, first.result) for _ in range(users)]
        frame = Graph((x,), (first, *rest), tuple(op.result for op in rest))
        scorer = Scorer(tabulate_frame(frame, CPU_PROFILE))
        calls = 0

        def counted(*args: Sketch, kept: object = scorer.joined) -> Sketch:
            nonlocal calls
            calls += 1
            return kept(*args)  # type: ignore[operator, no-any-return]

        monkeypatch.setattr(scorer, "joined", counted)
        explore_patterns(scorer)
        assert 0 < calls < 9 * users


@pytest.mark.parametrize("between", ["opaque", "left out"])
def test_a_cyclic_pattern_is_no_candidate(between: str) -> None:
    """Figures 3 and 6: a -> b -> c and a -> c; {a, c} waits for b, and b for it."""
    x = Value(ROW)
    a = build.elementwise(EXP, x)
    b = (
        Op("test.opaque", a.results, (Value(ROW),))
        if between == "opaque"
        else build.elementwise(EXP, a.result)
    )
    c = build.elementwise("stablehlo.atan2", a.result, b.result)
    frame = Graph((x,), (a, b, c), c.results)
    scorer = _Tally(frame, lambda members: 2.0 * len(members) - 3.0 * (1 in members))
    found = {c.members for at in explore_patterns(scorer) for c in at}
    assert (0, 2) not in found
    assert (0, 1, 2) in found or between == "opaque"
    plan = FusionPlan(frame, make_patterns(frame, [[a, c]], "test"))
    assert any("wait" in problem for problem in check_plan(plan))


def test_bounds_hold() -> None:
    frame = random_dag(Random(3), 120)
    options = ExploreOptions(kept=2, max_ops=6)
    for at in explore_patterns(Scorer(tabulate_frame(frame, CPU_PROFILE)), options):
        assert all(len(c.members) <= 6 for c in at)


def test_siblings_that_share_an_input_are_candidates() -> None:
    """Neither reads from the other: only the value that both read brings them together."""
    x = Value(TensorType((512, 256), DType.F32))
    zero = build.splat(TensorType((), DType.F32), 0.0)
    total = build.reduce("stablehlo.add", x, zero.result, (1,))
    most = build.reduce("stablehlo.maximum", x, zero.result, (1,))
    frame = Graph((x,), (zero, total, most), (total.result, most.result))
    found = {c.members: c for at in explore_patterns(Scorer(tabulate_frame(frame, CPU_PROFILE))) for c in at}
    assert found[(0, 1)].origin == "shared input"
    assert found[(0, 1)].seconds > 0


def sound(frame: Graph, candidates: Sequence[Sequence[Candidate]], scorer: Scorer) -> None:
    """Every candidate alone is an acyclic plan of ops that kernels may hold, and is where it says it is."""
    ops = scorer.table.ops
    for place, at in enumerate(candidates):
        for found in at:
            members = [ops[m] for m in found.members]
            assert found.members[0] == place
            assert len(set(found.members)) == len(found.members)
            assert not any(partition_reason(op) for op in members)
            plan = FusionPlan(frame, (make_pattern(frame, members, "test"),))
            assert not [p for p in check_plan(plan) if "reason" not in p]


@pytest.mark.parametrize("seed", range(20))
def test_candidates_of_random_graphs_are_sound(seed: int) -> None:
    for frame in (random_dag(Random(seed), 60), make_graph(Random(seed), Limits(ops=40))):
        scorer = Scorer(tabulate_frame(frame, CPU_PROFILE))
        sound(frame, explore_patterns(scorer), scorer)


@pytest.mark.parametrize("seed", range(20))
def test_sums_do_not_depend_on_the_way_they_were_made(seed: int) -> None:
    """Joining two disjoint halves, or adding op after op, counts the same bytes, launches and leaves."""
    frame = random_dag(Random(seed), 50)
    scorer = Scorer(tabulate_frame(frame, CPU_PROFILE))
    places = [n for n, ok in enumerate(scorer.table.fusible) if ok]
    a = scorer.sketch(places[::2])
    b = scorer.sketch(places[1::2])
    whole, joined = scorer.sketch(places), scorer.joined(a, b)
    assert joined.phases_of.keys() == whole.phases_of.keys()
    assert joined.reads.keys() == whole.reads.keys()
    assert set(joined.leaves) == set(whole.leaves)
    for name in ("outputs", "xla_launches", "xla_bytes", "xla_cycles", "cut_launches", "reread", "last"):
        assert getattr(joined, name) == pytest.approx(getattr(whole, name)), name


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_scores_agree_with_the_full_cost_model(target: str) -> None:
    """Rank correlation with what each pattern alone saves of its frame's modelled time, calls left out."""
    scores, truths = [], []
    context = {"cpu": CPU, "h200": H200}[target]
    for frame in (f for name in SUITE for f in workload_frames(name, context)):
        scorer = Scorer(tabulate_frame(frame, context.profile))
        alone = modelled_seconds(FusionPlan(frame, ()), context)
        for pattern in plan_layers(frame, LAYERS).patterns:
            call = kernel_cost(pattern, context.profile).launches * context.machine.launch
            scores.append(scorer.score(pattern.ops).seconds)
            truths.append(alone - modelled_seconds(FusionPlan(frame, (pattern,)), context) + call)
    assert len(scores) > 20
    assert _spearman(scores, truths) > 0.75


def _spearman(a: Sequence[float], b: Sequence[float]) -> float:
    def ranks(values: Sequence[float]) -> list[int]:
        order = sorted(range(len(values)), key=values.__getitem__)
        return [order.index(n) for n in range(len(values))]

    n = len(a)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(ranks(a), ranks(b), strict=True)) / (n * (n * n - 1))


def test_free_ops_count_for_nothing() -> None:
    frame = random_dag(Random(1), 30)
    scorer = Scorer(tabulate_frame(frame, CPU_PROFILE))
    ops = [op for op in frame.ops if not is_free(op) and partition_reason(op) is None]
    free = [op for op in frame.ops if is_free(op)]
    assert free
    assert scorer.score([*ops, *free]) == scorer.score(ops)
