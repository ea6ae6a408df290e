"""A1 and A2: spans against a brute-force longest path, LC-layers and the roof."""

from __future__ import annotations

from random import Random

import networkx as nx
import pytest

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.fuse import layer_work_span as module
from jstitch.passes.fuse.cut_lc_layers import cut_lc_layers, roof
from jstitch.passes.fuse.layer_work_span import layer_work_span, layers
from tests.counting import calls
from tests.passes.random_dags import random_dag

ROW = TensorType((4,), DType.F32)


def longest_paths(graph: Graph) -> dict[Op, int]:
    """The longest path to an op that has no user, over all paths."""
    made = graph.producers()
    flow: nx.DiGraph[Op] = nx.DiGraph()
    flow.add_nodes_from(graph.ops)
    flow.add_edges_from((made[v], op) for op in graph.ops for v in op.uses if v in made)
    return {
        op: nx.dag_longest_path_length(flow.subgraph(nx.descendants(flow, op) | {op})) for op in graph.ops
    }


@pytest.mark.parametrize("seed", range(30))
def test_spans_are_longest_paths(seed: int) -> None:
    graph = random_dag(Random(seed), ops=25)
    spans = layer_work_span(graph)
    assert spans == longest_paths(graph)
    for span, layer in enumerate(layers(spans)):
        made = {v for op in layer for v in op.results}
        assert all(made.isdisjoint(op.uses) for op in layer)
        assert all(spans[op] == span for op in layer)


def test_a_region_is_a_frame_of_its_own_and_its_captures_count() -> None:
    p, x = Value(TensorType((), DType.BOOL)), Value(ROW)
    outside = build.elementwise("stablehlo.exponential", x)
    inside = build.elementwise("stablehlo.negate", outside.result)
    branches = (Graph((), (inside,), inside.results), Graph((), (), (x,)))
    choice = Op("stablehlo.if", (p,), (Value(ROW),), regions=branches)
    spans = layer_work_span(Graph((p, x), (outside, choice), choice.results))
    assert spans == {outside: 1, choice: 0}


def test_a_hundred_thousand_ops_take_a_few_calls_each() -> None:
    x = Value(ROW)
    ops = [build.add(x, x)]
    for k in range(100_000):
        ops.append(build.add(ops[-1].result, ops[k * 7919 % len(ops)].result))
    graph = Graph((x,), tuple(ops), ops[-1].results)
    assert calls(layer_work_span, graph) < 5 * len(ops)


def test_the_oracle_catches_a_span_that_forgets_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(frame: Graph) -> dict[Op, int]:
        made = frame.producers()
        spans = dict.fromkeys(frame.ops, 0)
        for op in reversed(frame.ops):
            spans.update((made[v], spans[op] + 1) for v in op.uses if v in made)
        return spans

    monkeypatch.setattr(module, "layer_work_span", careless)
    graphs = [random_dag(Random(seed), ops=25) for seed in range(30)]
    assert any(module.layer_work_span(g) != longest_paths(g) for g in graphs)


def test_roof_is_the_next_library_layer_above() -> None:
    x = Value(ROW)
    ops = [build.elementwise("stablehlo.negate", x)]
    for k in range(6):
        name = "stablehlo.custom_call" if k in (1, 4) else "stablehlo.negate"
        ops.append(Op(name, ops[-1].results, (Value(ROW),)))
    spans = layer_work_span(Graph((x,), tuple(ops), ops[-1].results))
    found = cut_lc_layers(spans, lambda op: op.name == "stablehlo.custom_call")
    assert found == (1, 4)
    assert [roof(span, found, 7) for span in range(7)] == [1, 4, 4, 4, 7, 7, 7]
