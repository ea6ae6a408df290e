"""Rows as a rich table, with geometric means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]


def geometric_mean(ratios: Iterable[float]) -> float:
    """NaN when there are none."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def ratios(rows: Sequence[Row], way: str, **where: str) -> list[float]:
    """The ratios of the rows that have `way` ("interleaved", "alone") and the given fields."""
    chosen = [row for row in rows if all(row.get(key) == value for key, value in where.items())]
    return [row[way]["ratio"] for row in chosen if way in row]


def torch_ratios(rows: Sequence[Row], **where: str) -> list[float]:
    """torch.compile's seconds over jstitch's, each timed alone."""
    chosen = [row for row in rows if all(row.get(key) == value for key, value in where.items())]
    return [row["torch"]["median"] / row["alone"]["jstitch"]["median"] for row in chosen if has_twin(row)]


def has_twin(row: Row) -> bool:
    return "torch" in row and "alone" in row


def show(console: Console, rows: Sequence[Row], copy: dict[str, float]) -> None:
    for malloc in dict.fromkeys(row["malloc"] for row in rows):
        chosen = [row for row in rows if row["malloc"] == malloc]
        console.print(_table(chosen, copy, f"{malloc} malloc"))
        console.print(_means(chosen, malloc))
    for row in rows:
        if "error" in row:
            console.print(
                f"[bold red]FAILED[/] {row['workload']} {row['size']} {row['malloc']}: {row['error']}"
            )
        elif "torch_error" in row:
            console.print(f"no torch twin for {row['workload']} {row['size']}: {row['torch_error']}")


def _table(rows: Sequence[Row], copy: dict[str, float], title: str) -> Table:
    table = Table(title=title, padding=(0, 0))
    for name in ("workload", "size"):
        table.add_column(name, no_wrap=True)
    pairs = ("jax us", "jstitch", "iqr %", "ratio", "alone: jax", "jstitch", "ratio")
    for name in (*pairs, "GB/s", "copy", "kernels", "stitched", "x torch"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        if "error" not in row:
            table.add_row(*_cells(row, copy))
    return table


def _cells(row: Row, copy: dict[str, float]) -> Iterable[str]:
    yield from (row["workload"], row["size"])
    yield from _way(row.get("interleaved"), spread=True)
    yield from _way(row.get("alone"), spread=False)
    best = row.get("alone") or row["interleaved"]
    yield f"{row['io_bytes'] / best['jstitch']['median'] / 1e9:.1f}"
    yield f"{copy[row['size']] / 1e9:.0f}"
    yield f"{row['jax_kernels']}>{row['jstitch_kernels']}"
    yield str(row["stitched_kernels"])
    yield f"{torch_ratios([row])[0]:.2f}" if has_twin(row) else "-"


def _way(times: Row | None, spread: bool) -> list[str]:
    if times is None:
        return ["-"] * (3 + spread)
    subject, ratio = times["jstitch"], times["ratio"]
    cells = [f"{times['jax']['median'] * 1e6:.0f}", f"{subject['median'] * 1e6:.0f}"]
    cells += [f"{100 * subject['iqr'] / subject['median']:.0f}"] if spread else []
    return [*cells, f"[red]{ratio:.2f}[/]" if ratio < 0.97 else f"{ratio:.2f}"]


def _means(rows: Sequence[Row], malloc: str) -> Table:
    table = Table(title=f"geometric means, {malloc} malloc")
    for name in ("size", "interleaved", "alone", "x torch.compile"):
        table.add_column(name, justify="right")
    sizes = dict.fromkeys(row["size"] for row in rows)
    for name, where in [*((s, {"size": s}) for s in sizes), ("all", {})]:
        means = (
            ratios(rows, "interleaved", **where),
            ratios(rows, "alone", **where),
            torch_ratios(rows, **where),
        )
        table.add_row(name, *(f"{geometric_mean(m):.2f}" if m else "-" for m in means))
    return table
