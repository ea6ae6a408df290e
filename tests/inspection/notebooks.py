"""The notebook of the documentation, run as JupyterLab would, in a process of its own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "first-look.ipynb"


@cache
def executed() -> Any:
    """With its outputs. Skips the test where ".[notebook]" is not installed."""
    client, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(NOTEBOOK.parents[2])}}
    client.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    return notebook
