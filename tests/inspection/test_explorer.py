"""Plans for Google's Model Explorer: what is in the files, and that the package itself reads them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jstitch.__main__ import main
from jstitch.explorer.graphs import XLA, explorer_graphs, explorer_overlays
from jstitch.ir.visible import visible
from tests.inspection.report_subjects import data_of, network, scanned
from tests.inspection.test_report import HOSTILE, MODULE, NO_KERNELS, NO_OPS, module_data

SUBJECT = f"{__package__}.report_subjects:network"


def nodes_of(graph: dict[str, Any]) -> dict[str, Any]:
    return {node["id"]: node for node in graph["nodes"]}


# -- graphs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [network, scanned])
def test_ops_are_nodes_and_kernels_are_layers(make: Any) -> None:
    data = data_of(make)
    frames = [frame for call in data["calls"] for frame in call["frames"]]
    graphs = explorer_graphs(data)["graphs"]
    assert len({graph["id"] for graph in graphs}) == len(graphs) == len(frames)
    for frame, graph in zip(frames, graphs, strict=True):
        nodes, names = nodes_of(graph), [data["strings"][n] for n in frame["ops"]["name"]]
        assert [node["label"] for node in nodes.values()] == [name.rpartition(".")[2] for name in names]
        edges = {(int(e["sourceNodeId"]), int(i)) for i, n in nodes.items() for e in n["incomingEdges"]}
        assert edges == {(a, b) for a, b, _ in frame["edges"]}
        for node, kernel in zip(nodes.values(), frame["ops"]["kernel"], strict=True):
            assert node["namespace"] == ("" if kernel < 0 else data["kernels"][kernel]["name"])
        layers = {node["namespace"] for node in nodes.values()} | {""}
        assert set(graph["groupNodeAttributes"]) == layers


def test_edges_that_are_not_fused_are_overlays_by_rule() -> None:
    data = data_of(network)
    (frame,), (graph,) = data["calls"][0]["frames"], explorer_graphs(data)["graphs"]
    (set_of,) = graph["tasksData"]["edgeOverlaysDataListLeftPane"]
    shown = {
        (int(e["sourceNodeId"]), int(e["targetNodeId"]), overlay["name"])
        for overlay in set_of["overlays"]
        for e in overlay["edges"]
    }
    assert shown == {(a, b, data["reasons"][why]["rule"]) for a, b, why in frame["edges"] if why >= 0}
    assert shown


def test_node_data_say_kernels_reasons_and_bytes() -> None:
    data = data_of(network)
    (graph,), overlays = explorer_graphs(data)["graphs"], explorer_overlays(data)
    nodes = nodes_of(graph)
    kernels, reasons, written = (overlays[n][graph["id"]]["results"] for n in ("kernels", "reasons", "bytes"))
    assert {i: found["value"] for i, found in kernels.items()} == {
        i: node["namespace"] or XLA for i, node in nodes.items()
    }
    assert set(reasons) <= set(nodes)
    assert any("chain" in found["value"] for found in reasons.values())
    assert set(written) == set(nodes)
    readers: dict[str, set[str]] = {i: set() for i in nodes}
    for node in nodes.values():
        for edge in node["incomingEdges"]:
            readers[edge["sourceNodeId"]].add(node["namespace"])
    kept = [i for i, node in nodes.items() if node["namespace"] and readers[i] == {node["namespace"]}]
    assert kept
    assert all(written[i]["value"] == 0 for i in kept)
    left = [i for i, node in nodes.items() if readers[i] - {node["namespace"]}]
    assert all(written[i]["value"] > 0 for i in left)


@pytest.mark.parametrize("text", [NO_OPS, NO_KERNELS])
def test_a_module_without_kernels_is_a_graph_without_layers(text: str) -> None:
    (graph,) = explorer_graphs(module_data(text))["graphs"]
    assert set(graph["groupNodeAttributes"]) == {""}


# -- Model Explorer's own reading ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [network, scanned])
def test_the_package_knows_every_field(make: Any) -> None:
    pytest.importorskip("model_explorer", reason="pip install -e '.[explorer]'")
    import dacite
    from model_explorer.graph_builder import GraphCollection
    from model_explorer.node_data_builder import GraphNodeData, NodeDataResult

    data = data_of(make)
    strict = dacite.Config(strict=True)
    made = dacite.from_dict(GraphCollection, explorer_graphs(data), strict)
    ids = {graph.id: {node.id for node in graph.nodes} for graph in made.graphs}
    for overlay in explorer_overlays(data).values():
        assert set(overlay) == set(ids)
        for graph, found in overlay.items():
            dacite.from_dict(GraphNodeData, {**found, "results": {}}, strict)
            assert all(NodeDataResult(**result).value is not None for result in found["results"].values())
            assert set(found["results"]) <= ids[graph]


def test_the_package_loads_the_extension_and_opens_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `model-explorer m.mlir --extensions=jstitch.explorer` and its web page do."""
    pytest.importorskip("model_explorer", reason="pip install -e '.[explorer]'")
    from model_explorer.extension_manager import ExtensionManager

    monkeypatch.setenv("JSTITCH_TARGET", "h200")
    monkeypatch.setenv("JSTITCH_TUNE", "off")
    module = tmp_path / "m.mlir"
    module.write_text(MODULE.replace("HOSTILE", HOSTILE.replace("\\", "\\\\")))
    manager = ExtensionManager(["jstitch.explorer"])
    manager.load_extensions()
    known = {e["id"]: e for e in manager.get_extensions_metadata()}
    assert "mlir" in known["jstitch"]["fileExts"]
    asked = {"cmdId": "convert", "extensionId": "jstitch", "modelPath": str(module), "settings": {}}
    opened = json.loads(json.dumps(manager.run_cmd(asked)))
    ((graph,),) = (collection["graphs"] for collection in opened["graphCollections"])
    assert [node["label"] for node in graph["nodes"]] == ["exponential", "add", "tanh"]
    assert graph["groupNodeAttributes"][""]["target"] == "h200"
    assert any(attr["value"].startswith(visible(HOSTILE)) for attr in graph["nodes"][0]["attrs"])
    place = {"modelPath": str(module), "graphId": graph["id"], "configValues": {}}
    for name in ("kernels", "reasons", "bytes"):
        extension = f"jstitch_{name}"
        found = manager.run_cmd({"cmdId": "run", "extensionId": extension, **place})
        assert set(json.loads(json.dumps(found))["result"]["results"]) <= {"0", "1", "2"}


# -- the command ---------------------------------------------------------------------------------------------


def invoke(folder: Path, subject: str = SUBJECT, status: int = 0) -> Any:
    words = ["report", subject, "--format", "model-explorer", "-o", str(folder)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == status, done.output
    return done


def test_the_command_writes_a_folder_and_says_how_to_look_at_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    said = invoke(folder).stderr
    files = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    assert set(files) == {"graphs.json", "kernels.json", "reasons.json", "bytes.json"}
    assert all(f"{folder}/{name}" in said for name in files)
    ids = {graph["id"] for graph in files["graphs.json"]["graphs"]}
    assert all(set(files[name]) == ids for name in ("kernels.json", "reasons.json", "bytes.json"))


@pytest.mark.parametrize(("place", "said"), [("-", "Expected a folder"), ("file", "found a file")])
def test_a_place_that_is_no_folder_is_one_line(tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "file").touch()
    done = invoke(Path("-") if place == "-" else tmp_path / place, "missing.mlir", status=2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_disk_that_is_full_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    module = tmp_path / "m.mlir"
    module.write_text(NO_KERNELS)
    done = invoke(tmp_path / "out", str(module), status=2)
    assert "No space left" in done.stderr
    assert not list((tmp_path / "out").iterdir())
