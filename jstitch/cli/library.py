"""`jstitch library stats | export | import | clear`: the performance library's file."""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TextIO

import click
import jax
from rich.table import Table

from jstitch.cli.console import plain_console
from jstitch.errors import JstitchWarning, ParseError
from jstitch.runtime.device_name import cpu_device, gpu_device
from jstitch.runtime.library_exchange import clear, count, export_lines, import_lines
from jstitch.runtime.library_file import open_database
from jstitch.runtime.performance_library import library_path
from jstitch.runtime.versions import measured_with

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
FOLDER = click.option(
    "--cache-dir", type=click.Path(path_type=Path), help="Folder of the library; default: JSTITCH_CACHE_DIR."
)


@click.group()
def library() -> None:
    """The times that this machine has measured, and what they decided."""


@contextmanager
def _opened(folder: Path | None) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """The library's file. What the library would only warn of is an error here."""
    path = library_path(None if folder is None else str(folder))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", JstitchWarning)
            database = open_database(path)
        with closing(database):
            yield path, database
    except (JstitchWarning, sqlite3.Error) as error:
        raise click.ClickException(str(error)) from None


def _tell(as_json: bool, sentence: str, **fields: Any) -> None:
    click.echo(json.dumps(fields) if as_json else sentence)


@library.command("stats")
@FOLDER
@JSON
def stats_command(cache_dir: Path | None, as_json: bool) -> None:
    """Count the entries, by device and versions."""
    with _opened(cache_dir) as (path, database):
        groups = count(database)
    here = {cpu_device(), *_gpus()}
    for group in groups:
        group["used_here"] = group["device"] in here and group["versions"] == measured_with()
    total = sum(group["entries"] for group in groups)
    if as_json:
        click.echo(json.dumps({"path": str(path), "entries": total, "groups": groups}))
        return
    click.echo(f"{path}: {total} entries, {path.stat().st_size:,} bytes")
    if groups:
        plain_console().print(_table(groups))


def _gpus() -> list[str]:
    """Names of the GPUs that JAX has here."""
    try:
        return [gpu_device(device.device_kind) for device in jax.devices("cuda")]
    except RuntimeError:
        return []


def _table(groups: list[dict[str, Any]]) -> Table:
    table = Table()
    for name in ("table", "entries", "measured", "used here", "device", "versions"):
        table.add_column(name, justify="right" if name in ("entries", "measured") else "left")
    for g in groups:
        used = "yes" if g["used_here"] else "no"
        table.add_row(g["table"], str(g["entries"]), str(g["measured"]), used, g["device"], g["versions"])
    return table


@library.command("export")
@click.argument("file", type=click.File("w", encoding="utf-8"), default="-")
@FOLDER
def export_command(file: TextIO, cache_dir: Path | None) -> None:
    """Write all entries to FILE (default: standard output), one line of JSON each."""
    with _opened(cache_dir) as (_, database):
        for line in export_lines(database):
            file.write(line + "\n")


@library.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
@FOLDER
@JSON
def import_command(file: TextIO, cache_dir: Path | None, as_json: bool) -> None:
    """Add the entries of FILE (default: standard input), all or none."""
    try:
        with _opened(cache_dir) as (path, database):
            number = import_lines(database, file)
    except ParseError as error:
        name = getattr(file, "name", "-")
        raise click.ClickException(
            f"{name}, {error.where}: expected {error.expected}, found {error.found}"
        ) from None
    _tell(as_json, f"{number} entries imported into {path}", path=str(path), imported=number)


@library.command("clear")
@click.option("--stale", is_flag=True, help="Only entries of other processors and other versions.")
@FOLDER
@JSON
def clear_command(stale: bool, cache_dir: Path | None, as_json: bool) -> None:
    """Delete the entries; they are measured again when they are needed."""
    with _opened(cache_dir) as (path, database):
        number = clear(database, (cpu_device(), measured_with()) if stale else None)
    _tell(as_json, f"{number} entries deleted from {path}", path=str(path), deleted=number)
