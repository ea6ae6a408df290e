"""What Model Explorer loads: it opens StableHLO files as plans, and colours them by kernel, reason and bytes.

JSTITCH_TARGET=h200 model-explorer step.mlir --extensions=jstitch.explorer

The options are those of the environment. Model Explorer is imported here only: it loads this module.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import dacite
from model_explorer import (
    Adapter,
    AdapterMetadata,
    GetConfigEditorsResult,
    NodeDataProvider,
    NodeDataProviderFilter,
    NodeDataProviderMetadata,
    NodeDataProviderResult,
)
from model_explorer.graph_builder import GraphCollection
from model_explorer.node_data_builder import GraphNodeData, NodeDataResult

from jstitch.explorer.graphs import explorer_graphs, explorer_overlays
from jstitch.frontend.safe_parse import safe_parse
from jstitch.inspection.inspected import inspect_module
from jstitch.inspection.report.data import report_data
from jstitch.options import CompileOptions

_ID = "jstitch"
_OVERLAYS = {
    "kernels": ("Kernels", "hub"),
    "reasons": ("Why not fused", "link_off"),
    "bytes": ("Bytes written", "memory"),
}


class PlanAdapter(Adapter):  # type: ignore[misc]
    """Opens a module as its plan."""

    metadata = AdapterMetadata(
        id=_ID,
        name="jstitch: the plan",
        description="What jstitch makes of a StableHLO module: its ops, and the kernels that they become.",
        fileExts=["mlir", "mlirbc"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Raises ParseError for what is no StableHLO module."""
        return {"graphCollections": [dacite.from_dict(GraphCollection, explorer_graphs(_data(model_path)))]}


class PlanData(NodeDataProvider):  # type: ignore[misc]
    """Colours a plan that was opened."""

    metadata: ClassVar = [
        NodeDataProviderMetadata(
            id=f"{_ID}_{name}",
            name=title,
            description=f"{title}, by jstitch",
            icon=icon,
            filter=NodeDataProviderFilter(adapterIds=[_ID]),
        )
        for name, (title, icon) in _OVERLAYS.items()
    ]

    def get_config_editors(self, provider_id: str) -> GetConfigEditorsResult:
        return GetConfigEditorsResult(configEditors=[])

    def run(
        self, provider_id: str, model_path: str, graph_id: str, config_values: dict[str, Any], graph: Any
    ) -> NodeDataProviderResult:
        overlay = explorer_overlays(_data(model_path))[provider_id.removeprefix(f"{_ID}_")]
        return NodeDataProviderResult(result=_node_data(overlay[graph_id]))


def _node_data(found: dict[str, Any]) -> GraphNodeData:
    """Values may be words, which Model Explorer shows, too; its own types say numbers."""
    made = dacite.from_dict(GraphNodeData, {**found, "results": {}})
    made.results = {node: NodeDataResult(**result) for node, result in found["results"].items()}
    return made


def _data(model_path: str) -> dict[str, Any]:
    return _planned(model_path, Path(model_path).stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _planned(model_path: str, changed: int) -> dict[str, Any]:
    """changed: when the file was, last."""
    module = safe_parse(Path(model_path).read_bytes())
    return report_data(Path(model_path).name, inspect_module(module, CompileOptions()))
