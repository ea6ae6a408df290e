"""Synthetic graphs are valid and of the asked size; the exponent is fitted."""

from __future__ import annotations

import pytest

from benchmarks.planner_time import exponent, plan, training_graph
from jstitch.ir.verify import verify


@pytest.mark.parametrize("ops", [100, 1000])
def test_graph_size_and_validity(ops: int) -> None:
    graph = training_graph(ops)
    assert 0.9 * ops - 50 < len(graph.ops) <= ops
    assert not verify(graph)


def test_plan_finds_patterns() -> None:
    assert plan(training_graph(200)) > 3


def test_exponent() -> None:
    assert exponent({10: 0.1, 100: 10.0, 1000: 1000.0}) == pytest.approx(2.0)
