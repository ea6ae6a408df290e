"""Chains of products on a GPU that is not here: launches and bytes by XLA:GPU's own compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from rich.table import Table

import jstitch
from benchmarks.table import geometric_mean

Row = dict[str, Any]
Shapes = Sequence[tuple[int, ...]]


def counted(name: str, f: Callable[..., Any], shapes: Shapes, dtype: str, target: str) -> Row:
    """least: bytes of arguments and results, each moved once."""
    args = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    found = jstitch.analyze(f, *args, target=target)
    moved = (*args, *jax.tree.leaves(jax.eval_shape(f, *args)))
    sides = {
        side: {"launches": x.launches, "bytes": x.all_bytes, "shared": x.shared_bytes}
        for side, x in (("xla", found.plain), ("jstitch", found.stitched))
    }
    return {"name": name, "least": sum(a.size * a.dtype.itemsize for a in moved), **sides}


def count_table(rows: Sequence[Row], target: str) -> Table:
    """One line a chain, and the geometric means of what is left."""
    table = Table(title=f"Chains of products on {target}, without a device: launches, bytes over the least")
    for head in ("case", "XLA", "jstitch", "XLA's bytes", "jstitch's", "shared memory"):
        table.add_column(head, justify="left" if head == "case" else "right")
    for row in rows:
        own, theirs = row["jstitch"], row["xla"]
        bytes_ = (f"{side['bytes'] / row['least']:.2f}" for side in (theirs, own))
        table.add_row(
            row["name"], str(theirs["launches"]), str(own["launches"]), *bytes_, f"{own['shared']:,}"
        )
    for what in ("launches", "bytes"):
        share = geometric_mean([row["jstitch"][what] / row["xla"][what] for row in rows])
        table.add_row(f"{what} left, geometric mean", "", f"{share:.2f}", "", "", "")
    return table
