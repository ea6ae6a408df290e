"""`explain` names the right reason: seeded situations, each with its rule, numbers and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import jstitch
from jstitch.frontend.measured_gate import Decision, MeasuredGate
from jstitch.inspection.explanation import EdgeStory, Explanation
from jstitch.inspection.remedies import REMEDIES
from tests.inspection import test_rare_reasons
from tests.inspection.situations import OFF, SITUATIONS, SMALL, Situation, X

CPU = jstitch.CompileOptions(target="cpu")

# By the gates' own tests, and by tests/codegen/cuda/test_parameters.py.
TESTED_ELSEWHERE = {"measured", "asked", "parameters", "pinned"}


def explained(f: Callable[..., Any], args: Any, options: Any) -> Explanation:
    return jstitch.explain(f, jstitch.CompileOptions(**{"target": "cpu", **options}))(*args)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_the_right_reason(situation: Situation) -> None:
    made = explained(situation.f, situation.args, situation.options)
    stories = [edge for edge in made.edge(*situation.edge) if edge.why is not None]
    found = {edge.why.rule: edge for edge in reversed(stories) if edge.why is not None}
    assert situation.rule in found
    story = found[situation.rule]
    assert re.search(situation.says, str(story.why)), str(story.why)
    if situation.numbers:
        _check_numbers(story)
    assert story.remedy
    assert "{" not in story.remedy


def _check_numbers(story: EdgeStory) -> None:
    """The number found fails on the bound, and both stand in the message."""
    assert story.why is not None
    found, bound = story.why.found, story.why.bound
    assert found is not None
    assert bound is not None
    for number in (found, bound):
        text = f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"
        assert text in str(story.why)


@pytest.mark.parametrize("situation", [s for s in SITUATIONS if s.lift], ids=lambda s: s.name)
def test_the_remedy_lifts_it(situation: Situation) -> None:
    lift = situation.lift
    assert lift is not None
    made = explained(lift.f or situation.f, situation.args, lift.options)
    stories = made.edge(*(lift.edge or situation.edge))
    assert any(edge.why is None for edge in stories), [str(edge) for edge in stories]
    assert all(edge.why is None or edge.why.rule != situation.rule for edge in stories)


def test_the_table_is_large_and_every_rule_has_a_test() -> None:
    assert len(SITUATIONS) >= 40
    assert sum(s.lift is not None for s in SITUATIONS) >= 20
    assert {s.rule for s in SITUATIONS} | TESTED_ELSEWHERE | test_rare_reasons.RULES == REMEDIES.keys()
    assert not test_rare_reasons.RULES & {s.rule for s in SITUATIONS}


# -- whole calls ------------------------------------------------------------------------------------------


def sharded(devices: int = 2) -> jax.ShapeDtypeStruct:
    mesh = AbstractMesh((devices,), ("i",))
    return jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("i")))


def sharded_over_many() -> jax.ShapeDtypeStruct:
    return sharded(64)


def symbolic() -> jax.ShapeDtypeStruct:
    (n,) = jax.export.symbolic_shape("n")
    return jax.ShapeDtypeStruct((n, 64), jnp.float32)


@pytest.mark.parametrize(
    ("argument", "reason", "lifted_by"),
    [
        (sharded_over_many, "the program is for 64", "jax.shard_map(jstitch.jit(f), ...)"),
        (symbolic, "symbolic shapes", "shapes"),
    ],
)
def test_calls_that_stay_whole(argument: Callable[[], Any], reason: str, lifted_by: str) -> None:
    made = jstitch.explain(jax.nn.softmax, CPU)(argument())
    (call,) = made.calls
    assert reason in call.reason
    assert lifted_by in call.remedy
    assert not call.edges
    assert f"stays XLA's: {call.reason}" in str(made)


def test_a_program_for_several_devices_says_how_it_is_divided() -> None:
    made = jstitch.explain(jax.nn.softmax, CPU.replace(**OFF))(sharded())
    assert made.patterns
    assert "divided over 2 devices (i=2): (i, -) -> (i, -)" in str(made)


def test_shard_map_lifts_automatic_partitioning() -> None:
    one, all_of_it = jstitch.jit(jax.nn.softmax, options=CPU.replace(**OFF)), PartitionSpec("i")
    mesh = AbstractMesh((2,), ("i",))
    f = jax.shard_map(one, mesh=mesh, in_specs=all_of_it, out_specs=all_of_it)
    (pattern,) = jstitch.explain(f, CPU.replace(**OFF))(sharded()).patterns
    assert pattern.refused is None


def test_a_function_of_nothing_has_nothing_to_lift() -> None:
    (call,) = jstitch.explain(lambda x: x, CPU)(SMALL).calls
    assert (call.reason, call.remedy) == ("nothing to compute", "none needed")


def test_what_was_measured_to_be_slower(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slower(self: MeasuredGate, *_: Any) -> Decision:
        return Decision("softmax", "xla", 3e-6, 2e-6, "measured")

    monkeypatch.setattr(MeasuredGate, "_pattern", slower)
    monkeypatch.setattr(MeasuredGate, "choose", lambda self, candidates: self.graph)
    options = jstitch.CompileOptions(target="cpu", tune="measure", cache_dir=str(tmp_path))
    (story,) = jstitch.explain(jax.nn.softmax, options)(X).edge("exponential", "reduce")
    assert story.why is not None
    assert story.why.rule == "measured"
    assert str(story.why) == "measured 3 us, and XLA's kernels take 2 us"
    assert (story.why.found, story.why.bound) == pytest.approx((3.0, 2.0))
    assert "tune='off'" in story.remedy
    (lifted,) = jstitch.explain(jax.nn.softmax, options.replace(tune="off"))(X).edge("exponential", "reduce")
    assert lifted.why is None


def test_an_edge_that_is_fused_says_where() -> None:
    (story,) = jstitch.explain(jax.nn.softmax, CPU.replace(**OFF))(X).edge("exponential", "divide")
    assert story.why is None
    assert story.pattern in str(story)


def test_lines_are_the_users() -> None:
    (story,) = jstitch.explain(jax.nn.softmax, CPU)(X).edge("exponential", "divide")
    assert Path(story.producer.where.partition(":")[0]).samefile(__file__)
