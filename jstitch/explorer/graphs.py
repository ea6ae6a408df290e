"""A report's data as Model Explorer reads it: graphs, and data of their nodes that it colours them by.

explorer_graphs(report_data("step", seen))       {"label": "step", "graphs": [{"id", "nodes": [...]}]}
explorer_overlays(report_data("step", seen))     {"kernels": {graph id: {"results": {node id: {"value"}}}}}

A frame is a graph, an op a node, a kernel a layer that opens and closes, a rule an overlay of edges.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Data = Mapping[str, Any]
XLA = "XLA's"
_NOTHING, _MOST = "#ffffff", "#d55e00"  # colours of no bytes, and of most
_OPEN = "#d55e00"  # of edges that are not fused


@dataclass(frozen=True)
class _Frame:
    """id: unique among the graphs of the data."""

    id: str
    frame: Data
    data: Data

    def text(self, column: str, op: int) -> str:
        """Of a column that has numbers of strings."""
        return str(self.data["strings"][self.frame["ops"][column][op]])

    def kernel(self, op: int) -> Data | None:
        number = self.frame["ops"]["kernel"][op]
        return self.data["kernels"][number] if number >= 0 else None

    @property
    def ops(self) -> range:
        return range(len(self.frame["ops"]["name"]))


def _frames(data: Data) -> Iterator[_Frame]:
    for call in data["calls"]:
        for n, frame in enumerate(call["frames"]):
            yield _Frame(f"{call['name']}: {frame['title']} ({n})", frame, data)


# -- graphs ---------------------------------------------------------------------------------------------


def explorer_graphs(data: Data) -> dict[str, Any]:
    """A graph collection, as `model_explorer.graph_builder` has it, in JSON's types."""
    return {"label": data["name"], "graphs": [_graph(frame) for frame in _frames(data)]}


def _graph(frame: _Frame) -> dict[str, Any]:
    kernels = {k["name"]: k for op in frame.ops if (k := frame.kernel(op)) is not None}
    return {
        "id": frame.id,
        "nodes": [_node(frame, op, reads) for op, reads in zip(frame.ops, _reads(frame), strict=True)],
        "groupNodeAttributes": {"": _whole(frame.data), **{n: _facts(k) for n, k in kernels.items()}},
        "groupNodeConfigs": [_colours(frame.data, kernel) for kernel in kernels.values()],
        "tasksData": {"edgeOverlaysDataListLeftPane": [_rules(frame)]},
    }


def _reads(frame: _Frame) -> Sequence[Sequence[int]]:
    """For each op, the ops that it reads."""
    found: list[list[int]] = [[] for _ in frame.ops]
    for maker, user, _ in frame.frame["edges"]:
        found[user].append(maker)
    return found


def _node(frame: _Frame, op: int, reads: Sequence[int]) -> dict[str, Any]:
    ops, kernel = frame.frame["ops"], frame.kernel(op)
    said = {
        "value": ops["value"][op],
        "StableHLO": ops["line"][op],
        "source": frame.text("loc", op),
        "scope": frame.text("scope", op),
        "schedule": frame.text("schedule", op),
        "kernel": XLA if kernel is None else kernel["name"],
    }
    return {
        "id": str(op),
        "label": frame.text("name", op).rpartition(".")[2],
        "namespace": "" if kernel is None else kernel["name"],
        "attrs": _pairs(said),
        "incomingEdges": [_edge(maker, n) for n, maker in enumerate(reads)],
        "outputsMetadata": [{"id": "0", "attrs": _pairs({"tensor_shape": frame.text("type", op)})}],
    }


def _edge(maker: int, place: int) -> dict[str, str]:
    return {"sourceNodeId": str(maker), "sourceNodeOutputId": "0", "targetNodeInputId": str(place)}


def _pairs(said: Mapping[str, str]) -> list[dict[str, str]]:
    """Without those that say nothing."""
    return [{"key": key, "value": value} for key, value in said.items() if value]


