"""`jstitch cache stats | clear`: the kernel cache."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from jstitch.cli.console import plain_console
from jstitch.cli.files import InputError, bad_input
from jstitch.codegen.cpu import build as cpu_build
from jstitch.codegen.cuda import build as cuda_build
from jstitch.runtime.cache import KernelCache, kernel_store
from jstitch.runtime.cache_contents import Entry, delete, entries, leftovers
from jstitch.runtime.cpu_handler import handler_versions
from jstitch.runtime.versions import compiled_with, planned_with

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
FOLDER = click.option(
    "--cache-dir", type=click.Path(path_type=Path), help="Folder of the cache; default: JSTITCH_CACHE_DIR."
)
DAY = 86400.0


@click.group()
def cache() -> None:
    """The kernels that were compiled before."""


@cache.command("stats")
@FOLDER
@JSON
def stats_command(cache_dir: Path | None, as_json: bool) -> None:
    """Count the kernels, what XLA answered and what was decided, by target and versions."""
    store = _store(cache_dir)
    with bad_input(str(store.directory)):
        groups = _groups(entries(store.directory))
    total = sum(g["entries"] for g in groups), sum(g["bytes"] for g in groups)
    if as_json:
        fields = {"path": str(store.directory), "entries": total[0], "bytes": total[1], "limit": store.limit}
        click.echo(json.dumps({**fields, "groups": groups}))
        return
    click.echo(f"{store.directory}: {total[0]} entries, {total[1]:,} of at most {store.limit:,} bytes")
    if groups:
        plain_console(160).print(_table(groups))


@cache.command("clear")
@click.option("--stale", is_flag=True, help="Only kernels of other versions, which are never used again.")
@click.option("--older-than", type=float, metavar="DAYS", help="Only kernels that were last used before.")
@FOLDER
@JSON
def clear_command(stale: bool, older_than: float | None, cache_dir: Path | None, as_json: bool) -> None:
    """Delete compiled kernels; they are compiled again when they are needed.

    Programs that run keep those that they have loaded. With several conditions, all must hold.
    """
    directory = _store(cache_dir).directory
    with bad_input(str(directory)):
        chosen = [e for e in entries(directory) if _is_chosen(e, stale, older_than)]
        files, nbytes = delete([*chosen, *leftovers(directory)])
    if as_json:
        click.echo(json.dumps({"path": str(directory), "deleted": files, "bytes": nbytes}))
    else:
        click.echo(f"{files} files of {nbytes:,} bytes deleted from {directory}")


def _is_chosen(entry: Entry, stale: bool, older_than: float | None) -> bool:
    is_old = older_than is None or time.time() - entry.used > older_than * DAY
    return is_old and not (stale and entry.label.made_with in _current())


def _store(folder: Path | None) -> KernelCache:
    with bad_input("--cache-dir" if folder else "JSTITCH_CACHE_DIR"):
        store = kernel_store(None if folder is None else str(folder))
    if store.directory.exists() and not store.directory.is_dir():
        raise InputError(f"{store.directory}: expected the folder of a kernel cache, found a file")
    return store


def _current() -> frozenset[str]:
    """What kernels of this version are made with."""
    own = cpu_build.versions(), cuda_build.versions(), handler_versions()
    return frozenset({*own, compiled_with(), planned_with()})


def _groups(found: Iterable[Entry]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for e in found:
        names = {"target": e.label.target or "unknown", "versions": e.label.made_with or "unknown"}
        group = groups.setdefault((names["target"], names["versions"]), {**names, "entries": 0, "bytes": 0})
        group["entries"] += 1
        group["bytes"] += e.nbytes
        group["last_used"] = max(e.used, group.get("last_used", 0.0))
        group["used_here"] = e.label.made_with in _current()
    return sorted(groups.values(), key=lambda g: (not g["used_here"], -g["bytes"]))


def _table(groups: list[dict[str, Any]]) -> Table:
    table = Table()
    for name in ("target", "entries", "bytes", "last used", "of this version", "versions"):
        table.add_column(name, justify="right" if name in ("entries", "bytes") else "left")
    for g in groups:
        day = time.strftime("%Y-%m-%d", time.localtime(g["last_used"]))
        used = "yes" if g["used_here"] else "no"
        table.add_row(g["target"], str(g["entries"]), f"{g['bytes']:,}", day, used, g["versions"])
    return table
