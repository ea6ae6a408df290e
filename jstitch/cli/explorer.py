"""`jstitch report --format model-explorer`: a folder of JSON files for Google's Model Explorer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from jstitch.cli.files import InputError
from jstitch.explorer.graphs import explorer_graphs, explorer_overlays
from jstitch.runtime.whole_file import write_text

GRAPHS = "graphs.json"


def check_folder(path: Path) -> None:
    """Before the planning, which may take a while. Raises InputError for what can be no folder."""
    if str(path) == "-":
        raise InputError("-: Expected a folder, for graphs and node data are several files; name one with -o")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: Expected a folder to write to, found a file; choose another with -o")


def write_explorer(folder: Path, data: Mapping[str, Any]) -> None:
    """The graphs, and a file for each kind of node data; says how to look at them. Raises InputError."""
    files = {GRAPHS: explorer_graphs(data)}
    files |= {f"{name}.json": overlay for name, overlay in explorer_overlays(data).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_text(folder / name, json.dumps(content, allow_nan=False))
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from None
    graphs, *overlays = (str(folder / name) for name in files)
    words = ["model-explorer", graphs, f"--node_data_paths={','.join(overlays)}"]
    click.echo(f"pip install ai-edge-model-explorer\n{shlex.join(words)}", err=True)