def _whole(data: Data) -> dict[str, str]:
    totals = data["totals"]
    inside = f"{totals['kernels']}, of {totals['inside']} of {totals['ops']} ops"
    return {"target": data["target"], "planner": data["planner"], "kernels": inside, **_costs(totals)}


def _facts(kernel: Data) -> dict[str, str]:
    refused = kernel["refused"]
    stays = {"stays XLA's": f"{refused['rule']}: {refused['reason']}"} if refused else {}
    why = {"why": "\n".join(kernel["why"]), "schedule": kernel["template"]}
    return {**stays, **_costs(kernel), "schemes": " ".join(kernel["schemes"]), **why}


def _costs(of: Data) -> dict[str, str]:
    xla, ours = of["xla"], of["ours"]
    return {
        "launches": f"{xla['launches']} -> {ours['launches']}",
        "bytes (modelled)": f"{xla['nbytes']:,.0f} -> {ours['nbytes']:,.0f}",
        "us (modelled)": f"{xla['seconds'] * 1e6:,.1f} -> {ours['seconds'] * 1e6:,.1f}",
    }


def _colours(data: Data, kernel: Data) -> dict[str, str]:
    colour = _colour(data, kernel)
    return {
        "namespaceRegex": f"^{re.escape(kernel['name'])}$",
        "backgroundColor": _tint(colour),
        "borderColor": colour,
    }


def _colour(data: Data, kernel: Data) -> str:
    """The page's own."""
    colours = data["colours"]
    return str(colours[kernel["number"] % len(colours)])


def _tint(colour: str) -> str:
    """A quarter of it, on white: Model Explorer draws no colours that let others through."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{255 - (255 - part) // 4:02x}" for part in parts)


def _rules(frame: _Frame) -> dict[str, Any]:
    """The edges that are not in one kernel, an overlay for each rule."""
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for maker, user, why in frame.frame["edges"]:
        if why >= 0:
            rule = frame.data["reasons"][why]["rule"]
            found[rule].append({"sourceNodeId": str(maker), "targetNodeId": str(user), "label": rule})
    overlays = [{"name": rule, "edgeColor": _OPEN, "edges": edges} for rule, edges in found.items()]
    return {"name": "not fused", "type": "edge_overlays", "overlays": overlays}


# -- data of nodes --------------------------------------------------------------------------------------


def explorer_overlays(data: Data) -> dict[str, dict[str, Any]]:
    """By name, for each graph: data as `model_explorer.node_data_builder` has it, in JSON's types.

    kernels: whose kernel an op is in. reasons: rules that keep it out of the kernels of what reads it. bytes:
    of its results that are written to memory, as if XLA fused nothing.
    """
    makers = {"kernels": _kernels, "reasons": _reasons, "bytes": _bytes}
    return {name: {f.id: make(f) for f in _frames(data)} for name, make in makers.items()}


def _kernels(frame: _Frame) -> dict[str, Any]:
    found = {}
    for op in frame.ops:
        kernel = frame.kernel(op)
        colour = {} if kernel is None else {"bgColor": _colour(frame.data, kernel)}
        found[str(op)] = {"value": XLA if kernel is None else kernel["name"], **colour}
    return {"results": found, "showExpandedSummaryOnGroupNode": True}


def _reasons(frame: _Frame) -> dict[str, Any]:
    rules: dict[int, set[str]] = defaultdict(set)
    for maker, _, why in frame.frame["edges"]:
        if why >= 0:
            rules[maker].add(frame.data["reasons"][why]["rule"])
    return {"results": {str(op): {"value": ", ".join(sorted(found))} for op, found in rules.items()}}


def _bytes(frame: _Frame) -> dict[str, Any]:
    gradient = [{"stop": 0, "bgColor": _NOTHING}, {"stop": 1, "bgColor": _MOST}]
    written = frame.frame["ops"]["written"]
    return {"results": {str(op): {"value": written[op]} for op in frame.ops}, "gradient": gradient}
